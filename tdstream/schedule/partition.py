"""The partition of an epoch's positions among ranks and workers: pure arithmetic.

A *stream* is one worker of one rank, or the whole rank if it has no workers. Its items are batches
(BatchPartition) or samples (SamplePartition), numbered 0, 1, 2, ...

    8 samples, 2 ranks, 2 workers each, batches of 2         the same without batches

    position   0 1 2 3 4 5 6 7                               position   0 1 2 3 4 5 6 7
    rank       0 0 1 1 0 0 1 1                               rank       0 0 1 1 0 0 1 1
    worker     0 0 0 0 1 1 1 1                               worker     0 1 0 1 0 1 0 1
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tdstream.distributed.topology import Topology, Worker


class EpochLengths(Protocol):
    """The lengths of epochs."""

    def num_samples(self, epoch: int) -> int:
        """Return N, the positions of an epoch."""

    def next_change(self, epoch: int) -> int | None:
        """Return the first epoch after this one whose length may differ; None if there is none."""

    def fills_from(self, epoch: int) -> int:
        """Return the position from which an epoch's incomplete last batch is filled."""


class EqualEpochs:
    """The epoch lengths of an object whose epochs all have len(self) samples."""

    def num_samples(self: Sized, epoch: int) -> int:  # noqa: ARG002
        """Return len(self)."""
        return len(self)

    def next_change(self, epoch: int) -> int | None:  # noqa: ARG002
        """Return None: all epochs have one length."""
        return None

    def fills_from(self, epoch: int) -> int:  # noqa: ARG002
        """Return 0: an epoch's last batch is filled from its beginning."""
        return 0


@dataclass(frozen=True, slots=True)
class SameLength(EqualEpochs):
    """Epochs of one length."""

    samples: int

    def __len__(self) -> int:
        return self.samples


