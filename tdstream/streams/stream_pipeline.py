"""A live stream as a dataset that loaders take, and one pass over it that can be saved and resumed."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.utils.data import IterableDataset

from tdstream.core.checks import check_int
from tdstream.core.state import STATE_KEY, STATE_VERSION, check_identities, unwrap_state
from tdstream.distributed.end_of_epoch import EndOfEpochSync, is_initialized, refuse_workers_alone
from tdstream.distributed.shared_epoch import Pass, SharedEpoch
from tdstream.distributed.topology import Topology, Worker, current_worker
from tdstream.distributed.watchdog import watch_parent
from tdstream.distributed.worker_board import EndBoard, ProgressBoard
from tdstream.nodes.collate import Collate
from tdstream.streams.cut import Sample, rows_of
from tdstream.streams.stream_pass import StreamNodes, StreamPass
from tdstream.streams.stream_state import (
    CURSOR,
    GEOMETRY,
    NO_LENGTH,
    hint_of_places,
    refuse_emptiness,
    refuse_geometry,
)
from tdstream.streams.total_hint import TotalHint


class StreamPipeline(IterableDataset[dict[str, Tensor]]):
    """TextSource > Tokenize > Chunk > ShuffleBuffer > Batch > Collate, as an IterableDataset.

    Each process reads a stream of its own: one for each worker of each rank. Made by `build`.

    Args:
        nodes: What text goes through.
        collate: How samples leave.
        batch_size: B, samples per rank and step; None hands out single samples.
        topology: This rank, and how many there are.
        strict: Whether a state of other text or settings is refused, or only warned of.

    Raises:
        ConfigError: If batch_size is out of range.
    """

    def __init__(
        self,
        nodes: StreamNodes,
        collate: Collate,
        *,
        batch_size: int | None,
        topology: Topology,
        strict: bool = True,
    ) -> None:
        self.batch_size = None if batch_size is None else check_int("batch_size", batch_size, at_least=1)
        self.nodes, self.collate, self.topology, self.strict = nodes, collate, topology, strict
        self.agreement, self.loader_agrees = EndOfEpochSync(several=topology.dp_world_size > 1), False
        """How ranks end an epoch together, and whether a loader does it, so that passes need not."""
        self.counted_batches: int | None = None
        """Batches of an epoch on each rank, by what `tdstream.count` found in this text before."""
        self._clock, self._roll, self._whereabouts = SharedEpoch(), EndBoard(), ProgressBoard()
        self._several = False
        self._running: weakref.ref[StreamIterator] | None = None

    def __iter__(self) -> StreamIterator:
        """Open one pass over the next epoch.

        Raises:
            ConfigError: In a worker of a loader that lets ranks end an epoch at different steps.
        """
        worker = current_worker()
        if worker.is_process:
            watch_parent()
            refuse_workers_alone(agreed=self.loader_agrees, several=self._several)
        self._roll.begin(worker)
        opened = self._clock.open(in_worker=worker.is_process)
        iterator = StreamIterator(self, opened, worker)
        self._running = weakref.ref(iterator)
        return iterator

    def __bool__(self) -> bool:
        """Be true: to ask is no reason to refuse."""
        return True

    def __len__(self) -> int:
        """Refuse: only reading tells.

        Raises:
            TypeError: Always.
        """
        raise TypeError(NO_LENGTH)

    def __repr__(self) -> str:
        """Return the nodes, from left to right."""
        batch = f"Batch({self.batch_size or 'single samples'})"
        return " > ".join([*(repr(node) for node in self.nodes), batch, repr(self.collate)])

    @property
    def epoch(self) -> int:
        """The epoch that the next pass serves, or that the running one is in; right after a resume, too."""
        return self._clock.epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass, also in workers that already live.

        Raises:
            ConfigError: If it is not an integer of at least 0.
        """
        self._clock.set_epoch(epoch)

    @property
    def generation(self) -> int:
        """How often an epoch was chosen."""
        return self._clock.generation

    def identities(self) -> dict[str, dict[str, Any]]:
        """Return what decides content and order, by node."""
        return {node.name: node.state_dict() for node in (*self.nodes, self.collate)}

    def compare(self, saved: dict[str, dict[str, Any]]) -> None:
        """Compare saved identities with this pipeline's.

        Raises:
            StateError: If a node is missing, or strict and a field differs; all differences in one sentence.
        """
        check_identities(saved, (*self.nodes, self.collate), cursor=CURSOR, strict=self.strict)

    def total_hint(self) -> TotalHint | None:
        """Return how far the running pass is: in batches, if its text was counted before, else by documents.

        Of a pass that runs in workers it is an estimate.
        """
        running = self._running() if self._running is not None else None
        if self.counted_batches:
            alone = running is not None and self.topology.dp_world_size == 1
            return TotalHint(kind="counted" if alone else "estimate", total=self.counted_batches)
        if running is not None:
            return self.hint_of([running.state_dict()])
        places = self._whereabouts.newest()
        hint = self._hint(places) if places else None
        return hint and replace(hint, kind="estimate")

    def hint_of(self, states: list[dict[str, Any]]) -> TotalHint | None:
        """Return how far a rank is whose streams are in these states."""
        return self._hint([state["nodes"][CURSOR] for state in states])

    def _hint(self, places: list[dict[str, Any]]) -> TotalHint | None:
        return hint_of_places(places, self.nodes.source.records.num_rows, self.topology.dp_world_size)

    def refuse_emptiness(self, epoch: int) -> None:
        """Refuse, or with strict=False warn of, an epoch that had no batch."""
        refuse_emptiness(epoch, self.batch_size or 1, self.nodes.chunk.seq_len, strict=self.strict)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_running": None, "_several": self._several or is_initialized()}


