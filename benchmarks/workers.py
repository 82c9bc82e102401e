"""Read batches with 1, 2 and 4 worker processes: tdstream against a plain loader and a two-tensor hand-over.

    python benchmarks/workers.py [--quick]

Measured in elapsed time, in runs that alternate, shuffled, page cache warm, for B=8, T=2048.

loader          tdstream.loader(..., num_workers=W): a batch travels as the bytes of its stored rows
SDL             StatefulDataLoader(tdstream.build(...), num_workers=W): the same, with its snapshots
two tensors     the same batches, made into two int64 tensors in the worker, which travel in shared memory
plain           a DataLoader over a dataset of samples, which it stacks: two int64 tensors as well
loader, W=0     tdstream.loader without workers, to compare with

Targets: loader and SDL / plain at least 5, / two tensors at least 4.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from measuring import PlainReference, alternate, corpus, endless, options, rate, table
from torch.utils.data import DataLoader, IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream

BATCH_SIZE, SEQ_LEN = 8, 2048


class TwoTensors(IterableDataset[Any]):
    """The batches of a pipeline as plain dicts of tensors, made where they are read."""

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


def main() -> None:
    """Measure and print."""
    flags = options(__doc__)
    seconds, rounds = (0.3, 5) if flags.quick else (0.8, 7)
    with corpus(256_000_000, shards=16, place=flags.dir) as directory:
        for workers in (1, 2, 4):
            runs = {
                name: partial(
                    lambda open_: rate(endless(open_), seconds=seconds, clock=time.perf_counter), open_
                )
                for name, open_ in variants(directory, workers).items()
            }
            title = f"W={workers}, B={BATCH_SIZE}, T={SEQ_LEN}"
            results = alternate(runs, rounds)
            table(
                title, results, "Mtok/s", ("plain", "two tensors", "loader, W=0"), BATCH_SIZE * SEQ_LEN / 1e6
            )


if __name__ == "__main__":
    main()
