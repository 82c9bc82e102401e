"""Read what the ranks of a job logged that ran on changing machines, and join its runs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """One batch that one rank was given."""

    step: int
    """1, 2, 3, ... over all epochs and runs."""
    epoch: int
    """0, 1, 2, ..."""
    position: int
    """Samples of the epoch that all ranks together were given, this step included."""
    state: str
    """A hash of the loader's whole state with this batch handed out."""
    rows: tuple[str, ...]
    """A hash of each sample in the batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ElasticLog:
    """What one rank wrote in one run, from start to end or kill."""

    pid: int
    """Its process."""
    start_step: int
    """The step of the checkpoint that it started from; 0 without one."""
    epoch: int
    """Where the loader stood then."""
    position: int
    """Samples of that epoch that had been served."""
    state: str
    """A hash of the loader's whole state then."""
    served: tuple[Served, ...]
    """The batches, in the order of training."""


Runs = Sequence[Sequence[ElasticLog]]
"""The logs of a job, per run and rank."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One sample that some rank was given."""

    epoch: int
    step: int
    run: int
    """1, 2, 3, ..."""
    rank: int
    sample: str
    """Its hash."""

    def __str__(self) -> str:
        return f"step {self.step} (run {self.run}, rank {self.rank})"


def read_elastic_logs(paths: Sequence[Path]) -> list[ElasticLog]:
    """Return the logs of a run's ranks. A line that a kill cut is left out, and so is a rank without any."""
    lines = [path.read_text().split("\n")[:-1] for path in paths if path.exists()]
    return [_parsed([json.loads(line) for line in log]) for log in lines if log]


def _parsed(records: list[dict[str, Any]]) -> ElasticLog:
    head, *served = records
    return ElasticLog(**head, served=tuple(Served(**{**one, "rows": tuple(one["rows"])}) for one in served))


def join(runs: Runs) -> list[Row]:
    """Return the rows that the model has learnt from, in the order of steps and ranks.

    What was served after the checkpoint from which a later run started is lost with its step; that run has
    trained these steps again, and its rows count in their place.
    """
    rows = [
        Row(epoch=batch.epoch, step=batch.step, run=number, rank=rank, sample=sample)
        for number, run in enumerate(runs, start=1)
        for rank, log in enumerate(run)
        for batch in log.served
        if batch.step <= _last_kept(runs, number)
        for sample in batch.rows
    ]
    return sorted(rows, key=lambda row: (row.step, row.rank))


def _last_kept(runs: Runs, number: int) -> float:
    """Return the last step of a run (1, 2, ...) that no later run has replaced."""
    return min((log.start_step for later in runs[number:] for log in later), default=math.inf)
