"""A live stream as a dataset that loaders take, and one pass over it that can be saved and resumed."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from tdstream.core.checks import check_int
from tdstream.core.errors import GeometryError, SourceError, StateError
from tdstream.core.state import STATE_KEY, STATE_VERSION, Identified, differences, unwrap_state
from tdstream.core.state_schema import COUNT, PART, one_of, read_fields
from tdstream.distributed.end_of_epoch import EndOfEpochSync, check_worker_can_sync, is_initialized
from tdstream.distributed.epoch_dataset import EpochDataset, EpochPass
from tdstream.distributed.topology import Topology, Worker, check_group_agrees
from tdstream.distributed.worker_board import WorkerBoard
from tdstream.nodes.collate import Collate
from tdstream.streams.cut import Sample, stack_samples
from tdstream.streams.stream_pass import StreamNodes, StreamPass, check_cursor
from tdstream.streams.total_hint import TotalHint

CURSOR = "stream"
"""The key of this part."""
STANDS = ("before", "in", "behind")
"""Where in its epoch a loader can stand."""
NO_LENGTH = (
    "a live stream has no length: how many batches its text gives is known when all of it was tokenized. "
    "tdstream.count(source, tokenizer, ...) counts them once, tdstream.progress shows progress by "
    'documents or by an estimate, and with cache_dir=... (or kind="memory" for a list) the length is exact.'
)


def check_loader_state(state: dict[str, Any], place: dict[str, Any]) -> None:
    """Refuse a loader's state whose place, the part under CURSOR, is incomplete."""
    read_fields("place", state, {"epoch": COUNT})
    counts = {"batches_done": COUNT, "step": COUNT, "num_workers": COUNT}
    found = read_fields(CURSOR, place, {**counts, "stands": one_of(*STANDS), "loader": PART})
    if found["stands"] == "in" and not found["loader"]:
        raise StateError(
            "the state stands in an epoch but has no place of a stream, so it was cut or changed. Load what "
            "state_dict() returned."
        )


