"""Find the last of a rank's workers to come to an epoch's end, without locks.

What a live stream holds is not known before it has been read, so neither is which worker will be the last.
Each writes into a cell of its own, in memory that all share, and then looks at the cells of the others. Two
may find at the same time that they are the last; both are right.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

import torch

from tdstream.core.errors import ConfigError
from tdstream.distributed.shared_epoch import shared
from tdstream.distributed.topology import Worker

_MOST_WORKERS = 1024
_READING = -1


class EndBoard:
    """The workers of a rank that have come to the end of their streams."""

    def __init__(self) -> None:
        self._cells = shared(torch.full((_MOST_WORKERS,), _READING, dtype=torch.int64))

    def begin(self, worker: Worker) -> None:
        """Note that a worker begins a pass.

        Raises:
            ConfigError: If there are more workers than anybody has.
        """
        if worker.count > _MOST_WORKERS:
            raise ConfigError(f"a live stream takes up to {_MOST_WORKERS} workers, got {worker.count}.")
        self._cells[worker.id] = _READING

    def ends(self, worker: Worker, epoch: int) -> bool:
        """Note that a worker's stream has ended, and return whether those of all others have, too."""
        self._cells[worker.id] = epoch
        return bool((self._cells[: worker.count] == epoch).all())

    def __getstate__(self) -> dict[str, Any]:
        return {"cells": self._cells}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._cells = shared(state["cells"])


# Let the main process see how far the streams of its workers are, where only they know.
#
# A loader that is not ours runs the passes in its workers, and its state says nothing while they run. So each
# of them writes a few numbers into cells of its own, in memory that all share.

_EPOCH, _NUM_WORKERS = 0, 1
_NUMBERS = ("read", "served", "cut")


class ProgressBoard:
    """How far each worker of a rank is in its epoch; batches that it has made may still be on their way."""

    def __init__(self) -> None:
        self._cells = shared(torch.zeros((_MOST_WORKERS, 2 + len(_NUMBERS)), dtype=torch.int64))
        _all.add(self)

    def note(self, worker: Worker, counts: dict[str, int]) -> None:
        """Write where a worker's stream is."""
        numbers = [counts["epoch"], worker.count, *(counts[name] for name in _NUMBERS)]
        self._cells[worker.id] = torch.tensor(numbers)

    def newest(self) -> list[dict[str, int]]:
        """Return the places of the streams in the epoch that was begun last; none before all have begun."""
        rows = self._cells[: int(self._cells[:, _NUM_WORKERS].max())].tolist()
        if not all(row[_NUM_WORKERS] for row in rows):
            return []
        epoch = max((row[_EPOCH] for row in rows), default=0)
        return [dict(zip(_NUMBERS, row[2:], strict=True)) for row in rows if row[_EPOCH] == epoch]

    def forget(self) -> None:
        """Forget all of it; whoever still runs writes it again."""
        self._cells.zero_()

    def __getstate__(self) -> dict[str, Any]:
        self.forget()  # a worker that is spawned is about to begin
        return {"cells": self._cells}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._cells = shared(state["cells"])
        _all.add(self)


_all: weakref.WeakSet[ProgressBoard] = weakref.WeakSet()


def _forget_all() -> None:
    for whereabouts in list(_all):
        whereabouts.forget()


if hasattr(os, "register_at_fork"):  # workers are about to begin; what others wrote before is over
    os.register_at_fork(before=_forget_all)
