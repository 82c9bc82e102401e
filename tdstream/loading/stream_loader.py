"""A loader over a live stream, which ends epochs on all ranks together and counts batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch

from tdstream.core.errors import StateError
from tdstream.core.state import STATE_KEY, STATE_VERSION, unwrap_state
from tdstream.loading.device import Transfer
from tdstream.loading.loader_base import LoaderBase
from tdstream.loading.torchdata_workarounds import read_processes
from tdstream.nodes.batch import Batch
from tdstream.streams.stream_pipeline import (
    NO_LENGTH,
    StreamPipeline,
    check_geometry,
    check_loader_state,
    find_stream_states,
)
from tdstream.streams.total_hint import TotalHint

_PART = "stream"

Stands = Literal["before", "in", "behind"]
_Mark = tuple[dict[str, Any], Stands, int, int, int]
"""StatefulDataLoader's state, and where in which epoch the run stands, after so many batches and steps."""


class StreamLoader(LoaderBase):
    """A loader over text that is tokenized on the fly. Made by `loader`.

    Its state is this rank's own: each rank saves and loads one, under the same ranks, workers and batch size.

    Args:
        pipeline: What `build(..., batch_size=...)` returned.
        num_workers: Worker processes of this rank; each reads and tokenizes a stream of its own.
        device: A CUDA device to copy batches to.
        **options: Further arguments of StatefulDataLoader: pin_memory, prefetch_factor, persistent_workers,
            multiprocessing_context, timeout, worker_init_fn.

    Raises:
        ConfigError: If the pipeline yields single samples, or in_order=False is given.
    """

    _pipeline: StreamPipeline

    def __init__(
        self,
        pipeline: StreamPipeline,
        *,
        num_workers: int = 0,
        device: str | torch.device | None = None,
        **options: Any,
    ) -> None:
        self._given = {"num_workers": num_workers, "device": device, **options}
        options |= {"num_workers": num_workers}
        super().__init__(
            pipeline, batch_size=pipeline.batch_size, transfer=Transfer(device, 1), options=options
        )
        pipeline.loader_syncs = True
        self._generation = pipeline.generation
        self._epoch = self.batches_done = self.step = 0
        self._stands: Stands = "before"  # where in the epoch the run stands
        self._resumed: dict[str, Any] | None = None  # StatefulDataLoader's state that the next pass resumes
        self._chosen: int | None = None
        self._may_continue = False  # with the next epoch, if the one that was resumed has nothing left

    def __len__(self) -> int:
        """Batches of an epoch, if `tdstream.count` counted this text and one stream reads all of it.

        Raises:
            TypeError: If it was not counted, or there are several ranks or workers: each drops an incomplete
                batch of its own, and all end with the first.
        """
        counted = self._pipeline.counted_batches
        if counted and self._reads_alone:
            return counted
        if counted:
            raise TypeError(
                f"the text was counted, but {counted:,} batches is no exact length: several ranks or workers "
                f"each drop an incomplete batch of their own. Give the trainer a number of steps, or prepare "
                f"the text with cache_dir=..."
            )
        raise TypeError(NO_LENGTH)

    def __repr__(self) -> str:
        """Return the place, and the nodes from left to right."""
        place = f"epoch {self.epoch:,}, batch {self.batches_done:,}, step {self.step:,}"
        return f"StreamLoader({place}, {self.num_workers} workers: {self._pipeline!r})"

    @property
    def _reads_alone(self) -> bool:
        """Whether one stream reads all the text."""
        return self._pipeline.topology.dp_world_size == 1 and self.num_workers <= 1

    @property
    def epoch(self) -> int:
        """The epoch being served; at its end still this one."""
        return self._epoch if self._chosen is None or self._stands == "in" else self._chosen

    @property
    def tokens_done(self) -> int:
        """Tokens of this epoch that trainers were given, padding included, over all ranks."""
        pipeline = self._pipeline
        rows = (pipeline.batch_size or 1) * pipeline.topology.dp_world_size
        return self.batches_done * rows * pipeline.nodes.cut.seq_len

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's state; no worker is started."""
        place = {
            **self._geometry(),
            "stands": self._stands if self._chosen is None else "before",
            "batches_done": self.batches_done,
            "step": self.step,
            "loader": self._loader_state(),
        }
        return {
            STATE_KEY: STATE_VERSION,
            "epoch": self.epoch,
            "nodes": {**self._pipeline.identities(), _PART: place},
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go to the place of a state that this rank saved; existing iterators become stale.

        Raises:
            StateError: If it belongs to other text or settings, or is no state of such a loader.
            GeometryError: If it was saved with other ranks, workers or batches, or by another rank.
        """
        nodes = unwrap_state(state_dict)
        self._pipeline.compare(nodes)
        place = nodes[_PART]
        check_loader_state(state_dict, place)
        check_geometry(place, self._geometry())
        if place["stands"] == "in":
            self._check_streams(state_dict["epoch"], place)
        self._drop_workers()
        self._retire_iterator()
        self.batches_done, self.step = int(place["batches_done"]), int(place["step"])
        self._epoch, self._stands = int(state_dict["epoch"]), place["stands"]
        self._resumed, self._chosen = place["loader"], None
        self._generation = self._pipeline.generation

    def _check_streams(self, epoch: int, place: dict[str, Any]) -> None:
        """Refuse a state whose streams do not add up to the place of their loader."""
        done, pipeline = place["batches_done"], self._pipeline
        states = read_processes(place["loader"], self.num_workers, done)
        cursors = [
            pipeline.check_stream_state(state, worker, len(states)) for worker, state in enumerate(states)
        ]
        served = sum(cursor["served"] for cursor in cursors)
        if served != done * (pipeline.batch_size or 1) or any(cursor["epoch"] != epoch for cursor in cursors):
            raise StateError(
                f"the state stands after {done:,} batches of epoch {epoch:,}, but its streams have served "
                f"{served:,} samples of epochs {sorted({cursor['epoch'] for cursor in cursors})}; it was cut "
                f"or changed. Load what state_dict() returned."
            )

    def total_hint(self) -> TotalHint | None:
        """Return how far the pass is: in batches if `tdstream.count` counted the text, else by documents."""
        counted = self._pipeline.counted_batches
        if counted:
            done = self.batches_done if self._stands == "in" and self._chosen is None else 0
            # Each of several streams drops a rest of its own, and all end with the first.
            return TotalHint(kind="counted" if self._reads_alone else "estimate", total=counted, done=done)
        return self._pipeline.hint_from_states(list(find_stream_states(self._loader_state())))

    def _geometry(self) -> dict[str, int]:
        topology = self._pipeline.topology
        return {
            "batch_size": self._pipeline.batch_size or 0,
            "dp_rank": topology.dp_rank,
            "dp_world_size": topology.dp_world_size,
            "num_workers": self.num_workers,
        }

    def _choose(self, epoch: int) -> None:
        self._chosen = epoch

    def _loader_state(self) -> dict[str, Any]:
        """Return StatefulDataLoader's state of the pass in which this loader stands; {} between passes."""
        if self._resumed is not None:
            return self._resumed
        if self._stands != "in" or self._chosen is not None:
            return {}
        state: dict[str, Any] = super().state_dict()
        return state

    def _begin_pass(self) -> None:
        """Open the rest of the epoch that a state stands in, or an epoch."""
        resumed, chosen = self._resumed, self._chosen
        if chosen is None and resumed is None:
            chosen = self._pipeline.asked_since(self._generation)
        if resumed is not None and chosen in (None, self._epoch) and self._stands != "before":
            self._resume(resumed, asked_for=chosen is not None)
        elif chosen is not None:
            self._begin_epoch(chosen)
        else:
            self._begin_epoch(self._epoch + 1 if self._stands == "behind" else self._epoch)

    def _begin_epoch(self, epoch: int) -> None:
        # Until the pass is open the run stands before the epoch: what cannot be opened is tried again.
        self._stands, self._epoch, self.batches_done = "before", epoch, 0
        self._resumed = self._chosen = None
        self._pipeline.set_epoch(epoch)
        if not self.persistent_workers:
            self._drop_workers()
        self._open(self._open_workers(), may_continue=False)

    def _resume(self, state: dict[str, Any], *, asked_for: bool) -> None:
        self._drop_workers()
        batches: Iterator[Any] = iter(())
        if self._stands == "in":
            super().load_state_dict(state)
            batches = self._open_workers()
        self._open(batches, may_continue=not asked_for)

    def _open(self, batches: Iterator[Any], *, may_continue: bool) -> None:
        """Note that a pass is open."""
        self._generation, self._may_continue = self._pipeline.generation, may_continue
        self._batches, self._stands, self._resumed, self._chosen = batches, "in", None, None

    def _mark(self) -> _Mark:
        # StatefulDataLoader's state after a batch that it was interrupted in is anything.
        has_iterator = self._iterator is not None
        state = super().state_dict() if has_iterator else {}
        stands: Stands = "in" if has_iterator else "behind"
        return state, stands, self._epoch, self.batches_done, self.step

    def _go_back(self, mark: _Mark) -> None:
        self._resumed, self._stands, self._epoch, self.batches_done, self.step = mark

    def _fail_pass(self) -> None:
        self._drop_workers()

    def _take(self) -> Batch | None:
        """Return the next batch; None at the epoch's end, which all ranks reach together."""
        batch: Batch | None = next(self._batches, None)
        if self._pipeline.sync.all_have(batch is not None) and batch is not None:
            self._may_continue = False
            self.batches_done, self.step = self.batches_done + 1, self.step + 1
            return self._transfer.copy_now(batch)
        self._stands = "behind"
        if batch is not None:
            self._drop_workers()  # other ranks have nothing left; what the workers still have is dropped
        if self._may_continue:
            self._begin_epoch(self._epoch + 1)
            return self._take()
        if not self.batches_done:
            self._pipeline.check_not_empty(self._epoch)
        self._pipeline.note_whole_pass(self.batches_done, alone=self._reads_alone)
        return None
