"""The logs of a job that ran on changing machines, and its runs joined to one."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """One batch that one rank received."""

    step: int
    """1, 2, 3, ... over all epochs and runs."""
    epoch: int
    """0, 1, 2, ..."""
    position: int
    """Samples of the epoch that all ranks together received, up to and including this step."""
    state: str
    """A hash of the loader's whole state after this batch."""
    rows: tuple[str, ...]
    """A hash of each sample in the batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ElasticLog:
    """What one rank wrote in one run, from start to end or kill."""

    pid: int
    """Its process id."""
    start_step: int
    """The step of the checkpoint that it started from; 0 without one."""
    epoch: int
    """The epoch of the loader at the start."""
    position: int
    """Samples of that epoch served before the start."""
    state: str
    """A hash of the loader's whole state at the start."""
    served: tuple[Served, ...]
    """The batches, in the order of training."""


Runs = Sequence[Sequence[ElasticLog]]
"""The logs of a job, by run and rank."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One sample that some rank received."""

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
    """Return the logs of a run's ranks, without truncated lines and ranks without lines."""
    lines = [path.read_text().split("\n")[:-1] for path in paths if path.exists()]
    return [_parse([json.loads(line) for line in log]) for log in lines if log]


def _parse(records: list[dict[str, Any]]) -> ElasticLog:
    head, *served = records
    return ElasticLog(**head, served=tuple(Served(**{**one, "rows": tuple(one["rows"])}) for one in served))


def join(runs: Runs) -> list[Row]:
    """Return the rows that the model has learned from, in the order of steps and ranks.

    Steps after the checkpoint from which a later run started are lost; that run has trained them again, and
    its rows count instead.
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
