"""Numbers in memory that a dataset and its copies in workers share; above all the epoch of the next pass.

A loader with workers never calls its dataset in the main process: forked or spawned copies open the passes,
and copies that live on ("persistent workers") never see what set_epoch() does to the original. So the epoch
is kept in one shared int64 tensor, which torch hands to workers under fork, spawn and forkserver alike. It is
written without locks, by one writer at a time:

- the main process writes in set_epoch(), while no pass is being opened;
- in a pass, only the worker that serves the rank's *last* item writes, when that item has been produced, or
  when it is restored from a checkpoint. Every sibling has opened the pass by then.

A pass remembers the generation of set_epoch() that it saw when it was opened, and acknowledges only that
one: batches of an abandoned pass may still be produced when the main process has already set the next epoch.

Persistent workers open each later pass at their own time, and the last item of an abandoned pass may be
produced in between. So worker 0 reads the cells for all of them, and its siblings take what it read.
"""

from __future__ import annotations

import os
import time
import weakref
from dataclasses import dataclass
from typing import Any

import torch

from tdstream.core.checks import check_int
from tdstream.distributed.shared_memory import check_can_be_sent, check_shared, share

# The cells of the shared tensor.
_NEXT = 0  # the epoch of the next pass, unless a newer set_epoch() says otherwise
_SET = 1  # the epoch that set_epoch() chose
_GENERATION = 2  # how often set_epoch() was called
_SERVED = 3  # the newest generation whose pass has ended, or that a checkpoint has overruled
_START = 4  # the position at which the chosen epoch begins
_KEPT = 32  # passes whose beginning worker 0 keeps for siblings; it may be some ahead of them
_FIELDS = 5  # of each: the number of the pass, the seed of the workers, the epoch, the generation, the start
_FIRST = 5  # the first of these cells
_CELLS = _FIRST + _FIELDS * _KEPT
_PATIENCE_S = 60.0  # for worker 0, which opens each pass when its siblings do


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over the data, as it was when it was opened."""

    epoch: int
    generation: int
    start: int = 0
    """The position at which it begins; above 0 only where it continues an epoch under another geometry."""


class SharedCells:
    """Integers of 64 bits, shared by copies of itself in other processes."""

    def __init__(self, cells: int) -> None:
        self._cells = share(torch.zeros(cells, dtype=torch.int64, device="cpu"))
        self._at_start: list[int] | None = None
        self._passes = 0  # opened by this worker process, with its siblings
        _shared.add(self)

    def read(self) -> list[int]:
        """Return the cells as they are now."""
        return [int(cell) for cell in self._cells.tolist()]

    def write(self, cells: list[int]) -> None:
        """Change the cells, here and in copies in other processes, while no pass is being opened."""
        self._cells.copy_(torch.tensor(cells, dtype=torch.int64, device="cpu"))

    def read_for_pass(self, *, in_worker: bool) -> list[int]:
        """Return the cells as a pass that begins now must see them.

        The first pass of a worker process is the one it was started for: before it came to run, the main
        process or a sibling may have changed the cells.
        """
        if in_worker:
            check_shared(self._cells)
        started, self._at_start = self._at_start, None
        return started if in_worker and started is not None else self.read()

    def _note_start(self) -> None:
        """Keep what a process about to be started must see in its first pass."""
        self._at_start = share(self._cells).tolist()

    def __getstate__(self) -> dict[str, Any]:
        check_can_be_sent(self._cells)
        return {"cells": self._cells, "at_start": self._cells.tolist()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy by copy.deepcopy or plain pickle has cells of its own, in shared memory of its own.
        self._cells = share(state["cells"])
        self._at_start = state["at_start"]
        self._passes = 0
        _shared.add(self)


class SharedEpoch(SharedCells):
    """The epoch of the next pass, shared by copies of itself in other processes."""

    def __init__(self) -> None:
        super().__init__(_CELLS)

    @property
    def epoch(self) -> int:
        """The epoch that the next pass serves, or that the running one is in."""
        return _read_epoch(self._cells[:_FIRST].tolist())

    @property
    def generation(self) -> int:
        """How often set_epoch() was called."""
        return int(self._cells[_GENERATION])

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Choose the next pass's epoch and first position, here and in workers that are already running."""
        self._cells[_SET] = check_int("epoch", epoch, at_least=0)
        self._cells[_START] = start
        self._cells[_GENERATION] += 1

    def open_together(self, worker_id: int, seed: int) -> Pass:
        """Begin a pass in one of several workers, the same in all of them; `seed` is common to them alone."""
        self._passes += 1
        number, begun = self._passes, time.monotonic()
        first = _FIRST + _FIELDS * (number % _KEPT)
        kept = self._cells[first : first + _FIELDS]
        while worker_id and number > 1 and time.monotonic() - begun < _PATIENCE_S:
            found, workers, *opened = kept.tolist()
            if workers == seed and found >= number:
                if found == number:
                    return Pass(*opened)
                break  # these workers have long gone on
            time.sleep(0.001)
        mine = self.open(in_worker=True)
        if not worker_id:
            if number == 1:  # earlier workers have the same seed where a state restored it
                self._cells[_FIRST:] = 0
            known = [0, seed, mine.epoch, mine.generation, mine.start]
            kept.copy_(torch.tensor(known, dtype=torch.int64, device="cpu"))
            kept[0] = number  # last, since siblings look for it
        return mine

    def open(self, *, in_worker: bool) -> Pass:
        """Begin a pass."""
        cells = self.read_for_pass(in_worker=in_worker)
        start = cells[_START] if cells[_GENERATION] > cells[_SERVED] else 0
        return Pass(_read_epoch(cells), cells[_GENERATION], start)

    def close(self, finished: Pass) -> None:
        """Note that the last item of a pass was produced: the next pass serves the next epoch."""
        self._cells[_NEXT] = finished.epoch + 1
        self._cells[_SERVED] = finished.generation

    def restore(self, epoch: int) -> int:
        """Note that a checkpoint puts the running or next pass into an epoch, over any earlier set_epoch().

        Returns the generation that the restored pass acknowledges.
        """
        generation = int(self._cells[_GENERATION])
        self._cells[_NEXT] = epoch
        self._cells[_SERVED] = generation
        return generation


def _read_epoch(cells: list[int]) -> int:
    return cells[_SET] if cells[_GENERATION] > cells[_SERVED] else cells[_NEXT]


_shared: weakref.WeakSet[SharedCells] = weakref.WeakSet()


def _note_starts() -> None:
    for cells in list(_shared):
        cells._note_start()


def _begin_life() -> None:
    for cells in list(_shared):
        cells._passes = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_note_starts, after_in_child=_begin_life)
