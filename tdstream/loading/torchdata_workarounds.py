"""What loaders and trainers of other projects need to be told, so that nobody else has to know it."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from tdstream.core.errors import ConfigError
from tdstream.nodes.batch import hand_on

_Owner = TypeVar("_Owner")


@contextmanager
def set_vital_silenced() -> Iterator[None]:
    """Let StatefulDataLoader 0.11 be built: it uses a torch function that warns by now, or is gone."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*set_vital.*")
        missing = not hasattr(torch, "set_vital")
        if missing:
            setattr(torch, "set_vital", lambda *_: True)  # noqa: B010 - not in torch, says the type checker
        try:
            yield
        finally:
            if missing:
                delattr(torch, "set_vital")


def begin_stateful(
    init: Callable[..., None], pipeline: Any, *, batch_size: int | None, options: dict[str, Any]
) -> int:
    """Let StatefulDataLoader begin as the part of a loader of ours that starts workers.

    Args:
        init: Its `__init__`, bound to the loader.
        pipeline: The dataset, which makes whole batches.
        batch_size: B of the pipeline.
        options: Further arguments of it.

    Returns:
        B.

    Raises:
        ConfigError: If the pipeline yields single samples, or in_order=False is asked for.
    """
    if batch_size is None:
        raise ConfigError(
            "tdstream.loader needs batch_size: single samples have no global order, and no steps to count."
        )
    if not options.get("in_order", True):
        raise ConfigError("in_order=False gives up the order, on which the state counts. Leave it out.")
    with set_vital_silenced():
        init(pipeline, batch_size=None, collate_fn=hand_on, **options)
    return batch_size


def hook_sampler(sampler: Any, owner: _Owner, set_epoch: Callable[[_Owner, int], None]) -> None:
    """Give a loader's sampler the set_epoch() that trainers call who know nothing else (Lightning does).

    Args:
        sampler: The loader's sampler.
        owner: Who is told the epoch; known by a weak reference, since a cycle would keep workers alive.
        set_epoch: Called with the owner and the epoch.
    """
    weak = weakref.ref(owner)

    def hook(epoch: int) -> None:
        alive = weak()
        if alive is not None:
            set_epoch(alive, epoch)

    sampler.set_epoch = hook


def batches_before(loader: Any) -> int:
    """Return the batches of its epoch that a loader's loaded state has behind it; 0 where none is to be seen.

    A StatefulDataLoader keeps a loaded state until the next iter(); what it counts there has no interface.
    """
    state = getattr(loader, "next_iter_state", None)
    if not isinstance(state, dict):
        return 0
    workers = state.get("_snapshot")
    if isinstance(workers, dict):
        numbers = [workers.get("_snapshot_step"), state.get("_steps_since_snapshot")]
    else:
        numbers = [state.get("_num_yielded")]
    return sum(number if isinstance(number, int) else 0 for number in numbers)
