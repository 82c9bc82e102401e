"""A loader with one small state, equal on all ranks, that resumes under any geometry; and `loader` itself."""

from __future__ import annotations

import difflib
import inspect
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, overload

import torch

from tdstream.core.checks import check_bool, check_int, check_seconds
from tdstream.core.errors import ConfigError
from tdstream.distributed.topology import current_worker
from tdstream.loading.accelerate_state import (
    accelerate_device,
    add_to_gradient_state,
    remove_from_gradient_state,
)
from tdstream.loading.device import Transfer
from tdstream.loading.loader_base import LoaderBase
from tdstream.loading.locate import Located, SavedPipeline, locate_step
from tdstream.loading.mixture_counts import count_mixture
from tdstream.loading.portable_state import (
    SavedPartition,
    describe_partition,
    make_portable_state,
    open_portable,
)
from tdstream.loading.stream_loader import StreamLoader
from tdstream.nodes.base import TokenSource
from tdstream.nodes.batch import Batch
from tdstream.pipelines.build import build
from tdstream.pipelines.mixture import Mixture
from tdstream.pipelines.pipeline import Pipeline
from tdstream.pipelines.source_kind import apply_option_rules
from tdstream.pipelines.views import View
from tdstream.schedule.run_cursor import RunCursor
from tdstream.streams.stream_pipeline import StreamPipeline
from tdstream.streams.total_hint import TotalHint

logger = logging.getLogger(__name__)


