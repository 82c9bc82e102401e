"""Reading from the disk: does advice to the kernel about the next batches help?

    python benchmarks/cold.py [--quick] [--dir ON_THE_DISK_TO_MEASURE]

Each run drops the corpus from the page cache (posix_fadvise, DONTNEED), then reads batches of B=8, T=2048
in one process. Elapsed time, in alternating runs. The advice is a prototype in this file:

none            what tdstream does: no advice
ahead           madvise(WILLNEED) on the ranges of the batch that comes 16 batches later
random          madvise(RANDOM) on each shard: the kernel reads what is asked for, not the pages around it
random, ahead   both
sequential      madvise(SEQUENTIAL) on each shard; unshuffled only

"sparse" reads few of the corpus's samples, as in the first minutes of a large corpus; "whole" reads them all,
as in an epoch of a corpus that fits in memory.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measuring import alternate, corpus, options, table
from numpy.typing import NDArray

import tdstream

BATCH_SIZE, SEQ_LEN, AHEAD = 8, 2048, 16
ADVICE = {
    "none": (None, False),
    "ahead": (None, True),
    "random": (mmap.MADV_RANDOM, False),
    "random, ahead": (mmap.MADV_RANDOM, True),
    "sequential": (mmap.MADV_SEQUENTIAL, False),
}


class Advising:
    """The ordered samples of a pipeline, with advice to the kernel.

    Args:
        upstream: The pipeline's own ordered samples.
        advice: Given for each shard at its first read; None for none.
        ahead: Whether to announce the batch that comes AHEAD batches later.
    """

    def __init__(self, upstream: Any, advice: int | None, ahead: bool) -> None:
        self.upstream, self.advice, self.ahead = upstream, advice, ahead
        self.reader, self.advised = upstream.upstream, set[int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.upstream, name)

    def __len__(self) -> int:
        """Samples of an epoch."""
        return len(self.upstream)

    def plan(self, indices: NDArray[np.int64], bounds: Sequence[int]) -> AdvisedPlan:
        """Return a plan that gives advice before each read."""
        return AdvisedPlan(self, self.upstream.plan(indices, bounds), indices, bounds)

    def advise_shards(self, indices: NDArray[np.int64]) -> None:
        """Give the advice for shards that are read for the first time."""
        for shard in self._shards(indices) if self.advice is not None else ():
            if shard not in self.advised:
                self.advised.add(shard)
                self._map(shard).madvise(self.advice)

    def announce(self, indices: NDArray[np.int64]) -> None:
        """Announce the ranges of samples."""
        for index, shard in zip(indices.tolist(), self._shards(indices), strict=True):
            first = 2 * (index * self.reader.stride - self.reader.stream.offsets[shard])
            start = first // mmap.PAGESIZE * mmap.PAGESIZE
            tokens = self._map(shard)
            end = min(first + 2 * SEQ_LEN + 2, len(tokens))
            tokens.madvise(mmap.MADV_WILLNEED, start, end - start)

    def _shards(self, indices: NDArray[np.int64]) -> list[int]:
        return [self.reader.stream.find_shard(start) for start in (indices * self.reader.stride).tolist()]

    def _map(self, shard: int) -> mmap.mmap:
        return self.reader.stream.map(shard).base._mmap


class AdvisedPlan:
    """A plan whose reads are announced AHEAD batches before."""

    def __init__(
        self, advising: Advising, plan: Any, indices: NDArray[np.int64], bounds: Sequence[int]
    ) -> None:
        self.advising, self.plan, self.indices, self.bounds = advising, plan, indices, bounds

    def read(self, item: int) -> Any:
        """Give advice, then read a batch."""
        if self.advising.ahead:
            last = len(self.bounds) - 2
            for later in range(item + (AHEAD if item else 0), min(item + AHEAD, last) + 1):
                self.advising.announce(self._indices(later))
        self.advising.advise_shards(self._indices(item))
        return self.plan.read(item)

    def _indices(self, item: int) -> NDArray[np.int64]:
        return self.indices[self.bounds[item] : self.bounds[item + 1]]


def tokens_per_s(directory: Path, advice: str, batches: int, shuffle: bool | str) -> float:
    """Return the speed of the first batches after dropping the corpus."""
    for shard in directory.glob("*.bin"):
        descriptor = os.open(shard, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    pipeline = tdstream.build(directory, seq_len=SEQ_LEN, batch_size=BATCH_SIZE, shuffle=shuffle)
    pipeline.splitter.upstream = Advising(pipeline.splitter.upstream, *ADVICE[advice])
    begin = time.perf_counter()
    for number, _ in enumerate(pipeline, start=1):
        if number == batches:
            break
    return number * BATCH_SIZE * SEQ_LEN / (time.perf_counter() - begin)


def compare(title: str, runs: dict[str, Callable[[], float]], rounds: int) -> None:
    """Measure and print; the first variant is the base of the comparison."""
    table(title, alternate(runs, rounds), "Mtok/s", [next(iter(runs))], 1e-6)


def main() -> None:
    """Measure and print."""
    flags = options(__doc__)
    rounds, tokens = 5, 64_000_000 if flags.quick else 256_000_000
    whole = tokens // (BATCH_SIZE * (SEQ_LEN + 1)) - 1
    with corpus(tokens, shards=16, place=flags.dir) as directory:
        run = partial(tokens_per_s, directory)
        told = ("none", "ahead", "random", "random, ahead")
        for batches, name in ((whole // 20, "sparse"), (whole, "whole")):
            runs = {advice: partial(run, advice, batches, True) for advice in told}
            compare(f"shuffled, {name}", runs, rounds)
        runs = {advice: partial(run, advice, whole, False) for advice in ("none", "ahead", "sequential")}
        compare("in order, whole", runs, rounds)
        for batches, name in ((whole // 20, "sparse"), (whole, "whole")):
            kinds = {"shuffle=True": True, 'shuffle="block"': "block", "shuffle=False": False}
            runs = {kind: partial(run, "none", batches, shuffle) for kind, shuffle in kinds.items()}
            compare(f"orders, {name}", runs, rounds)


if __name__ == "__main__":
    main()
