"""Workarounds for StatefulDataLoader 0.11."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch


@contextmanager
def silence_set_vital() -> Iterator[None]:
    """Let StatefulDataLoader be constructed: newer torch has deprecated or removed the set_vital it calls."""
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


def stop_workers(loader: Any) -> None:
    """Stop a loader's workers now, and let torch forget them.

    torch raises an error from a signal handler, at any place of the program, while it knows a worker that was
    killed; it knows the workers of an iterator until that is collected, which a traceback may delay.
    """
    stop = getattr(getattr(loader, "_iterator", None), "_shutdown_workers", None)
    if stop is not None:
        with suppress(RuntimeError):  # of that handler; the workers are forgotten all the same
            stop()


def batches_before(loader: Any) -> int:
    """Return the batches of the epoch before a loader's loaded state; 0 if that is unknown.

    StatefulDataLoader keeps a loaded state until the next iter() and has no method to ask for its counts.
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
