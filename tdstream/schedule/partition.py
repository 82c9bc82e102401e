"""Deal the positions of an epoch out to ranks and workers: pure arithmetic, nothing is remembered.

A *stream* is what one process hands out: one worker of one rank, or a whole rank without workers. Its items
are numbered 0, 1, 2, ...; an item is a batch (BatchPartition) or a sample (SamplePartition).

    8 samples, 2 ranks, 2 workers each, batches of 2         the same without batches

    position   0 1 2 3 4 5 6 7                               position   0 1 2 3 4 5 6 7
    rank       0 0 1 1 0 0 1 1                               rank       0 0 1 1 0 0 1 1
    worker     0 0 0 0 1 1 1 1                               worker     0 1 0 1 0 1 0 1
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tdstream.distributed.topology import Topology, Worker


class EpochLengths(Protocol):
    """Says how long epochs are."""

    def num_samples(self, epoch: int) -> int:
        """Return N, the positions of an epoch."""

    def next_change(self, epoch: int) -> int | None:
        """Return the first epoch after this one that may have another length; None if none has."""

    def fills_from(self, epoch: int) -> int:
        """Return the position whose sample is the first that fills an epoch's incomplete last batch."""


@dataclass(frozen=True, slots=True)
class SameLength:
    """All epochs have as many samples."""

    samples: int

    def num_samples(self, epoch: int) -> int:  # noqa: ARG002
        """Return the samples of any epoch."""
        return self.samples

    def next_change(self, epoch: int) -> int | None:  # noqa: ARG002
        """Return None."""
        return None

    def fills_from(self, epoch: int) -> int:  # noqa: ARG002
        """Return 0: an epoch is filled from its beginning."""
        return 0


def as_lengths(num_samples: int | EpochLengths) -> EpochLengths:
    """Return the lengths of epochs that have all the same number of samples, or lengths as they are."""
    return SameLength(num_samples) if isinstance(num_samples, int) else num_samples


def global_batches(samples: int, global_batch: int, *, wrap: bool) -> int:
    """Return how many global batches so many samples give: whole ones, and with wrap one for the rest."""
    samples = max(samples, 0)
    return -(-samples // global_batch) if wrap else samples // global_batch


def folded(positions: NDArray[np.int64], samples: int, fills_from: int) -> NDArray[np.int64]:
    """Return the positions of an epoch that positions, also behind its end, stand for.

    Args:
        positions: At least 0, any shape.
        samples: The epoch's.
        fills_from: Where the samples begin that stand behind the end, again and again.
    """
    behind = (positions - samples) % (samples - fills_from)
    return np.where(positions < samples, positions, fills_from + behind)


def advance(
    lengths: EpochLengths, place: tuple[int, int], steps: int, global_batch: int, *, wrap: bool
) -> tuple[int, int]:
    """Return the epoch and position that lie a number of global batches behind a place.

    At an epoch's end that is the beginning of the next one. Where no later epoch has a batch at all, there
    is nowhere to go, and it is the end of the last one that has.

    Args:
        lengths: The epochs' lengths.
        place: The epoch and position.
        steps: Global batches.
        global_batch: G, samples of one.
        wrap: Whether an epoch's last incomplete one counts.
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
    """Return the global batches of all epochs before one."""
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

    Rank r takes batch_size of them from r * batch_size; worker w of W builds batches w, w + W, ... of its
    rank, as a loader asks its workers in turn. So what a global batch holds depends on G alone.
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
    """Whether the last incomplete global batch is filled, not left out."""
    fills_from: int = 0
    """The position whose sample is the first to fill it; others follow."""

    @property
    def global_batch(self) -> int:
        """Samples of one step over all ranks."""
        return self.batch_size * self.topology.dp_world_size

    @property
    def items_per_rank(self) -> int:
        """Batches that each rank hands out from start to the epoch's end; the same on all ranks."""
        left = max(self.num_samples - self.start, 0)
        return -(-left // self.global_batch) if self.wrap else left // self.global_batch

    @property
    def num_items(self) -> int:
        """Batches of this stream."""
        return max(-(-(self.items_per_rank - self.worker.id) // self.worker.count), 0)

    @property
    def ends_epoch(self) -> bool:
        """Whether this stream hands out its rank's last batch, or is stream 0 of a rank that has none."""
        return max(self.items_per_rank - 1, 0) % self.worker.count == self.worker.id

    def positions(self, first: int, count: int) -> NDArray[np.int64]:
        """Return the positions of items first .. first + count - 1, int64 [count, batch_size]."""
        steps = self.worker.id + (first + np.arange(count, dtype=np.int64)) * self.worker.count  # [count]
        starts = self.start + steps * self.global_batch + self.topology.dp_rank * self.batch_size
        positions = starts[:, None] + np.arange(self.batch_size)
        return folded(positions, self.num_samples, self.fills_from) if self.wrap else positions


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplePartition:
    """Single samples: stream s = rank * W + worker of S = dp_world_size * W takes start + s, + S, + 2 S, ...

    The reference loader's rule. With even=True the last incomplete round of S is left out where there are
    several ranks (and at least one whole round), so that all ranks hand out the same number.
    """

    num_samples: int
    """Positions of the epoch."""
    topology: Topology
    worker: Worker
    start: int = 0
    """Positions that are left out at the beginning of the epoch."""
    even: bool = True

    @property
    def num_streams(self) -> int:
        """Streams of all ranks together, S."""
        return self.topology.dp_world_size * self.worker.count

    @property
    def _dealt(self) -> int:
        """Samples that are dealt out, over all streams."""
        left = max(self.num_samples - self.start, 0)
        several = self.even and self.topology.dp_world_size > 1 and left >= self.num_streams
        return left - left % self.num_streams if several else left

    def _stream(self, worker_id: int) -> int:
        return self.topology.dp_rank * self.worker.count + worker_id

    def _items(self, worker_id: int) -> int:
        return max(-(-(self._dealt - self._stream(worker_id)) // self.num_streams), 0)

    @property
    def num_items(self) -> int:
        """Samples of this stream."""
        return self._items(self.worker.id)

    @property
    def ends_epoch(self) -> bool:
        """Whether this stream hands out its rank's last sample, or is stream 0 of a rank that has none."""
        most = self._items(0)  # the first streams of a rank have the most samples, the others one less
        last = [worker_id for worker_id in range(self.worker.count) if self._items(worker_id) == most]
        return self.worker.id == (last[-1] if most else 0)

    def positions(self, first: int, count: int) -> NDArray[np.int64]:
        """Return the positions of items first .. first + count - 1, int64 [count, 1]."""
        steps = (first + np.arange(count, dtype=np.int64)) * self.num_streams  # [count]
        return (self.start + self._stream(self.worker.id) + steps)[:, None]
