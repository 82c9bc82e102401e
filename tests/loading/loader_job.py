"""A training job for torchrun: it logs what it consumes, and rank 0 alone writes the states that all load.

Run by test_loader_torchrun.py, once for each attempt, with other numbers of ranks, workers and batches.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from loader_truth import SEED, SEQ_LEN, ids_of

import tdstream

EVERY = 4  # steps between two checkpoints


def arguments() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--distributed-checkpoint", action="store_true")
    return parser.parse_args()


def make_loader(options: argparse.Namespace, batch_size: int) -> tdstream.Loader:
    """Return this rank's loader; rank and world size come from the process group."""
    return tdstream.loader(
        options.corpus, seq_len=SEQ_LEN, batch_size=batch_size, shuffle=True, order="numpy", seed=SEED,
        num_workers=options.workers,
    )  # fmt: skip


def train(options: argparse.Namespace, loader: tdstream.Loader) -> None:
    """Train to the last epoch's end; log each batch before the step that it belongs to is over."""
    checkpoint = options.directory / "state.pt"
    if checkpoint.exists():
        loader.load_state_dict(torch.load(checkpoint, weights_only=True))
    rank = dist.get_rank()
    with (options.directory / f"log-{time.time_ns()}-{rank}.jsonl").open("w") as log:
        for epoch in range(loader.epoch, options.epochs):
            loader.set_epoch(epoch)
            for batch in loader:
                entry = {"step": loader.step - 1, "epoch": loader.epoch, "rank": rank, "ids": ids_of(batch)}
                log.write(json.dumps(entry) + "\n")
                log.flush()
                dist.barrier()
                if loader.step % EVERY == 0:
                    save(loader, checkpoint)
                time.sleep(0.01)  # so that a kill finds it between two checkpoints


def save(loader: tdstream.Loader, checkpoint: Path) -> None:
    """Write rank 0's state, which is everybody's."""
    if dist.get_rank() == 0:
        torch.save(loader.state_dict(), checkpoint.with_suffix(".tmp"))
        checkpoint.with_suffix(".tmp").replace(checkpoint)
    dist.barrier()


def through_distributed_checkpoint(options: argparse.Namespace, loader: tdstream.Loader) -> None:
    """Save five steps into an epoch, with all ranks at once; load into loaders of half the batch size."""
    import torch.distributed.checkpoint as dcp  # it takes a second, which the other jobs need not wait

    batches = iter(loader)
    consumed: list[Any] = [ids_of(next(batches)) for _ in range(5)]
    dcp.save({"step": torch.tensor(5), "loader": loader}, checkpoint_id=options.directory / "dcp")
    fresh = make_loader(options, options.batch_size // 2)
    dcp.load({"step": torch.tensor(0), "loader": fresh}, checkpoint_id=options.directory / "dcp")
    consumed += [ids_of(batch) for batch in fresh]
    path = options.directory / f"consumed-{dist.get_rank()}.json"
    path.write_text(json.dumps({"consumed": consumed, "state": fresh.state_dict()}))
    dist.barrier()


def main() -> None:
    """Run under torchrun."""
    options = arguments()
    warnings.filterwarnings("error", category=UserWarning, module="tdstream")
    dist.init_process_group("gloo")
    loader = make_loader(options, options.batch_size)
    if options.distributed_checkpoint:
        through_distributed_checkpoint(options, loader)
    else:
        train(options, loader)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
