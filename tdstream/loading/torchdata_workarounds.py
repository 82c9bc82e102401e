"""Workarounds for StatefulDataLoader 0.11."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import torch
from torch import Tensor


class WorkerSeeds:
    """A generator for the seeds of a loader's workers, so that the trainer's random state stays as it is.

    DataLoader draws a seed for each pass, from torch's global generator if it is given no other. This one
    draws the same numbers: it continues from the global state, and follows it where the trainer moved it.
    """

    def __init__(self) -> None:
        self.generator = torch.Generator()
        self._followed: Tensor | None = None

    @contextmanager
    def follow(self) -> Iterator[None]:
        """Prepare the generator for a pass that is opened in this context."""
        state = torch.get_rng_state()
        if self._followed is None or not torch.equal(state, self._followed):
            self.generator.set_state(state)
            self._followed = state
        # The seed would be drawn on another default device, for which this generator is not.
        elsewhere = torch.empty(0).device.type != "cpu"
        with torch.device("cpu") if elsewhere else nullcontext():
            yield


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
