"""A StatefulDataLoader over a live stream, which lets ranks end an epoch together, and counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torchdata.stateful_dataloader import StatefulDataLoader

from tdstream.core.checks import check_int
from tdstream.core.state import STATE_KEY, STATE_VERSION, unwrap_state
from tdstream.loading.device import Transfer
from tdstream.loading.iterator import Turn
from tdstream.loading.torchdata_workarounds import begin_stateful, hook_sampler
from tdstream.nodes.batch import Batch
from tdstream.streams.stream_pipeline import StreamPipeline
from tdstream.streams.stream_state import NO_LENGTH, refuse_cut, refuse_geometry, stream_states
from tdstream.streams.total_hint import TotalHint

_PART = "stream"


class StreamLoader(StatefulDataLoader):  # type: ignore[misc]  # torchdata is not typed
    """A loader over text that is tokenized on the fly. Made by `loader`.

    Its state is this rank's own: each rank saves and loads one, under the same ranks, workers and batch size.

    Args:
        pipeline: What `build(..., batch_size=...)` returned.
        num_workers: Worker processes of this rank; each reads and tokenizes a stream of its own.
        device: A CUDA device to bring batches to.
        **options: Further arguments of StatefulDataLoader: pin_memory, prefetch_factor, persistent_workers,
            multiprocessing_context, timeout, worker_init_fn.

    Raises:
        ConfigError: If the pipeline yields single samples, or in_order=False is asked for.
    """

    # Accelerate's prepare() then takes the loader as it is, rather than build another over its dataset.
    _is_accelerate_prepared = True
    use_stateful_dataloader = True

    def __init__(
        self,
        pipeline: StreamPipeline,
        *,
        num_workers: int = 0,
        device: str | torch.device | None = None,
        **options: Any,
    ) -> None:
        options |= {"num_workers": num_workers}
        begin_stateful(super().__init__, pipeline, batch_size=pipeline.batch_size, options=options)
        self._pipeline, self._transfer = pipeline, Transfer(device, 1)
        pipeline.loader_agrees = True
        pipeline.collate.stays_packed = self._transfer.needed
        self._epoch = self.batches_done = self.step = self._turn = 0
        self._stands: Literal["before", "in", "behind"] = "before"  # where in the epoch the run stands
        self._held: dict[str, Any] | None = (
            None  # StatefulDataLoader's state, or {}, if a pass is gone on with
        )
        self._chosen: int | None = None
        self._begun = pipeline.generation
        hook_sampler(self.sampler, self, lambda own, epoch: own._follow(epoch))

    def __iter__(self) -> Iterator[Batch]:
        """Return an iterator over one epoch, or its rest; it begins when its first batch is asked for."""
        self._turn += 1
        return Turn(self._turn, lambda: self._turn, self._begin, self._next)

    def __bool__(self) -> bool:
        """Be true: to ask is no reason to refuse."""
        return True

    def __len__(self) -> int:
        """Refuse: only reading tells.

        Raises:
            TypeError: Always.
        """
        raise TypeError(NO_LENGTH)

    @property
    def epoch(self) -> int:
        """The epoch that is being served; at its end still this one."""
        return self._epoch if self._chosen is None or self._stands == "in" else self._chosen

    @property
    def tokens_done(self) -> int:
        """Tokens of this epoch that trainers were given, padding included, over all ranks."""
        pipeline = self._pipeline
        rows = (pipeline.batch_size or 1) * pipeline.topology.dp_world_size
        return self.batches_done * rows * pipeline.nodes.chunk.seq_len

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
        """Go to the place of a state that this rank has saved; iterators made before become stale.

        Raises:
            StateError: If it belongs to other text or settings, or is no state of such a loader.
            GeometryError: If it was saved with other ranks, workers or batches, or by another rank.
        """
        nodes = unwrap_state(state_dict)
        self._pipeline.compare(nodes)
        place = nodes[_PART]
        refuse_cut(state_dict, place)
        refuse_geometry(place, self._geometry())
        self._drop()
        self._turn += 1
        self.batches_done, self.step = int(place["batches_done"]), int(place["step"])
        self._epoch, self._stands = int(state_dict["epoch"]), place["stands"]
        self._held, self._chosen = place["loader"], None
        self._begun = self._pipeline.generation

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass; after a load, the epoch of the state keeps its position.

        Raises:
            ConfigError: If it is not an integer of at least 0.
        """
        self._chosen = check_int("epoch", epoch, at_least=0)

    def total_hint(self) -> TotalHint | None:
        """Return how far the pass is: in batches, if its text was counted before, else by documents."""
        counted = self._pipeline.counted_batches
        if counted:
            alone = self._pipeline.topology.dp_world_size == 1 and self.num_workers <= 1
            done = self.batches_done if self._stands == "in" and self._chosen is None else 0
            # Of several streams each leaves out a rest of its own, and all end with the first.
            return TotalHint(kind="counted" if alone else "estimate", total=counted, done=done)
        return self._pipeline.hint_of(list(stream_states(self._loader_state())))

    def _geometry(self) -> dict[str, int]:
        topology = self._pipeline.topology
        return {
            "batch_size": self._pipeline.batch_size or 0,
            "dp_rank": topology.dp_rank,
            "dp_world_size": topology.dp_world_size,
            "num_workers": self.num_workers,
        }

    def _follow(self, epoch: int) -> None:
        """Follow a trainer's own count of epochs, forward only: it may begin at 0 again in a resumed run."""
        if epoch > self.epoch:
            self.set_epoch(epoch)

    def _loader_state(self) -> dict[str, Any]:
        """Return StatefulDataLoader's state of the pass that a state stands in; {} between passes."""
        if self._held is not None:
            return self._held
        state: dict[str, Any] = super().state_dict() if self._stands == "in" and self._chosen is None else {}
        return state

    def _begin(self) -> None:
        """Open the pass that is due: the rest of the one that a state stands in, or an epoch."""
        if self._chosen is None and self._pipeline.generation > self._begun and self._held is None:
            self._chosen = self._pipeline.epoch  # by set_epoch on the dataset
        held, chosen, self._held, self._chosen = self._held, self._chosen, None, None
        if held is not None and chosen in (None, self._epoch) and self._stands != "before":
            self._resume(held, asked_for=chosen is not None)
        elif chosen is not None:
            self._begin_epoch(chosen)
        else:
            self._begin_epoch(self._epoch + 1 if self._stands == "behind" else self._epoch)

    def _begin_epoch(self, epoch: int) -> None:
        self._epoch, self.batches_done, self._stands = epoch, 0, "in"
        self._pipeline.set_epoch(epoch)
        self._begun, self._may_go_on = self._pipeline.generation, False
        if not self.persistent_workers:
            self._drop()
        self._batches: Iterator[Any] = iter(super().__iter__())

    def _resume(self, held: dict[str, Any], *, asked_for: bool) -> None:
        self._may_go_on = not asked_for  # to the next epoch, if this one has nothing left
        self._begun = self._pipeline.generation
        self._drop()
        if self._stands == "behind":
            self._batches = iter(())
        else:
            super().load_state_dict(held)
            self._batches = iter(super().__iter__())
        self._stands = "in"

    def _next(self) -> Batch | None:
        """Return the next batch; None at the epoch's end, which comes to all ranks at once."""
        try:
            batch: Batch | None = next(self._batches, None)
        except BaseException:
            self._held = self._state_after_failure()
            raise
        everybody = self._pipeline.agreement.all_have(batch is not None)
        if everybody and batch is not None:
            self._may_go_on = False
            self.batches_done, self.step = self.batches_done + 1, self.step + 1
            return self._transfer.bring(batch)
        self._stands = "behind"
        if batch is not None:
            self._drop()  # others have nothing left; what the workers still have is left out
        if self._may_go_on:
            self._begin_epoch(self._epoch + 1)
            return self._next()
        if not self.batches_done:
            self._pipeline.refuse_emptiness(self._epoch)
        return None

    def _state_after_failure(self) -> dict[str, Any]:
        """Return where a new iterator goes on after this one has failed."""
        state: dict[str, Any] = super().state_dict()
        self._drop()
        return state

    def _drop(self) -> None:
        """Let StatefulDataLoader's iterator go, and with it the workers."""
        self._batches = iter(())
        super().load_state_dict({})
