"""Workarounds for StatefulDataLoader 0.11."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import torch
from torch import Tensor

from tdstream.core.errors import StateError
from tdstream.core.state_schema import COUNT, FLAG, NONE, PART, integer, read_fields


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


_ONE_PROCESS = {
    "_sampler_iter_yielded": COUNT, "_num_yielded": COUNT, "_index_sampler_state": NONE,
    "_sampler_iter_state": NONE, "_IterableDataset_len_called": NONE, "_shared_seed": NONE,
    "fetcher_state": PART, "dataset_state": NONE, "_iterator_finished": FLAG,
}  # fmt: skip
_WORKERS = {"_snapshot": PART, "_steps_since_snapshot": COUNT, "_iterator_finished": FLAG}
_SNAPSHOT = {
    "_snapshot_step": COUNT, "_last_yielded_worker_id": COUNT, "_main_snapshot": PART,
    "_worker_snapshots": PART,
}  # fmt: skip
_MAIN = {
    "_num_workers": COUNT, "_sampler_iter_state": NONE, "_index_sampler_state": NONE,
    "_sampler_iter_yielded": COUNT, "_IterableDataset_len_called": NONE, "_shared_seed": NONE,
    "_base_seed": integer(0, 2**63 - 1),
}  # fmt: skip
_WORKER = {"worker_id": COUNT, "dataset_state": NONE, "fetcher_state": PART}
_FETCHER = {"dataset_iter_state": PART, "fetcher_ended": FLAG}


def read_processes(state: dict[str, Any], num_workers: int, batches: int) -> list[dict[str, Any]]:
    """Return what the processes of a loader saved, from its state after so many batches of an epoch.

    Raises:
        StateError: If it is no state of a loader with so many workers over an iterable dataset.
    """
    if num_workers == 0:
        found = read_fields("loader", state, _ONE_PROCESS)
        count, fetchers = found["_num_yielded"], [found["fetcher_state"]]
    else:
        found = read_fields("loader", state, _WORKERS)
        snapshot = read_fields("loader", found["_snapshot"], _SNAPSHOT)
        main = read_fields("loader", snapshot["_main_snapshot"], _MAIN)
        count = snapshot["_snapshot_step"] + found["_steps_since_snapshot"]
        workers = {f"worker_{number}": PART for number in range(num_workers)}
        saved = read_fields("loader", snapshot["_worker_snapshots"], workers)
        parts = [read_fields(name, part, _WORKER) for name, part in saved.items()]
        fetchers = [part["fetcher_state"] for part in parts]
        names = [part["worker_id"] for part in parts] == list(range(num_workers))
        known = len(snapshot["_worker_snapshots"]) == main["_num_workers"] == num_workers
        if not names or not known or snapshot["_last_yielded_worker_id"] >= num_workers:
            raise StateError(f"the state is not one of {num_workers} workers; it was cut or changed.")
    if count != batches:
        raise StateError(
            f"the state counts {batches:,} batches, but its loader {count:,}; it was cut or changed. Load "
            f"what state_dict() returned."
        )
    return [read_fields("loader", fetcher, _FETCHER)["dataset_iter_state"] for fetcher in fetchers]


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
