"""Reading with 1, 2 and 4 workers: tdstream against a plain loader and the transfer of two tensors.

    python benchmarks/workers.py [--quick]

Alternating runs, shuffled, from a warm page cache, for B=8, T=2048: tokens per second of elapsed time, and
per second of CPU time of the process and its workers together, which other programs disturb less.

loader          tdstream.loader(..., num_workers=W): a batch travels as the bytes of its stored rows
SDL             StatefulDataLoader(tdstream.build(...), num_workers=W): the same, with its snapshots
two tensors     the same batches, converted to two int64 tensors in the worker, sent through shared memory
plain           a DataLoader over a dataset of samples, which it stacks: also two int64 tensors
loader, W=0     tdstream.loader without workers, for comparison

Targets: loader and SDL / plain at least 5, / two tensors at least 4.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from measuring import Clock, PlainReference, alternate, corpus, endless, options, rate, table
from torch.utils.data import DataLoader, IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream

BATCH_SIZE, SEQ_LEN = 8, 2048


class TwoTensors(IterableDataset[Any]):
    """The batches of a pipeline as plain dicts of tensors, made in the worker."""

    def __init__(self, pipeline: IterableDataset[Any]) -> None:
        self.pipeline = pipeline

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of one epoch."""
        return (dict(batch.items()) for batch in self.pipeline)


def variants(directory: Path, workers: int) -> dict[str, Callable[[], Any]]:
    """Return a function for each variant that opens it."""
    settings: dict[str, Any] = {"batch_size": BATCH_SIZE, "seq_len": SEQ_LEN, "shuffle": True}
    build = partial(tdstream.build, directory, **settings)
    return {
        "loader": partial(tdstream.loader, directory, num_workers=workers, **settings),
        "SDL": lambda: StatefulDataLoader(build(), num_workers=workers),
        "two tensors": lambda: DataLoader(TwoTensors(build()), batch_size=None, num_workers=workers),
        "plain": lambda: DataLoader(
            PlainReference(directory, SEQ_LEN), batch_size=BATCH_SIZE, num_workers=workers
        ),
        "loader, W=0": partial(tdstream.loader, directory, **settings),
    }


def family_time() -> float:
    """Return the CPU time of this process and its workers so far."""
    me = os.getpid()
    children = Path(f"/proc/{me}/task/{me}/children").read_text().split()
    fields = [Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split() for child in children]
    return time.process_time() + sum(int(f[11]) + int(f[12]) for f in fields) / os.sysconf("SC_CLK_TCK")


def measured(open_: Callable[[], Any], clock: Clock, seconds: float) -> float:
    """Return batches per second of a clock."""
    return rate(endless(open_), seconds=seconds, clock=clock)


def main() -> None:
    """Measure and print."""
    flags = options(__doc__)
    seconds, rounds = (0.3, 5) if flags.quick else (0.8, 7)
    scale = BATCH_SIZE * SEQ_LEN / 1e6
    with corpus(256_000_000, shards=16, place=flags.dir) as directory:
        for workers in (1, 2, 4):
            for clock, unit in ((time.perf_counter, "Mtok/s"), (family_time, "Mtok/cpu-s")):
                runs = {
                    name: partial(measured, open_, clock, seconds)
                    for name, open_ in variants(directory, workers).items()
                }
                title, bases = f"W={workers}", ("plain", "two tensors", "loader, W=0")
                table(title, alternate(runs, rounds), unit, bases, scale)


if __name__ == "__main__":
    main()
