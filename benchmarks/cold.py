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
from collections.abc import Callable
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
    """The ordered samples of a pipeline, which tells the kernel of those that come later.

    Args:
        upstream: The pipeline's own.
        advice: What each shard's map is told once.
        ahead: Whether the kernel is told of the batch that comes AHEAD batches later.
    """

    def __init__(self, upstream: Any, advice: int | None, ahead: bool) -> None:
        self.upstream, self.advice, self.ahead = upstream, advice, ahead
        self.reader, self.advised, self.next = upstream.upstream, set[int](), 0

    def __len__(self) -> int:
        """Samples of an epoch."""
        return len(self.upstream)

    def indices(self, positions: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Remember which batches come."""
        self.coming, self.next = self.upstream.indices(positions, epoch), 0
        return self.coming

    def read(self, indices: NDArray[np.int64]) -> NDArray[np.uint16]:
        """Tell the kernel, then read."""
        if self.ahead:
            first = AHEAD if self.next else 0
            for later in self.coming[self.next + first : self.next + AHEAD + 1]:
                self._tell(later)
        self.next += 1
        for shard in self._shards(indices) if self.advice is not None else ():
            if shard not in self.advised:
                self.advised.add(shard)
                self._map(shard).madvise(self.advice)
        return self.reader.read(indices)

    def _shards(self, indices: NDArray[np.int64]) -> list[int]:
        starts = indices * self.reader.stride
        return (np.searchsorted(self.reader.source.offsets, starts, "right") - 1).tolist()

    def _map(self, shard: int) -> mmap.mmap:
        return self.reader._maps.map(shard).base._mmap

    def _tell(self, indices: NDArray[np.int64]) -> None:
        for index, shard in zip(indices.tolist(), self._shards(indices), strict=True):
            first = 2 * (index * self.reader.stride - self.reader._maps.offsets[shard])
            start = first // mmap.PAGESIZE * mmap.PAGESIZE
            tokens = self._map(shard)
            end = min(first + 2 * SEQ_LEN + 2, len(tokens))
            tokens.madvise(mmap.MADV_WILLNEED, start, end - start)


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
