"""A shuffle buffer that a few numbers describe: each sample leaves at a time drawn for it in advance.

A classic buffer of n (full; one drawn at random leaves, the next one takes its place) keeps a sample for any
length of time, so its content would have to be saved, or all of the text read again. Here the draw is made
when a sample comes in: with u uniform in [0, 1), a sample of record r is due when record r + u * n comes in
(n less two blocks, since records come in blocks). Nothing leaves before n records have come in; what is due
by then leaves first, in a random order. A source of at most n records has ended by then: it is shuffled
whole.

So a sample of record r has left before record r + n comes in: reading the last n records again restores the
buffer. u is a function of (seed, epoch, stream, sample); there is no generator to save.

    n = 4, blocks of 1, so u spreads over 4 - 2 = 2 records; one sample per record
    record   0     1     2     3     4     5
    u        0.9   0.2   0.6   0.1   0.5   0.7
    due      1.8   1.4   3.2   3.2   5.0   6.4    0 to 3 are due before record 4 comes in: they leave first,
                                                  in an order drawn for them; then 4 and 5
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np

from tdstream.core.checks import check_int
from tdstream.core.state import IdentityState
from tdstream.schedule.order import round_keys, uniform_32
from tdstream.streams.cut import Sample
from tdstream.text.records import MOST_RECORDS

Due = tuple[int, int]
"""When a sample leaves, in 2^-32 records, and its number; below 0 where a source was shuffled whole."""
NEVER_SERVED: Due = (-(2**34), -1)
_WHOLE = 2**33


class ShuffleBuffer(IdentityState):
    """The samples of at most n documents, shuffled; the order is a function of seed, epoch and stream.

    n = 0 keeps the order.
    """

    name = "shuffle"
    block_records: int
    """Records that are best read together: few compared with n, many for the tokenizer."""

    def __init__(self, num_documents: int, seed: int) -> None:
        self.num_documents = check_int("shuffle_buffer", num_documents, at_least=0)
        self.seed = check_int("seed", seed, at_least=0)
        self.block_records = (
            min(max(self.num_documents // 8, 1), MOST_RECORDS) if num_documents else MOST_RECORDS
        )
        # What is read again begins and ends with a whole block, and is n records at most.
        self._full = self.num_documents - self.num_documents % self.block_records
        self._spread = max(self.num_documents - 2 * self.block_records, 1)

    def __repr__(self) -> str:
        return f"ShuffleBuffer({self.num_documents:,} documents, seed={self.seed})"

    def begin(self, epoch: int, stream: int, served: Due) -> WaitingSamples:
        """Return an empty buffer for a pass that has served all samples up to a time."""
        return WaitingSamples(self._full, self._spread, (self.seed, epoch, stream), served)

    def state_dict(self) -> dict[str, Any]:
        """Return what decides the order; the seed is 0 where it does not."""
        return {
            "num_documents": self.num_documents,
            "seed": self.seed if self.num_documents else 0,
            "version": 1,
        }


class WaitingSamples:
    """The buffered samples of a pass, the next one first."""

    def __init__(self, full: int, spread: int, keys: tuple[int, int, int], served: Due) -> None:
        self._full, self._spread, self._served = full, spread, served
        seed, epoch, stream = keys
        self._keys = round_keys(f"buffer {stream}", seed, epoch)
        self._heap: list[tuple[int, int, Sample]] = []
        self._ended = False

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, samples: Sequence[Sample]) -> None:
        """Add samples; those that were served before are dropped at once."""
        for due, sample in zip(self._compute_due(samples), samples, strict=True):
            self._put(due, sample)

    def next(self, num_records: int) -> tuple[Due, Sample] | None:
        """Remove and return the next sample, with its time, if it is due after so many records."""
        come_in = 0 if num_records < self._full else num_records
        if not self._heap or not (self._ended or self._heap[0][0] < come_in << 32):
            return None  # a sample still to come may be due earlier
        due, number, sample = heapq.heappop(self._heap)
        return (due, number), sample

    def end(self, num_records: int) -> None:
        """Note that the source has ended, after so many records."""
        self._ended = True
        if num_records < self._full:
            samples = [sample for _, _, sample in self._heap]
            self._heap = []
            for u, sample in zip(self._draw(samples, 1), samples, strict=True):
                self._put(u - _WHOLE, sample)

    def _put(self, due: int, sample: Sample) -> None:
        if (due, sample.number) > self._served:
            heapq.heappush(self._heap, (due, sample.number, sample))
        else:
            sample.block.waiting -= 1

    def _compute_due(self, samples: Sequence[Sample]) -> list[int]:
        full, dues = self._full << 32, []
        for sample, u, other in zip(samples, self._draw(samples, 0), self._draw(samples, 1), strict=True):
            due = (sample.record << 32) + u * self._spread
            dues.append(due if due >= full else full - 2**32 + other)
        return dues

    def _draw(self, samples: Sequence[Sample], which: int) -> list[int]:
        """Return u of each sample, times 2^32; there are two independent ones, 0 and 1."""
        if not self._full:
            return [0] * len(samples)
        numbers = np.array([sample.number for sample in samples], np.uint64)
        drawn: list[int] = uniform_32(numbers, self._keys[which]).tolist()
        return drawn
