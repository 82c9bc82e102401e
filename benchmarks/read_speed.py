"""Reading in one process, shuffled, from a warm page cache: tdstream against numpy and a plain loader.

    python benchmarks/read_speed.py [--quick]

CPU time, in alternating runs, for B=8, T=2048 and B=64, T=1024, with one shard and with 16.

gather          by hand: for each row of a batch, a slice of the mapped file cast into fresh int64 arrays
gather, whole   by hand, the fastest known: numpy gathers all rows in one call, then casts; one shard only
loader          tdstream.loader(...)
pipeline        tdstream.build(...), iterated
SDL             StatefulDataLoader(tdstream.build(...))
SDL, gather     StatefulDataLoader over the batches of "gather": the cost of its own bookkeeping
plain           a DataLoader over a dataset of samples: np.memmap, one slice and one cast each

Targets: loader / gather at least 0.80, loader / plain at least 4.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import PlainReference, alternate, corpus, endless, options, rate, table
from numpy.typing import NDArray
from torch.utils.data import DataLoader, IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream

Shards = list[NDArray[np.uint16]]


def gather(shards: Shards, batch_size: int, seq_len: int) -> Iterator[dict[str, torch.Tensor]]:
    """Yield batches, row by row."""
    length = seq_len + 1
    samples = [(tokens, n * length) for tokens in shards for n in range(len(tokens) // length)]
    order = np.random.default_rng(1).permutation(len(samples)).tolist()
    for first in itertools.cycle(range(0, len(order) - batch_size, batch_size)):
        inputs = np.empty((batch_size, seq_len), np.int64)
        labels = np.empty((batch_size, seq_len), np.int64)
        for row, number in enumerate(order[first : first + batch_size]):
            tokens, start = samples[number]
            inputs[row] = tokens[start : start + seq_len]
            labels[row] = tokens[start + 1 : start + length]
        yield {"input_ids": torch.from_numpy(inputs), "labels": torch.from_numpy(labels)}


def gather_whole(shards: Shards, batch_size: int, seq_len: int) -> Iterator[dict[str, torch.Tensor]]:
    """Yield batches, all rows in one call."""
    (tokens,), length = shards, seq_len + 1
    samples = tokens[: len(tokens) // length * length].reshape(-1, length)
    order = np.random.default_rng(1).permutation(len(samples))
    for first in itertools.cycle(range(0, len(order) - batch_size, batch_size)):
        rows = samples[order[first : first + batch_size]]
        inputs, labels = rows[:, :-1].astype(np.int64), rows[:, 1:].astype(np.int64)
        yield {"input_ids": torch.from_numpy(inputs), "labels": torch.from_numpy(labels)}


class Gathered(IterableDataset[Any]):
    """The batches of `gather`, as a dataset."""

    def __init__(self, *settings: Any) -> None:
        self.settings = settings

    def __iter__(self) -> Iterator[Any]:
        """Yield batches forever."""
        return gather(*self.settings)


def opened(directory: Path) -> Shards:
    """Return the shards, newly mapped."""
    chunks = json.loads((directory / "meta.json").read_text())["chunks"]
    return [np.asarray(np.memmap(directory / chunk["file"], dtype="<u2", mode="r")) for chunk in chunks]


def variants(directory: Path, batch_size: int, seq_len: int) -> dict[str, Callable[[], Any]]:
    """Return a function for each variant that opens it."""
    settings = {"batch_size": batch_size, "seq_len": seq_len}
    build = partial(tdstream.build, directory, shuffle=True, **settings)
    shards = opened(directory)
    whole = {"gather, whole": lambda: gather_whole(shards, batch_size, seq_len)} if len(shards) == 1 else {}
    return {
        "gather": lambda: gather(shards, batch_size, seq_len),
        **whole,
        "loader": partial(tdstream.loader, directory, shuffle=True, **settings),
        "pipeline": build,
        "SDL": lambda: StatefulDataLoader(build()),
        "SDL, gather": lambda: StatefulDataLoader(Gathered(shards, batch_size, seq_len), batch_size=None),
        "plain": lambda: DataLoader(PlainReference(directory, seq_len), batch_size=batch_size),
    }


def main() -> None:
    """Measure and print."""
    flags = options(__doc__)
    rounds = 11 if flags.quick else 41
    for shards in (1, 16):
        with corpus(64_000_000, shards=shards, place=flags.dir) as directory:
            for batch_size, seq_len in ((8, 2048), (64, 1024)):
                runs = {
                    name: partial(rate, endless(open_), seconds=0.05, clock=time.process_time)
                    for name, open_ in variants(directory, batch_size, seq_len).items()
                }  # each continues where it was, so that the pages of the corpus are mapped once
                title = f"B={batch_size}, T={seq_len}, shards: {shards}"
                bases = [base for base in ("gather", "gather, whole", "SDL, gather", "plain") if base in runs]
                table(title, alternate(runs, rounds), "Mtok/s", bases, batch_size * seq_len / 1e6)


if __name__ == "__main__":
    main()