def global_batches(samples: int, global_batch: int, *, wrap: bool) -> int:
    """Count the global batches of some samples; with wrap, an incomplete one counts."""
    samples = max(samples, 0)
    return -(-samples // global_batch) if wrap else samples // global_batch


def serves_rest(tail: str | None) -> bool:
    """Return whether a tail serves an epoch's incomplete last global batch: "wrap" and "keep" do."""
    return tail in ("wrap", "keep")


def deal(samples: int, ranks: int) -> list[range]:
    """Return the samples of each rank if some are dealt out evenly: 5 to 3 ranks are 0-1, 2-3 and 4."""
    bounds = [-(-samples * rank // ranks) for rank in range(ranks + 1)]
    return [range(first, last) for first, last in pairwise(bounds)]


def folded(positions: NDArray[np.int64], samples: int, fills_from: int) -> NDArray[np.int64]:
    """Return positions of any shape, with those after the epoch's end folded back into it.

    With 10 samples and fills_from = 7, positions 9 10 11 12 13 become 9 7 8 9 7.
    """
    beyond = (positions - samples) % (samples - fills_from)
    return np.where(positions < samples, positions, fills_from + beyond)


def advance(
    lengths: EpochLengths, place: tuple[int, int], steps: int, global_batch: int, *, wrap: bool
) -> tuple[int, int]:
    """Return the (epoch, position) that is `steps` global batches after a place.

    The end of an epoch is the start of the next one; if no later epoch has a batch, the result is the end of
    the last epoch that has one.
    """
    epoch, position = place
    here = global_batches(lengths.num_samples(epoch) - position, global_batch, wrap=wrap)
    if steps < here:
        return epoch, position + steps * global_batch
    end = (epoch, position + here * global_batch)
    epoch, steps = epoch + 1, steps - here
    while True:
        whole = global_batches(lengths.num_samples(epoch), global_batch, wrap=wrap)
        change = lengths.next_change(epoch)
        fits = steps // whole if whole else None
        if fits is not None and (change is None or fits < change - epoch):
            return epoch + fits, (steps - fits * whole) * global_batch
        if change is None:
            return end
        if whole:
            steps, end = steps - (change - epoch) * whole, (change - 1, whole * global_batch)
        epoch = change


def batches_before(lengths: EpochLengths, epoch: int, global_batch: int, *, wrap: bool) -> int:
    """Count the global batches of all epochs before one."""
    total, first = 0, 0
    while first < epoch:
        change = lengths.next_change(first)
        last = epoch if change is None else min(change, epoch)
        total += (last - first) * global_batches(lengths.num_samples(first), global_batch, wrap=wrap)
        first = last
    return total


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPartition:
    """Whole batches: global batch t is the G = batch_size * dp_world_size positions from start + t G.

    Rank r takes batch_size of them, from the (r * batch_size)-th on. Worker w of W builds its rank's batches
    w, w + W, ..., since a loader takes its workers in turn. So a global batch depends on G alone.
    """

    num_samples: int
    """Positions of the epoch."""
    batch_size: int
    """Samples per rank and step."""
    topology: Topology
    worker: Worker
    start: int = 0
    """The position at which this geometry began."""
    wrap: bool = False
    """Whether the last incomplete global batch is filled instead of left out."""
    fills_from: int = 0
    """The position from which it is filled."""
    keep: bool = False
    """Whether it is dealt out as a smaller batch, of equally many rows on all ranks, instead of left out."""

    @property
    def global_batch(self) -> int:
        """Samples of one step over all ranks."""
        return self.batch_size * self.topology.dp_world_size

    @property
    def items_per_rank(self) -> int:
        """Batches of each rank from start to the epoch's end; the same on all ranks."""
        samples = self.num_samples - self.start
        return global_batches(samples, self.global_batch, wrap=self.wrap or self.keep)

    @property
    def num_items(self) -> int:
        """Batches of this stream."""
        return max(-(-(self.items_per_rank - self.worker.id) // self.worker.count), 0)

    @property
    def ends_epoch(self) -> bool:
        """Whether this stream has its rank's last batch; with no batch at all, stream 0 does."""
        return max(self.items_per_rank - 1, 0) % self.worker.count == self.worker.id

    @property
    def short_item(self) -> int | None:
        """The item of this stream that is smaller than batch_size, always its last one; None without one."""
        incomplete = self.keep and self.items_per_rank and self._last_samples < self.global_batch
        return self.num_items - 1 if incomplete and self.ends_epoch else None

    def short_positions(self) -> tuple[NDArray[np.int64], int]:
        """Return the positions of the short item, int64 [1, rows], and how many of them are fillers, 0 or 1.

        A rank whose share is a row too small gets a filler, the epoch's last sample once more. 10 samples in
        global batches of 4 x 2 leave 8 and 9, one for each of two ranks. With three ranks of 4, positions 0-9
        are one incomplete batch: 0-3, 4-6 with the filler 9, and 7-9 with the filler 9.
        """
        shares = deal(self._last_samples, self.topology.dp_world_size)
        own = shares[self.topology.dp_rank]
        fillers = len(shares[0]) - len(own)
        first = self.num_samples - self._last_samples
        rows = [*(first + number for number in own), *[self.num_samples - 1] * fillers]
        return np.array([rows], np.int64), fillers

    @property
    def _last_samples(self) -> int:
        """Samples of the last global batch, 1 to global_batch."""
        return (self.num_samples - self.start - 1) % self.global_batch + 1

    def positions(self, first: int, count: int) -> NDArray[np.int64]:
        """Return the positions of items first .. first + count - 1, int64 [count, batch_size]."""
        steps = self.worker.id + (first + np.arange(count, dtype=np.int64)) * self.worker.count  # [count]
        starts = self.start + steps * self.global_batch + self.topology.dp_rank * self.batch_size
        positions = starts[:, None] + np.arange(self.batch_size)
        return folded(positions, self.num_samples, self.fills_from) if self.wrap else positions


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplePartition:
    """Single samples: stream s = rank * W + worker of S = dp_world_size * W takes start + s, + S, + 2 S, ...

    This is the reference loader's rule. With even=True and several ranks, an incomplete last round of S is
    dropped (unless it is the only one), so that all ranks have the same number of samples.
    """

    num_samples: int
    """Positions of the epoch."""
    topology: Topology
    worker: Worker
    start: int = 0
    """Positions left out at the beginning of the epoch."""
    even: bool = True

    @property
    def num_streams(self) -> int:
        """Streams of all ranks together, S."""
        return self.topology.dp_world_size * self.worker.count

    def _stream(self, worker_id: int) -> int:
        return self.topology.dp_rank * self.worker.count + worker_id

    def _items(self, worker_id: int) -> int:
        left = max(self.num_samples - self.start, 0)  # samples of all streams together
        if self.even and self.topology.dp_world_size > 1 and left >= self.num_streams:
            left -= left % self.num_streams
        return max(-(-(left - self._stream(worker_id)) // self.num_streams), 0)

    @property
    def num_items(self) -> int:
        """Samples of this stream."""
        return self._items(self.worker.id)

    @property
    def ends_epoch(self) -> bool:
        """Whether this stream has its rank's last sample; with no sample at all, stream 0 does."""
        most = self._items(0)  # the first streams of a rank have the most samples, the others one fewer
        last = [worker_id for worker_id in range(self.worker.count) if self._items(worker_id) == most]
        return self.worker.id == (last[-1] if most else 0)

    def positions(self, first: int, count: int) -> NDArray[np.int64]:
        """Return the positions of items first .. first + count - 1, int64 [count, 1]."""
        steps = (first + np.arange(count, dtype=np.int64)) * self.num_streams  # [count]
        return (self.start + self._stream(self.worker.id) + steps)[:, None]
