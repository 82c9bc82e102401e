"""Find the last of a rank's workers to come to an epoch's end, without locks.

What a live stream holds is not known before it has been read, so neither is which worker will be the last.
Each writes into a cell of its own, in memory that all share, and then looks at the cells of the others. Two
may find at the same time that they are the last; both are right.
"""

from __future__ import annotations

from typing import Any

import torch

from tdstream.errors import ConfigError
from tdstream.shared_cells import shared
from tdstream.topology import Worker

_MOST_WORKERS = 1024
_READING = -1


class RollCall:
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