class Loader(LoaderBase):
    """A loader that counts, in the main process, the batches it has handed out. Made by `loader`.

    Its state says how many samples trainers were given over all ranks, and loads under any geometry.

    Args:
        pipeline: What `build(..., batch_size=...)` returned.
        num_workers: Worker processes of this rank.
        device: A CUDA device to copy batches to, ahead of the trainer.
        prefetch: Batches kept ready on the device.
        **options: Further arguments of StatefulDataLoader: pin_memory, prefetch_factor, persistent_workers,
            multiprocessing_context, timeout, worker_init_fn.

    Raises:
        ConfigError: If the pipeline yields single samples, or in_order=False is given.
    """

    _pipeline: Pipeline

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
        self._given = {"num_workers": num_workers, "device": device, "prefetch": prefetch, **options}
        options |= {"num_workers": num_workers, "snapshot_every_n_steps": 0}
        super().__init__(
            pipeline, batch_size=splitter.batch_size, transfer=Transfer(device, prefetch), options=options
        )
        batch_size = splitter.batch_size or 1
        self._cursor = RunCursor(
            num_samples=splitter.upstream, global_batch=batch_size * splitter.topology.dp_world_size,
            wrap=splitter.tail == "wrap", keep=splitter.tail == "keep", batch_size=batch_size,
        )  # fmt: skip
        self._pass_epoch = -1
        self._has_skipped = False  # since the pass was opened

    def __len__(self) -> int:
        """Batches of this epoch on this rank, equal on all ranks; those before a resume are included.

        At an epoch's end those of the next one, which differ if batch size or ranks changed in the middle.
        """
        return self._cursor.num_batches

    def __repr__(self) -> str:
        """Return the place, and the nodes from left to right."""
        done, total = self._cursor.done, len(self)
        if self._cursor.complete and self.position:  # of this epoch; the length is the next one's
            done = total = self.batches_done
        place = f"epoch {self.epoch:,}, batch {done:,} of {total:,}, step {self.step:,}"
        return f"Loader({place}, {self.num_workers} workers: {self._pipeline!r})"

    def total_hint(self) -> TotalHint:
        """Return `len(self)`, and how many of those batches come before the running or next pass."""
        return TotalHint(kind="counted", total=len(self), done=self._cursor.done)

    @property
    def epoch(self) -> int:
        """The epoch being served; at its end still this one."""
        return self._cursor.place[0]

    @property
    def position(self) -> int:
        """Samples of this epoch that trainers were given or that were skipped, over all ranks."""
        return self._cursor.place[1]

    @property
    def batches_done(self) -> int:
        """Batches of this epoch, at its end still this one, that this rank was given or that were skipped."""
        return 0 if self.position == 0 else self._cursor.batches_done

    @property
    def tokens_done(self) -> int:
        """Tokens of this epoch that trainers were given as labels, over all ranks: position times seq_len."""
        return self.position * self._pipeline.seq_len

    @property
    def step(self) -> int:
        """Batches handed out in the whole run, over all epochs and restarts."""
        return self._cursor.step

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the batch that was just handed out is the last of its pass; accelerate asks."""
        return self._cursor.left == 0

    @property
    def remainder(self) -> int:
        """Samples in the last global batch that repeated ones fill; accelerate's gather drops those.

        0 if it is whole or, with "keep", smaller: a row without a sample has no labels.
        """
        return self.last_samples if self._pipeline.splitter.tail == "wrap" else 0

    @property
    def last_samples(self) -> int:
        """Samples that the epoch has for an incomplete last global batch; 0 if it has only whole ones."""
        cursor = self._cursor
        span, epoch = cursor.spans[-1], cursor.served_epoch
        begin = span.position if span.epoch == epoch else 0
        return (self._pipeline.splitter.upstream.num_samples(epoch) - begin) % cursor.global_batch

    def state_dict(self) -> dict[str, Any]:
        """Return the portable state; no worker is asked or started."""
        self._note_dataset_epoch()
        splitter = self._pipeline.splitter
        partition = describe_partition(self._cursor, splitter.topology.dp_world_size, splitter.tail)
        return make_portable_state(*self._cursor.place, self._pipeline.identities(), partition)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go to the place of a portable state saved under any geometry; existing iterators become stale.

        A mixture continues with the sources and weights it has here, each source where it was.

        Raises:
            StateError: If it belongs to other data or settings, or is no portable state; nothing is loaded.
        """
        epoch, position, nodes = open_portable(state_dict)
        self._pipeline.compare(nodes)
        splitter, saved = self._pipeline.splitter, SavedPartition.read(nodes["splitter"])
        plan = self._pipeline.plan_after(nodes, (epoch, position), saved.global_batch)
        lengths = splitter.upstream if plan is None else plan.schedule
        progress = saved.progress_at(epoch, position, lengths, splitter.tail)
        self._pipeline.follow(plan)
        self._transfer.end()
        self._drop_workers()
        self._retire_iterator()
        self._cursor.restore((epoch, position), *progress)

    def skip(self, num_batches: int) -> None:
        """Skip the next global batches, the same on every rank; a running loop continues after them.

        Raises:
            ConfigError: If the number is not an integer of at least 0.
        """
        self._note_dataset_epoch()
        self._cursor.skip(check_int("num_batches", num_batches, at_least=0))
        self._has_skipped |= num_batches > 0

    def locate(self, step: int, rank: int | None = None) -> Located:
        """Return which samples a past or future step of this run has, without reading tokens.

        Args:
            step: The step, counted from 0 over the whole run, as in `self.step`.
            rank: Only the rows of this data-parallel rank; None means the global batch.

        Raises:
            ConfigError: If the step is older than what the state remembers, or there is no such rank.
        """
        step, pipeline = check_int("step", step, at_least=0), self._pipeline
        saved = SavedPipeline(pipeline.identities())
        return locate_step(self._cursor, saved, step, rank, pipeline.shards(), pipeline.readers())

    def mixture_stats(self) -> dict[str, dict[str, int]]:
        """Return, by source, what trainers were given in this run: "samples", "tokens", complete "epochs".

        Raises:
            ConfigError: If the loader reads no mixture.
        """
        return count_mixture(self._cursor, self._pipeline)

    def _choose(self, epoch: int) -> None:
        self._generation = self._pipeline.generation  # this is the newer word
        held, position = self._cursor.place
        if self._cursor.resumes and position and epoch < held:
            logger.warning(
                "set_epoch(%d) leaves the place that was loaded, epoch %d, position %s: its rest is not "
                "served, and "
                "epoch %d is served from its beginning.", epoch, held, f"{position:,}", epoch,
            )  # fmt: skip
        self._cursor.choose(epoch)

    def _note_dataset_epoch(self, again: bool = False) -> None:
        """Take over an epoch chosen by `loader.dataset.set_epoch`, unless the next pass resumes a place."""
        asked = self._pipeline.asked_since(self._generation)
        if asked is not None and (again or not self._cursor.resumes):
            self._generation = self._pipeline.generation
            self._cursor.choose(asked)

    def _begin_pass(self) -> None:
        if self._was_prepared:
            self._follow_accelerate()
        self._open()

    def _follow_accelerate(self) -> None:
        """Do what prepare() promises: tell GradientState, and put batches on accelerate's device."""
        device = accelerate_device() if self._given["device"] is None else None
        if device is not None and not self._transfer.needed:
            self._transfer = Transfer(device, self._given["prefetch"])
            self._pipeline.collate.stays_packed = True
            self._drop_workers()  # persistent ones would go on unpacking
        add_to_gradient_state(self)

    def _open(self, again: bool = False) -> None:
        """Open the pass that is due, or the running one again after skipped batches."""
        self._transfer.end()
        self._note_dataset_epoch(again)
        epoch, position = self._cursor.reopen() if again else self._cursor.begin()
        self._generation = self._pipeline.begin_at(epoch, position)
        if self._cursor.has_no_batches:
            self._pipeline.splitter.begin(epoch, current_worker())  # which refuses it, if strict
        self._pass_epoch, self._has_skipped = self._cursor.served_epoch, False
        self._batches = iter(())
        if self._cursor.left:
            self._batches = self._transfer.begin(self._read())

    def _read(self) -> Iterator[Any]:
        """Return the batches of the pass that was just chosen, from new workers unless they persist."""
        if self.num_workers == 0 and not self.pin_memory:
            with self._pipeline.opened_by_owner():
                return iter(self._pipeline)  # StatefulDataLoader would add only its cost
        if not self.persistent_workers:
            self._drop_workers()
        return self._open_workers()

    def _take(self) -> Batch | None:
        cursor = self._cursor
        if self._has_skipped and cursor.served_epoch == self._pass_epoch:
            self._open(again=True)
        elif self._has_skipped:  # out of the epoch
            self._batches = iter(())
        batch: Batch | None = next(self._batches, None)
        if batch is not None:
            cursor.count_batch()
            return batch
        if cursor.left and not self._has_skipped:
            raise RuntimeError(f"the workers ended {cursor.left:,} batches before the epoch's end.")
        self._leave_pass()
        return None

    def _mark(self) -> tuple[dict[str, Any], bool]:
        return self._cursor.save(), self._has_skipped

    def _go_back(self, mark: tuple[dict[str, Any], bool]) -> None:
        cursor, self._has_skipped = mark
        self._cursor.go_back(cursor)

    def _fail_pass(self) -> None:
        self._cursor.fail()
        self._transfer.end()
        self._drop_workers()
        if self._was_prepared:
            remove_from_gradient_state(self)

    def _leave_pass(self) -> None:
        self._cursor.finish()
        if self._was_prepared:
            remove_from_gradient_state(self)


