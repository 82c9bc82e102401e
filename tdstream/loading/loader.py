"""A StatefulDataLoader with one small state, equal on all ranks, that goes on under any geometry."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, overload

import numpy as np
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

from tdstream.core.checks import check_bool, check_int, check_seconds
from tdstream.core.errors import ConfigError
from tdstream.distributed.topology import current_worker
from tdstream.loading.device import Transfer
from tdstream.loading.iterator import Handout
from tdstream.loading.locate import Located, locate_step
from tdstream.loading.portable_state import dealing_of, legs_of, open_portable, portable_state
from tdstream.loading.stream_loader import StreamLoader
from tdstream.loading.torchdata_workarounds import begin_stateful, hook_sampler
from tdstream.nodes.batch import Batch
from tdstream.pipelines.build import build
from tdstream.pipelines.mixture import Mixture
from tdstream.pipelines.pipeline import LazyPipeline, Pipeline
from tdstream.pipelines.source_kind import heed_meanings
from tdstream.pipelines.views import View
from tdstream.schedule.mixture_schedule import Ints, Schedule
from tdstream.schedule.run_cursor import RunCursor, RunSpan
from tdstream.streams.stream_pipeline import StreamPipeline
from tdstream.streams.total_hint import TotalHint


def mixture_stats(journey: RunCursor, pipeline: Pipeline) -> dict[str, dict[str, int]]:
    """Return, by source, the samples and tokens that trainers were given, and its epochs that are through.

    Args:
        journey: Where the run stands.
        pipeline: What it reads.

    Raises:
        ConfigError: If that is no mixture.
    """
    if pipeline.mixture is None:
        raise ConfigError("mixture_stats() counts the sources of a mixture, and this is one source.")
    plan = pipeline.mixture.mixture_plan
    samples, epochs = _given(journey, plan.schedule), _used(plan.schedule, *journey.place)
    epochs //= plan.schedule.sizes
    return {
        name: {"samples": count, "tokens": count * pipeline.seq_len, "epochs": through}
        for name, count, through in zip(plan.names, samples.tolist(), epochs.tolist(), strict=True)
    }


def _given(journey: RunCursor, schedule: Schedule) -> Ints:
    """Return the samples of each source in the steps of a run; those before its oldest leg as if all were."""
    first = journey.legs[0]
    given = _used(schedule, first.epoch, first.position) if first.step else np.zeros_like(schedule.sizes)
    ends = [leg.step for leg in journey.legs[1:]] + [journey.step]
    for leg, end in zip(journey.legs, ends, strict=True):
        for epoch, begin, stop in _stretches(journey, leg, end - leg.step):
            given += _between(schedule, epoch, begin, stop)
    return given


def _stretches(journey: RunCursor, leg: RunSpan, steps: int) -> Iterator[tuple[int, int, int]]:
    """Yield (epoch, first position, position behind the last) of a leg's steps, epoch by epoch."""
    epoch, position = leg.epoch, leg.position
    while steps:
        here = min(journey.left_at((epoch, position), leg.global_batch), steps)
        yield epoch, position, position + here * leg.global_batch
        epoch, position, steps = epoch + 1, 0, steps - here


def _between(schedule: Schedule, epoch: int, begin: int, stop: int) -> Ints:
    """Return the samples of each source between positions; behind the end, of those that fill the epoch."""
    samples = schedule.num_samples(epoch)
    count: Ints = _used(schedule, epoch, stop) - _used(schedule, epoch, begin)
    if stop > samples:
        first = schedule.fills_from(epoch)
        times, rest = divmod(stop - samples, samples - first)
        start = _used(schedule, epoch, first)
        count = count + times * (_used(schedule, epoch, samples) - start)
        count = count + _used(schedule, epoch, first + rest) - start
    return count


def _used(schedule: Schedule, epoch: int, position: int) -> Ints:
    return schedule.used(epoch, min(position, schedule.num_samples(epoch)))


