"""A board in shared memory on which the workers of a rank note how far their streams are.

How much a live stream holds is known only when it has been read, so which worker will end an epoch last is
unknown. Each writes into a row of its own, without locks, and then looks at the rows of the others; two
may find at the same time that they are last, and both are right. The main process reads the same rows to
show progress where a loader that is not ours runs the passes.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

import torch

from tdstream.core.errors import ConfigError
from tdstream.distributed.shared_memory import check_can_be_sent, check_shared, share
from tdstream.distributed.topology import Worker

_MAX_WORKERS = 1024
_COUNTS = ("read", "served", "cut")
# The columns of a worker's row: the epoch whose end it has reached, and its progress.
_ENDED, _EPOCH, _NUM_WORKERS, _FIRST_COUNT = range(4)
_READING = -1


class WorkerBoard:
    """Which workers of a rank have ended an epoch, and how far each is; batches may still be on their way."""

    def __init__(self) -> None:
        size = _MAX_WORKERS, _FIRST_COUNT + len(_COUNTS)
        self._rows = share(torch.zeros(size, dtype=torch.int64, device="cpu"))
        self._rows[:, _ENDED] = _READING
        _boards.add(self)

    def begin(self, worker: Worker) -> None:
        """Note that a worker begins a pass."""
        if worker.count > _MAX_WORKERS:
            raise ConfigError(f"a live stream takes up to {_MAX_WORKERS} workers, got {worker.count}.")
        if worker.is_process:
            check_shared(self._rows)
        self._rows[worker.id, _ENDED] = _READING

    def end(self, worker: Worker, epoch: int) -> bool:
        """Note that a worker has read its stream; return whether all others have read theirs, too."""
        self._rows[worker.id, _ENDED] = epoch
        return bool((self._rows[: worker.count, _ENDED] == epoch).all())

    def note_progress(self, worker: Worker, counts: dict[str, int]) -> None:
        """Note how far a worker's stream is."""
        numbers = [counts["epoch"], worker.count, *(counts[name] for name in _COUNTS)]
        self._rows[worker.id, _EPOCH:] = torch.tensor(numbers, device="cpu")

    def read_progress(self) -> list[dict[str, int]]:
        """Return the counts of the workers in the newest epoch; [] until every worker has noted some."""
        rows = self._rows[: int(self._rows[:, _NUM_WORKERS].max())].tolist()
        if not all(row[_NUM_WORKERS] for row in rows):
            return []
        epoch = max((row[_EPOCH] for row in rows), default=0)
        return [dict(zip(_COUNTS, row[_FIRST_COUNT:], strict=True)) for row in rows if row[_EPOCH] == epoch]

    def forget_progress(self) -> None:
        """Clear the progress of all workers; those still running note theirs again."""
        self._rows[:, _EPOCH:] = 0

    def __getstate__(self) -> dict[str, Any]:
        self.forget_progress()  # a spawned worker is about to begin
        check_can_be_sent(self._rows)
        return {"rows": self._rows}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._rows = share(state["rows"])
        _boards.add(self)


_boards: weakref.WeakSet[WorkerBoard] = weakref.WeakSet()


def _forget_all() -> None:
    for board in list(_boards):
        share(board._rows)
        board.forget_progress()


if hasattr(os, "register_at_fork"):  # new workers are about to begin: what earlier ones noted is over
    os.register_at_fork(before=_forget_all)