@overload
def loader(
    source: str | os.PathLike[str] | View | Mapping[str, Any] | Mixture | TokenSource | Pipeline,
    *,
    batch_size: int,
    **options: Any,
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
        source: What `build` takes, or a pipeline that has the same batch size; it leaves no options for
            `build`. The loader's state is portable; over a live stream each rank has a state
            of its own, which resumes with the same ranks, workers and batch size.
        batch_size: B, samples per rank and step.
        num_workers: Worker processes of this rank.
        pin_memory: Whether batches are copied to pinned memory.
        device: A CUDA device to copy batches to, ahead of the trainer; on the CPU nothing is done.
        prefetch: Batches kept ready on the device; those of a live stream are copied when asked for.
        prefetch_factor: As in DataLoader, like the four below.
        persistent_workers: Whether workers stay alive between epochs.
        multiprocessing_context: "fork", "spawn", "forkserver" or a context.
        timeout: Seconds to wait for a worker's batch; 0 waits forever.
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
    if isinstance(source, (Pipeline, StreamPipeline)):
        pipeline = _check_pipeline(source, batch_size, build_options)
    else:
        _check_names(build_options)
        pipeline = build(source, batch_size=batch_size, **build_options)
    if isinstance(pipeline, StreamPipeline):
        apply_option_rules("stream", quiet=pipeline.topology.dp_rank > 0, prefetch=prefetch)
        return StreamLoader(pipeline, **options)
    return Loader(pipeline, prefetch=prefetch, **options)


def _join_signatures(outer: Callable[..., Any], inner: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function that passes its keyword arguments on, with all of them by name."""
    own, passed = inspect.signature(outer), inspect.signature(inner)
    named = {name: one for name, one in own.parameters.items() if one.kind is not one.VAR_KEYWORD}
    added = [one for name, one in passed.parameters.items() if name not in named]
    return own.replace(parameters=[*named.values(), *added])


loader.__signature__ = _join_signatures(loader, build)  # type: ignore[attr-defined]  # what help() shows


def _check_names(options: dict[str, Any]) -> None:
    """Raise TypeError for an argument that `build` does not have, as Python would for one of `loader`."""
    known = list(inspect.signature(loader).parameters)
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f". Did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"loader() got an unexpected keyword argument {name!r}{hint}")


def _check_pipeline(
    pipeline: Pipeline | StreamPipeline, batch_size: int, build_options: dict[str, Any]
) -> Pipeline | StreamPipeline:
    """Return a pipeline; refuse what it would ignore."""
    own = pipeline.splitter.batch_size if isinstance(pipeline, Pipeline) else pipeline.batch_size
    if batch_size != own:
        raise ConfigError(f"the pipeline's batch_size is {own}, not {batch_size}. Pass the same one.")
    if build_options:
        raise ConfigError(
            f"the source is a pipeline already, which {', '.join(build_options)} would not change. Pass what "
            f"`build` takes, or leave them out."
        )
    return pipeline