class Loader(StatefulDataLoader):  # type: ignore[misc]  # torchdata is not typed
    """A StatefulDataLoader over batches that counts, in the main process, what it has handed out.

    Its state says how many samples trainers were given, over all ranks. Made by `loader`.

    Args:
        pipeline: What `build(..., batch_size=...)` returned.
        num_workers: Worker processes of this rank.
        device: A CUDA device to bring batches to, ahead of the trainer, of which `prefetch` lie ready.
        prefetch: See device.
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
        pipeline: Pipeline,
        *,
        num_workers: int = 0,
        device: str | torch.device | None = None,
        prefetch: int = 2,
        **options: Any,
    ) -> None:
        splitter = pipeline.splitter
        options |= {"num_workers": num_workers, "snapshot_every_n_steps": 0}
        batch_size = begin_stateful(
            super().__init__, pipeline, batch_size=splitter.batch_size, options=options
        )
        self._pipeline = pipeline
        global_batch = batch_size * splitter.topology.dp_world_size
        self._journey = RunCursor(
            num_samples=splitter.upstream, global_batch=global_batch, wrap=splitter.tail == "wrap",
            batch_size=batch_size,
        )  # fmt: skip
        self._transfer = Transfer(device, prefetch)
        pipeline.collate.stays_packed = self._transfer.needed
        self._begun = 0  # the pipeline's number of the last pass that was opened here
        hook_sampler(self.sampler, self, lambda own, epoch: own._follow(epoch))

    def __iter__(self) -> Iterator[Batch]:
        """Return an iterator over one epoch, or its rest; it begins when its first batch is asked for."""
        return Handout(self._journey, self._open)

    def __bool__(self) -> bool:
        """Be true: to ask is no reason to tokenize."""
        return True

    def __len__(self) -> int:
        """Batches of this epoch on this rank, equal on all ranks; after a load, those before it included."""
        return self._journey.num_batches

    def total_hint(self) -> TotalHint:
        """Return `len(self)`, and how many of those batches lie behind the running, or the next, pass."""
        return TotalHint(kind="counted", total=len(self), done=self._journey.behind)

    @property
    def epoch(self) -> int:
        """The epoch that is being served; at its end still this one."""
        return self._journey.place[0]

    @property
    def position(self) -> int:
        """Samples of this epoch that trainers were given or that were left out, over all ranks."""
        return self._journey.place[1]

    @property
    def batches_done(self) -> int:
        """Batches of this epoch that this rank was given, or that were left out."""
        return 0 if self._journey.place[1] == 0 else self._journey.batches_done

    @property
    def tokens_done(self) -> int:
        """Tokens of this epoch that trainers were given as labels, over all ranks: position times seq_len."""
        return self.position * self._pipeline.seq_len

    @property
    def step(self) -> int:
        """Batches handed out in the whole run, over all epochs and restarts."""
        return self._journey.step

    def state_dict(self) -> dict[str, Any]:
        """Return the portable state; no worker is asked or started."""
        self._hear()
        splitter = self._pipeline.splitter
        dealing = dealing_of(self._journey, splitter.topology.dp_world_size, splitter.tail)
        return portable_state(*self._journey.place, self._pipeline.identities(), dealing)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go to the place of a portable state, saved under any geometry; iterators made before become stale.

        A mixture goes on with the sources and weights that it has here, each source where it was.

        Raises:
            StateError: If it belongs to other data or settings, or is no portable state; nothing is loaded.
        """
        epoch, position, nodes = open_portable(state_dict)
        self._pipeline.compare(nodes)
        plan, splitter = self._pipeline.plan_after(nodes, (epoch, position)), self._pipeline.splitter
        lengths = plan.schedule if plan else splitter.upstream
        step, done, legs = legs_of(nodes["splitter"], epoch, position, lengths, splitter.tail)
        self._pipeline.follow(plan)
        self._transfer.end()
        super().load_state_dict({})  # drops StatefulDataLoader's iterator, and with it the workers
        self._journey.overtake()
        self._journey.restore((epoch, position), step, done, legs)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass; after a load, the epoch of the state keeps its position.

        Raises:
            ConfigError: If it is not an integer of at least 0.
        """
        self._journey.choose(check_int("epoch", epoch, at_least=0))

    def skip(self, num_batches: int) -> None:
        """Leave out the next global batches, on every rank alike; a running loop goes on behind them.

        Raises:
            ConfigError: If the number is not an integer of at least 0.
        """
        self._hear()
        self._journey.skip(check_int("num_batches", num_batches, at_least=0))

    def locate(self, step: int, rank: int | None = None) -> Located:
        """Say which samples a past or future step of this run had or will have; no tokens are read.

        Args:
            step: The step, counted from 0 over the whole run, as in `self.step`.
            rank: Only the rows of this data-parallel rank; None means the global batch.

        Raises:
            ConfigError: If the step lies before what the state remembers, or there is no such rank.
        """
        step, nodes = check_int("step", step, at_least=0), self._pipeline.identities()
        return locate_step(
            self._journey, nodes, step, rank, self._pipeline.shards(), self._pipeline.readers()
        )

    def mixture_stats(self) -> dict[str, dict[str, int]]:
        """Return, by source, what trainers were given in this run: "samples", "tokens", and whole "epochs".

        Raises:
            ConfigError: If the loader reads no mixture.
        """
        return mixture_stats(self._journey, self._pipeline)

    def _follow(self, epoch: int) -> None:
        """Follow a trainer's own count of epochs, forward only: it may begin at 0 again in a resumed run."""
        if self._journey.untouched or epoch > self.epoch:
            self.set_epoch(epoch)

    def _hear(self, again: bool = False) -> None:
        """Take note of an epoch chosen on the dataset; a place that is held wins over it."""
        asked = self._pipeline.asked_since(self._begun)
        if asked is not None and (again or not self._journey.held):
            self._begun = self._pipeline.generation
            self._journey.choose(asked)

    def _open(self, again: bool) -> Iterator[Any]:
        """Open a pass where the journey says that it begins, or the running one again where it is now."""
        self._transfer.end()
        self._hear(again)
        failed = self._journey.failed
        epoch, position = self._journey.resume() if again else self._journey.begin()
        self._begun = self._pipeline.begin_at(epoch, position)
        if self._journey.leads_nowhere:
            self._pipeline.splitter.begin(epoch, current_worker())  # which refuses it, if strict
        if self._journey.left == 0:
            return iter(())
        return self._transfer.begin(self._batches(fresh=failed or not self.persistent_workers))

    def _batches(self, *, fresh: bool) -> Iterator[Any]:
        """Return the batches of a pass that the pipeline was told of, from new workers or the old ones."""
        if self.num_workers == 0 and not self.pin_memory:
            return iter(self._pipeline)  # StatefulDataLoader would add nothing but its costs
        if fresh:
            super().load_state_dict({})  # drops StatefulDataLoader's iterator, and with it the workers
        return iter(super().__iter__())


