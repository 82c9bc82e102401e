"""Training of a small model on changing machines: a pattern to copy. Run it under torchrun.

The loader's state is the same on every rank and fits any number of ranks and loader workers. Rank 0 saves it
in one file with the model and the optimizer, and every rank of the next run loads that file: build,
load_state_dict, iterate.
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
from checkpoints import save_atomically
from tiny_lm import TinyLM
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

import tdstream


def main() -> None:
    """Join the other ranks and train."""
    options = parse_arguments()
    torch.set_num_threads(1)  # a small model gains nothing from more
    dist.init_process_group("gloo")
    with (options.log_dir / f"rank_{dist.get_rank()}.jsonl").open("w") as log:
        train(options, log)
    dist.destroy_process_group()


def parse_arguments() -> argparse.Namespace:
    """Return the flags."""
    parser = argparse.ArgumentParser(description="Train a small language model on changing machines.")
    parser.add_argument("--data_path", type=Path, required=True, help="the corpus directory")
    parser.add_argument("--checkpoint", type=Path, required=True, help="the one file, shared by all ranks")
    parser.add_argument("--log_dir", type=Path, required=True, help="one log per rank is written here")
    parser.add_argument("--vocab_size", type=int, required=True)
    parser.add_argument("--seq_len", type=int, required=True)
    parser.add_argument("--batch_size", type=int, required=True, help="samples per rank and step")
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--save_every", type=int, required=True, help="steps between checkpoints")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    return parser.parse_args()


def train(options: argparse.Namespace, log: IO[str]) -> None:
    """Train all epochs, from the checkpoint if there is one."""
    torch.manual_seed(options.seed)
    bare = TinyLM(vocab_size=options.vocab_size, seq_len=options.seq_len)
    model = DistributedDataParallel(bare)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = tdstream.loader(
        options.data_path, seq_len=options.seq_len, batch_size=options.batch_size, shuffle=True,
        seed=options.seed, num_workers=options.workers,
    )  # fmt: skip

    step = resume(options.checkpoint, bare, optimizer, loader)
    write_line(log, {"pid": os.getpid(), "start_step": step, **place(loader)})

    for epoch in range(loader.epoch, options.epochs):
        loader.set_epoch(epoch)  # the epoch of the loaded state, whose position is kept
        for batch in loader:
            step += 1
            # Before the step: no rank completes and saves a step before all have logged their batches.
            write_line(log, {"step": step, **place(loader), "rows": hash_rows(batch)})
            train_step(model, optimizer, batch)
            if step % options.save_every == 0 and dist.get_rank() == 0:
                save(options.checkpoint, bare, optimizer, loader, step)


def resume(
    checkpoint: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, loader: tdstream.Loader
) -> int:
    """Load the checkpoint on every rank, and return its step; 0 without one.

    Rank 0 replaces the file only after a step, and no rank takes one before all have loaded.
    """
    if not checkpoint.exists():
        return 0
    saved = torch.load(checkpoint, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    loader.load_state_dict(saved["loader"])
    return int(saved["step"])


def save(
    checkpoint: Path,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: tdstream.Loader,
    step: int,
) -> None:
    """Replace the checkpoint; only one rank calls this."""
    content = {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(),
        "loader": loader.state_dict(), "step": step,
    }  # fmt: skip
    save_atomically(checkpoint, content)


def train_step(
    model: DistributedDataParallel, optimizer: torch.optim.Optimizer, batch: dict[str, Tensor]
) -> None:
    """Learn from one batch, together with the other ranks."""
    loss = model(batch["input_ids"], batch["labels"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def place(loader: tdstream.Loader) -> dict[str, Any]:
    """Return the loader's position, and a hash of its whole state, for the log."""
    state = json.dumps(loader.state_dict(), sort_keys=True)
    return {"epoch": loader.epoch, "position": loader.position, "state": _hash(state.encode())}


def hash_rows(batch: dict[str, Tensor]) -> list[str]:
    """Return a hash of the inputs and labels of each row."""
    rows = zip(batch["input_ids"].numpy(), batch["labels"].numpy(), strict=True)
    return [_hash(inputs.tobytes() + labels.tobytes()) for inputs, labels in rows]


def write_line(log: IO[str], record: dict[str, Any]) -> None:
    """Append a record to the log and flush it, so that a kill of this process cannot lose it."""
    log.write(json.dumps(record) + "\n")
    log.flush()


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


if __name__ == "__main__":
    main()
