"""Training of a small model that may be killed at any instant: a pattern to copy. Run it under torchrun.

The loader's state is saved with the step, in one file with the model and the optimizer. After a restart:
build, load_state_dict, iterate.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed as dist
from checkpoints import load_checkpoint, newest_common_step, save_checkpoint
from tiny_lm import TinyLM
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream


def main() -> None:
    """Join the other ranks and train."""
    options = parse_arguments()
    torch.set_num_threads(1)  # the number of threads decides the last bits of sums
    dist.init_process_group("gloo")
    with (options.log_dir / f"rank_{dist.get_rank()}.jsonl").open("w") as log:
        train(options, log)
    dist.destroy_process_group()


def parse_arguments() -> argparse.Namespace:
    """Return the flags."""
    parser = argparse.ArgumentParser(description="Train a small language model that can be killed.")
    parser.add_argument("--data_path", type=Path, required=True, help="the corpus directory")
    parser.add_argument("--checkpoint_dir", type=Path, required=True, help="shared by all ranks")
    parser.add_argument("--log_dir", type=Path, required=True, help="one log per rank is written here")
    parser.add_argument("--vocab_size", type=int, required=True)
    parser.add_argument("--seq_len", type=int, required=True)
    parser.add_argument("--batch_size", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--save_every", type=int, required=True, help="steps between checkpoints")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    return parser.parse_args()


def train(options: argparse.Namespace, log: IO[str]) -> None:
    """Train all epochs, from the newest checkpoint if there is one."""
    torch.manual_seed(options.seed)
    bare = TinyLM(vocab_size=options.vocab_size, seq_len=options.seq_len)
    # Without find_unused_parameters, DDP regroups gradients after the first step: after a restart, three or
    # more ranks would add them in another order, and the last bits would change.
    model = DistributedDataParallel(bare, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    dataset = tdstream.build(
        options.data_path, seq_len=options.seq_len, batch_size=options.batch_size, shuffle=True,
        seed=options.seed,
    )  # fmt: skip
    loader = StatefulDataLoader(dataset, num_workers=options.workers)

    first_epoch, step = resume(options.checkpoint_dir, bare, optimizer, loader)
    write_line(log, {"pid": os.getpid(), "start_step": step, "batches_per_epoch": len(loader)})

    for epoch in range(first_epoch, options.epochs):
        dataset.set_epoch(epoch)  # the epoch of the loaded state, whose position is kept
        for batch in loader:
            loss = train_step(model, optimizer, batch)
            step += 1
            write_line(log, {"step": step, "epoch": epoch, "batch": digest(batch), "loss": loss})
            if step % options.save_every == 0:
                content = {
                    "model": bare.state_dict(), "optimizer": optimizer.state_dict(),
                    "loader": loader.state_dict(), "epoch": epoch, "step": step,
                }  # fmt: skip
                save_checkpoint(options.checkpoint_dir, dist.get_rank(), step, content)


def resume(
    directory: Path,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: StatefulDataLoader[dict[str, Tensor]],
) -> tuple[int, int]:
    """Load the newest checkpoint that all ranks have, and return its epoch and step; (0, 0) without one.

    This model has no dropout; one that draws random numbers would also save torch.get_rng_state().
    """
    newest = newest_common_step(directory, dist.get_world_size())
    dist.barrier()  # all ranks have chosen the step before any of them touches the files
    if newest is None:
        return 0, 0
    saved = load_checkpoint(directory, dist.get_rank(), newest)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    loader.load_state_dict(saved["loader"])
    return saved["epoch"], saved["step"]


def train_step(
    model: DistributedDataParallel, optimizer: torch.optim.Optimizer, batch: dict[str, Tensor]
) -> float:
    """Learn from one batch, together with the other ranks; return this rank's loss."""
    loss: Tensor = model(batch["input_ids"], batch["labels"])
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
    optimizer.step()
    return loss.item()


def digest(batch: dict[str, Tensor]) -> str:
    """Return a hash of a batch's tokens, inputs and labels."""
    contents = b"".join(batch[name].numpy().tobytes() for name in ("input_ids", "labels"))
    return hashlib.blake2b(contents, digest_size=8).hexdigest()


def write_line(log: IO[str], record: dict[str, Any]) -> None:
    """Append a record to the log and flush it, so that a kill of this process cannot lose it."""
    log.write(json.dumps(record) + "\n")
    log.flush()


if __name__ == "__main__":
    main()