@overload
def loader(
    source: str | os.PathLike[str] | View | Mapping[str, Any] | Mixture, *, batch_size: int, **options: Any
) -> Loader: ...


@overload
def loader(source: Any, *, batch_size: int, **options: Any) -> Loader | StreamLoader: ...


def loader(
    source: Any,
    *,
    batch_size: int,
    num_workers: int = 0,
    pin_memory: bool = False,
    device: str | torch.device | None = None,
    prefetch: int = 2,
    prefetch_factor: int | None = None,
    persistent_workers: bool = False,
    multiprocessing_context: Any = None,
    timeout: float = 0,
    worker_init_fn: Callable[[int], None] | None = None,
    **build_options: Any,
) -> Loader | StreamLoader:
    """Return a loader over `build(source, batch_size=batch_size, **build_options)`.

    Args:
        source: What `build` takes. The loader has the portable state; over a live stream, a state of each
            rank's own, which goes on with the same ranks, workers and batch size. A list or a dataset is
            tokenized here.
        batch_size: B, samples per rank and step.
        num_workers: Worker processes of this rank.
        pin_memory: Whether batches are copied to pinned memory.
        device: A CUDA device to bring batches to, ahead of the trainer; on CPU nothing is done.
        prefetch: Batches that lie ready on the device; those of a live stream are brought when asked for.
        prefetch_factor: As DataLoader's, like the four that follow.
        persistent_workers: Whether workers live on between epochs.
        multiprocessing_context: "fork", "spawn", "forkserver" or a context.
        timeout: Seconds to wait for a worker's batch; 0 waits for ever.
        worker_init_fn: Called in each worker with its number.
        **build_options: The arguments of `build`.

    Raises:
        TdstreamError: As `build`.
    """
    options = {
        "num_workers": check_int("num_workers", num_workers, at_least=0),
        "pin_memory": check_bool("pin_memory", pin_memory),
        "device": device,
        "prefetch_factor": prefetch_factor,
        "persistent_workers": check_bool("persistent_workers", persistent_workers),
        "multiprocessing_context": multiprocessing_context,
        "timeout": check_seconds("timeout", timeout),
        "worker_init_fn": worker_init_fn,
    }
    if prefetch_factor is not None:
        options["prefetch_factor"] = check_int("prefetch_factor", prefetch_factor, at_least=1)
    if worker_init_fn is not None and not callable(worker_init_fn):
        raise ConfigError(f"worker_init_fn must be a function of a worker's number, got {worker_init_fn!r}.")
    pipeline = build(source, batch_size=batch_size, **build_options)
    if isinstance(pipeline, StreamPipeline):
        heed_meanings("stream", quiet=pipeline.topology.dp_rank > 0, prefetch=prefetch)
        return StreamLoader(pipeline, **options)
    if isinstance(pipeline, LazyPipeline):
        pipeline = pipeline.made
    return Loader(pipeline, prefetch=prefetch, **options)