def find_stream_states(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the states of a rank's streams from StatefulDataLoader's state."""
    if isinstance(value, dict):
        if STATE_KEY in value:
            yield value
        else:
            for inner in value.values():
                yield from find_stream_states(inner)


def check_geometry(saved: dict[str, Any], current: dict[str, Any]) -> None:
    """Refuse the place of another stream."""
    was, now = ({field: part.get(field) for field in current} for part in (saved, current))
    found = differences(CURSOR, was, now)
    if found:
        raise GeometryError(
            f"the state was saved under another geometry: {'; '.join(found)}. A live stream resumes only "
            f"with the same ranks, workers and batches, each rank from its own state; nothing was loaded. To "
            f"change them between runs, prepare the text once: cache_dir=..."
        )


logger = logging.getLogger(__name__)


class StreamPipeline(EpochDataset):
    """TextStream > Tokenize > StreamCut > ShuffleBuffer > Batch > Collate, as an IterableDataset.

    Each process reads a stream of its own: one for each worker of each rank. Made by `build`.

    Args:
        nodes: The nodes that text goes through.
        collate: Makes tensors of samples.
        batch_size: B, samples per rank and step; None yields single samples.
        topology: This rank, and how many there are.
        strict: Whether to refuse a state of other text or settings; False only warns.
        count_samples: Returns the samples of an epoch over all ranks if they were counted before, else None;
            called once. Its argument says whether to warn if that count may be of other text.
        forget_count: Removes that count, which a whole pass has shown to be wrong.

    Raises:
        ConfigError: If batch_size is out of range.
    """

    collate: Collate
    cursor_name = CURSOR

    def __init__(
        self,
        nodes: StreamNodes,
        collate: Collate,
        *,
        batch_size: int | None,
        topology: Topology,
        strict: bool = True,
        count_samples: Callable[[bool], int | None] | None = None,
        forget_count: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(strict=strict)
        self.batch_size = None if batch_size is None else check_int("batch_size", batch_size, at_least=1)
        self.nodes, self.collate, self.topology = nodes, collate, topology
        self.sync, self.loader_syncs = EndOfEpochSync(several_ranks=topology.dp_world_size > 1), False
        """How ranks end an epoch together, and whether a loader does it, so that passes need not."""
        self._board, self._in_group = WorkerBoard(), False
        self._count_samples, self._forget_count = count_samples, forget_count
        self._counted_batches: int | None = None
        self._running: weakref.ref[StreamIterator] | None = None

    def __iter__(self) -> StreamIterator:
        """Open one pass over the next epoch."""
        worker = self._enter_process()
        if worker.is_process:
            check_worker_can_sync(loader_syncs=self.loader_syncs, in_group=self._in_group)
        self._board.begin(worker)
        iterator = StreamIterator(self, worker)
        self._running = weakref.ref(iterator)
        return iterator

    def __len__(self) -> int:
        """Not known before the text is read.

        Raises:
            TypeError: Always.
        """
        raise TypeError(NO_LENGTH)

    def __repr__(self) -> str:
        """Return the nodes, from left to right."""
        batch = f"Batch({self.batch_size or 'single samples'})"
        return " > ".join([*(repr(node) for node in self.nodes), batch, repr(self.collate)])

    def check_ranks(self) -> None:
        """Refuse a process group that was made since, if it knows this process by another rank."""
        check_group_agrees(self.topology)

    def _topology(self) -> Topology:
        return self.topology

    def identified_nodes(self) -> Sequence[Identified]:
        """Return the nodes that decide content and order."""
        return (*self.nodes, self.collate)

    @property
    def vocab_size(self) -> int:
        """Size of the tokenizer's vocabulary."""
        return self.nodes.tokenize.vocab_size

    @property
    def eos_token_id(self) -> int:
        """The id that ends documents."""
        return self.nodes.tokenize.eos_token_id

    @property
    def tokenizer_name_or_path(self) -> str:
        """The tokenizer's name on the hub or its directory; "" if it has none."""
        return self.nodes.tokenize.tokenizer_name_or_path

    @property
    def counted_batches(self) -> int | None:
        """Batches of an epoch on each rank, if `tdstream.count` has counted this text; looked up once."""
        return self._look_up_count(warns=True)

    def _look_up_count(self, *, warns: bool) -> int | None:
        count, self._count_samples = self._count_samples, None
        if count is not None and self.batch_size is not None:
            samples = count(warns)
            self._counted_batches = samples and samples // (self.batch_size * self.topology.dp_world_size)
        return self._counted_batches

    def note_whole_pass(self, batches: int, *, alone: bool) -> None:
        """Compare the batches of an epoch on this rank with the count; the pass is right.

        A stream that reads `alone` yields what was counted. Several streams each drop a rest, so they yield
        less at times, but never more.
        """
        counted = self._look_up_count(warns=False)
        if counted is None or counted == batches or (batches < counted and not alone):
            return
        logger.warning(
            "The text has changed since it was counted: its epoch had %s batches, and %s were counted. That "
            "count is dropped.",
            f"{batches:,}",
            f"{counted:,}",
        )
        self._counted_batches, forget = batches, self._forget_count
        if forget is not None:
            forget()

    def total_hint(self) -> TotalHint | None:
        """Return how far the pass is: in batches if `tdstream.count` counted the text, else by documents.

        For a pass that runs in workers it is an estimate.
        """
        running = self._running() if self._running is not None else None
        if self.counted_batches:
            alone = running is not None and self.topology.dp_world_size == 1
            return TotalHint(kind="counted" if alone else "estimate", total=self.counted_batches)
        if running is not None:
            return self.hint_from_states([running.state_dict()])
        places = self._board.read_progress()
        hint = self._hint_by_documents(places) if places else None
        return hint and replace(hint, kind="estimate")

    def hint_from_states(self, states: list[dict[str, Any]]) -> TotalHint | None:
        """Return how far a rank is whose streams have these states."""
        return self._hint_by_documents([state["nodes"][CURSOR] for state in states])

    def _hint_by_documents(self, places: list[dict[str, Any]]) -> TotalHint | None:
        """Return how far the streams of a rank are, if the source knows its number of documents."""
        num_rows = self.nodes.source.records.num_rows
        if not num_rows:
            return None
        total = max(num_rows // self.topology.dp_world_size, 1)
        done = sum(place["read"] * place["served"] // max(place["cut"], 1) for place in places)
        return TotalHint(kind="documents", total=total, done=min(done, total), unit="doc")

    def check_stream_state(self, state: dict[str, Any], worker: int, num_workers: int) -> dict[str, Any]:
        """Return the place in the state of one stream of this rank; refuse another stream's."""
        saved = unwrap_state(state)
        self.compare(saved)
        check_geometry(saved[CURSOR], self.describe_geometry(worker, num_workers))
        return check_cursor(saved[CURSOR])

    def describe_geometry(self, worker: int, num_workers: int) -> dict[str, int]:
        """Return what a stream's state tells of ranks, workers and batches."""
        return {
            "batch_size": self.batch_size or 0,
            "dp_rank": self.topology.dp_rank,
            "dp_world_size": self.topology.dp_world_size,
            "worker": worker,
            "num_workers": num_workers,
        }

    def check_not_empty(self, epoch: int) -> None:
        """Refuse, or warn of, an epoch that had no batch: a trainer that counts steps would wait for ever."""
        message = (
            f"the stream ended without a batch in epoch {epoch}: the text of some rank was over before it "
            f"filled {self.batch_size or 1} x {self.nodes.cut.seq_len} tokens. Use more text, a smaller "
            f"seq_len, batch_size or number of workers, or strict=False if an empty epoch is intended."
        )
        if self.strict:
            raise SourceError(message)
        logger.warning("%s", message)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_running": None, "_in_group": self._in_group or is_initialized()}


class StreamIterator(EpochPass):
    """One pass over an epoch, for one process."""

    def __init__(self, pipeline: StreamPipeline, worker: Worker) -> None:
        super().__init__(pipeline, worker)
        self._pipeline = pipeline
        self._syncs = not worker.is_process and not pipeline.loader_syncs
        self._failed = False
        self._pass = self._make_pass(None)

    def __next__(self) -> dict[str, Tensor]:
        """Return the next batch or sample of this stream; after an error, the same one is tried again."""
        if self._ended:
            raise StopIteration
        self._note_progress()
        samples = self._read()
        if not self._all_have(bool(samples)):
            self._pass.ended = True
            self._end()
            served = self._pass.cursor()["served"]
            if self._syncs and not served:
                self._pipeline.check_not_empty(self._opened.epoch)
            if self._syncs and self._pipeline.batch_size:
                alone = self._pipeline.topology.dp_world_size == 1
                self._pipeline.note_whole_pass(served // self._pipeline.batch_size, alone=alone)
            raise StopIteration
        rows = stack_samples(samples, marked=self._pipeline.nodes.cut.is_marked)
        item, mark = self._pipeline.collate(rows, travels=self._travels), self._pass.mark()
        try:
            self._pass.advance()
            return item
        except BaseException:  # an interrupt: the batch did not reach the caller
            self._pass.go_back(mark)
            raise

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this stream: its nodes' identities, and under "stream" its place."""
        place = {**self._geometry(), **self._pass.cursor()}
        return {STATE_KEY: STATE_VERSION, "nodes": {**self._pipeline.identities(), CURSOR: place}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to the place of a saved state; its epoch wins over an earlier `set_epoch`."""
        saved = unwrap_state(state)
        self._pipeline.compare(saved)
        check_geometry(saved[CURSOR], self._geometry())
        self._pass = self._make_pass(saved[CURSOR])
        self._restore(self._pass.epoch, ended=self._pass.ended, writes=True)

    def _is_last(self) -> bool:
        return self._pipeline._board.end(self._worker, self._opened.epoch)

    def _note_progress(self) -> None:
        if self._worker.is_process and not self._pipeline.loader_syncs:
            self._pipeline._board.note_progress(self._worker, self._pass.counts())

    def _read(self) -> list[Sample]:
        """Return the samples of the next batch; none at the end."""
        if self._failed:
            self._pass, self._failed = self._make_pass(self._pass.cursor()), False
        try:
            return self._pass.read()
        except StopIteration:
            return []
        except BaseException:
            self._failed = True
            raise

    def _all_have(self, has: bool) -> bool:
        return self._pipeline.sync.all_have(has) if self._syncs else has

    def _make_pass(self, cursor: dict[str, Any] | None) -> StreamPass:
        pipeline, worker = self._pipeline, self._worker
        return StreamPass(
            pipeline.nodes,
            stream=pipeline.topology.dp_rank * worker.count + worker.id,
            num_streams=pipeline.topology.dp_world_size * worker.count,
            batch_size=pipeline.batch_size or 1,
            epoch=self._opened.epoch,
            cursor=cursor,
            strict=pipeline.strict,
        )

    def _geometry(self) -> dict[str, int]:
        return self._pipeline.describe_geometry(self._worker.id, self._worker.count)
