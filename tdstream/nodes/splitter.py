"""The share of one rank and worker in an order of samples; the only node with a position."""

from __future__ import annotations

import copy
import logging
from typing import Any

from tdstream.core.checks import check_int
from tdstream.core.errors import ConfigError, GeometryError, StateError
from tdstream.core.state import differences
from tdstream.core.state_schema import COUNT, read_fields
from tdstream.distributed.topology import Topology, Worker, resolve_topology
from tdstream.nodes.base import OrderedNode
from tdstream.nodes.rows import AnyRows, FilledRows, SourcedRows, SourceRows
from tdstream.schedule.partition import BatchPartition, SamplePartition, serves_rest

logger = logging.getLogger(__name__)

_PLANNED_SAMPLES = 4096  # planned at a time, since numpy is slow on small arrays
_GEOMETRY = ("batch_size", "dp_world_size", "num_workers", "tail", "skip")
_CURSOR = ("epoch", "start", "step")


class Splitter:
    """Divides an order of samples among ranks and workers, and keeps the place of this process.

    `begin` opens a pass and returns a splitter for it; then `read` and `advance` alternate, so that an item
    that could not be read or collated is read again, not lost.

    Args:
        upstream: The ordered samples.
        topology: This rank and the number of ranks; by default those of torch.distributed, else of RANK and
            WORLD_SIZE, else one rank.
        batch_size: Samples per rank and step; None serves single samples.
        tail: "drop" drops the incomplete last global batch of an epoch; "wrap" fills it from the epoch's
            beginning. With single samples, "drop" drops those that would make ranks unequal, and "keep"
            drops none (the reference loader's rule). With batches, "keep" deals the last samples out evenly
            as one smaller batch, of equally many rows on all ranks; a rank that has a row too few repeats the
            epoch's last sample, and FilledRows say so.
        skip: Positions to skip at the beginning of each epoch.
        strict: Whether to raise, not only log a warning, if an epoch leaves a stream empty.

    Raises:
        ConfigError: If an argument is out of range.
        GeometryError: If strict and there are fewer samples than one global batch, or than ranks.
    """

    name = "splitter"

    def __init__(
        self,
        upstream: OrderedNode,
        *,
        topology: Topology | None = None,
        batch_size: int | None = None,
        tail: str = "drop",
        skip: int = 0,
        strict: bool = True,
    ) -> None:
        if batch_size is not None:
            batch_size = check_int("batch_size", batch_size, at_least=1)
        allowed = ("drop", "keep") if batch_size is None else ("drop", "wrap", "keep")
        if tail not in allowed:
            raise ConfigError(f"tail must be one of {allowed} with batch_size={batch_size}, got {tail!r}.")
        skip = check_int("the number of samples to skip", skip, at_least=0)
        self.upstream, self.batch_size = upstream, batch_size
        self.topology = resolve_topology() if topology is None else topology
        self.tail, self.skip, self.strict = tail, skip, strict
        self._place(0, skip, Worker(0, 1, False))
        self._check_streams()

    def __repr__(self) -> str:
        what = f"batches of {self.batch_size}" if self.batch_size else "samples"
        rank = f"rank {self.topology.dp_rank} of {self.topology.dp_world_size}"
        return f"Splitter({rank}: {len(self):,} {what})"

    def __len__(self) -> int:
        """Items of this rank in this pass."""
        return self._count_items(self._partition)

    def items_in(self, epoch: int) -> int:
        """Count the items of this rank in an epoch: batches, or samples (exact with at most one worker)."""
        return self._count_items(self._make_partition(epoch, self.skip, Worker(0, 1, False)))

    def begin(self, epoch: int, worker: Worker, start: int = 0) -> Splitter:
        """Return a splitter for a worker's pass over an epoch, which begins at a position.

        If strict, raises GeometryError if this rank has more workers than there is work for.
        """
        opened = copy.copy(self)
        opened._place(epoch, max(start, self.skip), worker)
        if self.strict:
            opened._check_streams()
        return opened

    def read(self) -> AnyRows:
        """Return the next item's rows: [batch_size, seq_len + 1], or [1, seq_len + 1] for a single sample.

        With tail="keep" the epoch's last batch may have fewer rows.

        Raises StopIteration if this stream has nothing left in this epoch.
        """
        if self.exhausted:
            raise StopIteration
        if self.step not in self._planned:
            self._plan_next()
        rows: SourceRows | SourcedRows = self._plan.read(self.step - self._planned.start)
        return FilledRows(rows, self._fillers) if self._fillers else rows

    def advance(self) -> None:
        """Count the item as handed out; call this once nothing can fail any more."""
        self.step += 1

    @property
    def exhausted(self) -> bool:
        """Whether this stream has handed out all its items."""
        done: bool = self.step >= self._num_items
        return done

    @property
    def ends_epoch(self) -> bool:
        """Whether this stream has its rank's last item."""
        return self._partition.ends_epoch

    def state_dict(self) -> dict[str, Any]:
        """Return the geometry and the cursor: epoch, position where the geometry began, items handed out."""
        return {
            "batch_size": self.batch_size or 0,
            "dp_world_size": self.topology.dp_world_size,
            "num_workers": self._partition.worker.count,
            "tail": self.tail,
            "skip": self.skip,
            "epoch": self.epoch,
            "start": self._start,
            "step": self.step,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a saved place.

        Raises GeometryError if it was saved with other ranks, workers or batches, and StateError if the state
        holds no place; then nothing changes.
        """
        found = self.differences(state)
        if found:
            raise GeometryError(
                f"the state was saved under another geometry: {'; '.join(found)}. A place in one process's "
                f"stream has no meaning under another geometry; nothing was loaded. Resume with the saved one"
                f"{', or load tdstream.position_of(state) into a tdstream.loader' * bool(self.batch_size)}."
            )
        place = read_fields(self.name, state, dict.fromkeys(_CURSOR, COUNT))
        worker = self._partition.worker
        try:
            items = self._make_partition(place["epoch"], place["start"], worker).num_items
        except (ConfigError, OverflowError) as error:
            raise StateError(f"the state has no valid position ({error}).") from None
        if place["step"] > items:
            raise StateError(
                f"the state stands after {place['step']:,} items of epoch {place['epoch']:,}, which has "
                f"{items:,} from position {place['start']:,} on; it was cut or changed."
            )
        self._place(place["epoch"], place["start"], worker)
        self.step = place["step"]

    def differences(self, saved: dict[str, Any]) -> list[str]:
        """Return a phrase for each field of the geometry that differs."""
        current = self.state_dict()
        was, now = ({field: part.get(field) for field in _GEOMETRY} for part in (saved, current))
        return differences(self.name, was, now)

    def _place(self, epoch: int, start: int, worker: Worker) -> None:
        self.epoch, self._start = epoch, start
        self.step = 0
        """Items handed out in this pass."""
        self._partition: BatchPartition | SamplePartition = self._make_partition(epoch, start, worker)
        self._num_items = self._partition.num_items
        self._planned = range(0)  # the items of the plan
        self._plan: Any = None
        self._fillers = 0  # rows at the end of the planned item that only fill it

    def _count_items(self, partition: BatchPartition | SamplePartition) -> int:
        if isinstance(partition, BatchPartition):
            return partition.items_per_rank
        return max(partition.num_samples - self.skip, 0) // self.topology.dp_world_size

    def _make_partition(self, epoch: int, start: int, worker: Worker) -> BatchPartition | SamplePartition:
        samples, topology = self.upstream.num_samples(epoch), self.topology
        if self.batch_size is None:
            return SamplePartition(
                num_samples=samples, topology=topology, worker=worker, start=start, even=self.tail == "drop"
            )
        return BatchPartition(
            num_samples=samples, batch_size=self.batch_size, topology=topology, worker=worker, start=start,
            wrap=self.tail == "wrap", keep=self.tail == "keep", fills_from=self.upstream.fills_from(epoch),
        )  # fmt: skip

    def _plan_next(self) -> None:
        """Plan the reads of the next items."""
        item, partition = self.step, self._partition
        count = min(max(_PLANNED_SAMPLES // (self.batch_size or 1), 1), self._num_items - item)
        short = partition.short_item if isinstance(partition, BatchPartition) else None
        if isinstance(partition, BatchPartition) and item == short:
            positions, self._fillers = partition.short_positions()
        else:
            count = count if short is None else min(count, short - item)
            positions, self._fillers = partition.positions(item, count), 0  # [count, samples]
        indices = self.upstream.indices(positions, self.epoch)
        bounds = range(0, indices.size + 1, indices.shape[1])
        self._plan = self.upstream.plan(indices.ravel(), bounds)
        self._planned = range(item, item + count)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planned": range(0), "_plan": None}

    def _check_streams(self) -> None:
        """Refuse an epoch that leaves a stream empty, or log a warning."""
        samples = max(self._partition.num_samples - self.skip, 0)
        if isinstance(self._partition, BatchPartition):
            needed, what = self._partition.global_batch, "one global batch (batch_size x dp_world_size)"
        else:
            needed, what = self._partition.num_streams, "one for each stream (dp_world_size x workers)"
        if samples >= needed or (self.batch_size and serves_rest(self.tail) and samples):
            return
        message = f"an epoch has {samples:,} samples, fewer than the {needed:,} of {what}."
        if self.strict:
            raise GeometryError(
                f"{message} Use fewer ranks or workers, smaller batches, a smaller seq_len or a larger "
                f"corpus; strict=False lets streams be empty."
            )
        logger.warning("%s Some streams are empty, since strict=False.", message)
