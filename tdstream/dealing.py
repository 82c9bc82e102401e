"""Deal the positions of an epoch out to ranks and workers: pure arithmetic, nothing is remembered.

A *stream* is what one process hands out: one worker of one rank, or a whole rank without workers. Its items
are numbered 0, 1, 2, ...; an item is a batch (BatchDealing) or a sample (SampleDealing).

    8 samples, 2 ranks, 2 workers each, batches of 2         the same without batches

    position   0 1 2 3 4 5 6 7                               position   0 1 2 3 4 5 6 7
    rank       0 0 1 1 0 0 1 1                               rank       0 0 1 1 0 0 1 1
    worker     0 0 0 0 1 1 1 1                               worker     0 1 0 1 0 1 0 1
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tdstream.lengths import folded
from tdstream.topology import Topology, Worker


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchDealing:
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
class SampleDealing:
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