class StreamIterator(Iterator[dict[str, Tensor]]):
    """One pass over an epoch, for one process."""

    def __init__(self, pipeline: StreamPipeline, opened: Pass, worker: Worker) -> None:
        self._pipeline, self._opened, self._worker = pipeline, opened, worker
        self._agrees = not worker.is_process and not pipeline.loader_agrees
        self._travels = worker.is_process or pipeline.collate.stays_packed
        self._failed = self._over = False
        self._pass = self._make(None)

    def __next__(self) -> dict[str, Tensor]:
        """Return the next batch or sample of this stream; after an error, it is tried again."""
        if self._over:
            raise StopIteration
        self._note()
        samples = self._read()
        if not self._all_have(bool(samples)):
            self._end()
            if self._agrees and not self._pass.cursor()["served"]:
                self._pipeline.refuse_emptiness(self._opened.epoch)
            raise StopIteration
        rows = rows_of(samples, marked=self._pipeline.nodes.chunk.is_marked)
        item = self._pipeline.collate(rows, travels=self._travels)
        self._pass.advance()
        return item

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this stream: its nodes' identities, and under "stream" its place."""
        place = {**self._geometry(), **self._pass.cursor()}
        return {STATE_KEY: STATE_VERSION, "nodes": {**self._pipeline.identities(), CURSOR: place}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to the place of a saved state; a `set_epoch` before is overruled until the state's epoch ends.

        Raises:
            StateError: If the state belongs to other text or settings, or is no state; nothing is loaded.
            GeometryError: If it was saved with other ranks, workers or batches; nothing is loaded.
        """
        saved = unwrap_state(state)
        self._pipeline.compare(saved)
        refuse_geometry(saved[CURSOR], self._geometry())
        self._pass = self._make(saved[CURSOR])
        self._opened = Pass(self._pass.epoch, self._pipeline._clock.restore(self._pass.epoch))
        self._over = False
        if self._pass.ended:
            self._end()

    def _note(self) -> None:
        if self._worker.is_process and not self._pipeline.loader_agrees:
            self._pipeline._whereabouts.note(self._worker, self._pass.counts())

    def _read(self) -> list[Sample]:
        """Return the samples of the next batch; none at the end."""
        if self._failed:
            self._pass, self._failed = self._make(self._pass.cursor()), False
        try:
            return self._pass.read()
        except StopIteration:
            return []
        except BaseException:
            self._failed = True
            raise

    def _all_have(self, has: bool) -> bool:
        return self._pipeline.agreement.all_have(has) if self._agrees else has

    def _make(self, cursor: dict[str, Any] | None) -> StreamPass:
        pipeline, worker = self._pipeline, self._worker
        return StreamPass(
            pipeline.nodes,
            stream=pipeline.topology.dp_rank * worker.count + worker.id,
            num_streams=pipeline.topology.dp_world_size * worker.count,
            batch_size=pipeline.batch_size or 1,
            epoch=self._opened.epoch,
            cursor=cursor,
        )

    def _geometry(self) -> dict[str, int]:
        topology, worker = self._pipeline.topology, self._worker
        numbers = (topology.dp_rank, topology.dp_world_size, worker.id, worker.count)
        return dict(zip(GEOMETRY, (self._pipeline.batch_size or 0, *numbers), strict=True))

    def _end(self) -> None:
        """End the pass; the last stream of this rank to do so moves the clock."""
        self._over = self._pass.ended = True
        if self._pipeline._roll.ends(self._worker, self._opened.epoch):
            self._pipeline._clock.close(self._opened)
