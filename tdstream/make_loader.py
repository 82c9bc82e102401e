"""Make the loader that a source needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, overload

import torch

from tdstream.build import build
from tdstream.checks import flag, seconds, whole
from tdstream.errors import ConfigError
from tdstream.live_loader import LiveLoader
from tdstream.loader import Loader
from tdstream.mixtures.mixture import Mixture
from tdstream.sources.lazy import LazyPipeline
from tdstream.sources.meaning import heed_meanings
from tdstream.streams.pipeline import StreamPipeline
from tdstream.views import View


@overload
def loader(
    source: str | os.PathLike[str] | View | Mapping[str, Any] | Mixture, *, batch_size: int, **options: Any
) -> Loader: ...


@overload
def loader(source: Any, *, batch_size: int, **options: Any) -> Loader | LiveLoader: ...


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
) -> Loader | LiveLoader:
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
        "num_workers": whole("num_workers", num_workers, at_least=0),
        "pin_memory": flag("pin_memory", pin_memory),
        "device": device,
        "prefetch_factor": prefetch_factor,
        "persistent_workers": flag("persistent_workers", persistent_workers),
        "multiprocessing_context": multiprocessing_context,
        "timeout": seconds("timeout", timeout),
        "worker_init_fn": worker_init_fn,
    }
    if prefetch_factor is not None:
        options["prefetch_factor"] = whole("prefetch_factor", prefetch_factor, at_least=1)
    if worker_init_fn is not None and not callable(worker_init_fn):
        raise ConfigError(f"worker_init_fn must be a function of a worker's number, got {worker_init_fn!r}.")
    pipeline = build(source, batch_size=batch_size, **build_options)
    if isinstance(pipeline, StreamPipeline):
        heed_meanings("stream", quiet=pipeline.topology.dp_rank > 0, prefetch=prefetch)
        return LiveLoader(pipeline, **options)
    if isinstance(pipeline, LazyPipeline):
        pipeline = pipeline.made
    return Loader(pipeline, prefetch=prefetch, **options)
