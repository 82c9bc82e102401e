"""The logs of a job's ranks, and the first difference between two jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """One batch that one rank trained on."""

    step: int
    """1, 2, 3, ... over all epochs."""
    epoch: int
    """0, 1, 2, ..."""
    batch: str
    """A hash of the tokens."""
    loss: float
    """This rank's loss; JSON keeps every bit of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankLog:
    """What one rank wrote in one run, from start to end or kill."""

    pid: int
    """Its process id."""
    start_step: int
    """The step of the checkpoint that it started from; 0 without one."""
    batches_per_epoch: int
    """len(loader)."""
    trained: tuple[Trained, ...]
    """The batches, in the order of training."""


def read_log(path: Path) -> RankLog | None:
    """Return a rank's log without a truncated last line; None if it has no complete line."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []  # the last line is truncated
    if not lines:
        return None
    return RankLog(**json.loads(lines[0]), trained=tuple(Trained(**json.loads(line)) for line in lines[1:]))


def read_logs(paths: Sequence[Path]) -> list[RankLog]:
    """Return the logs of the ranks that have started."""
    return [log for log in map(read_log, paths) if log is not None]


def read_pid(path: Path) -> int | None:
    """Return the process id in a log; None if it has no complete line."""
    first, ended, _ = path.read_text().partition("\n") if path.exists() else ("", "", "")
    return int(json.loads(first)["pid"]) if ended else None


def newest_step(path: Path) -> int:
    """Return the step of a log's last complete line; 0 if there is none."""
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    return int(json.loads(lines[-2])["step"]) if len(lines) > 2 else 0


def first_difference(whole: Sequence[RankLog], runs: Sequence[Sequence[RankLog]]) -> str | None:
    """Return in words where the runs of an interrupted job differ from an uninterrupted one; None if nowhere.

    Batches that were trained again after a restart are compared each time.
    """
    found = [
        difference
        for rank, log in enumerate(whole)
        for difference in (_difference(rank, log, [run[rank] for run in runs]),)
        if difference
    ]
    return min(found)[1] if found else None


def _difference(rank: int, whole: RankLog, runs: Sequence[RankLog]) -> tuple[int, str] | None:
    """Return one rank's first difference as (step, words)."""
    expected = {record.step: record for record in whole.trained}
    for number, run in enumerate(runs, start=1):
        for step, record in enumerate(run.trained, start=run.start_step + 1):
            what = _mismatch(expected.get(step), record, step)
            if what:
                return step, f"rank {rank}, step {step}, run {number}: {what}"
    seen = {record.step for run in runs for record in run.trained}
    missing = sorted(expected.keys() - seen)
    return (missing[0], f"rank {rank}, step {missing[0]}: no run has trained it") if missing else None


def _mismatch(expected: Trained | None, record: Trained, step: int) -> str | None:
    if record.step != step:
        return f"the log continues with step {record.step}"
    if expected is None:
        return "the uninterrupted run has no such step"
    for name in ("epoch", "batch", "loss"):
        was, now = getattr(expected, name), getattr(record, name)
        if was != now:
            return f"{name} is {now!r}, uninterrupted it is {was!r}"
    return None


def first_fault(whole: Sequence[RankLog], epochs: int) -> str | None:
    """Return what is wrong with an uninterrupted job: a wrong number of batches, or a repeated one.

    Two equal jobs prove little if both receive the same few batches again and again.
    """
    seen: dict[tuple[int, str], str] = {}
    for rank, log in enumerate(whole):
        if len(log.trained) != epochs * log.batches_per_epoch:
            return f"rank {rank} has {len(log.trained)} batches, not {epochs} x {log.batches_per_epoch}"
        for record in log.trained:
            place = f"rank {rank}, step {record.step}"
            earlier = seen.setdefault((record.epoch, record.batch), place)
            if earlier != place:
                return f"{place}: the same batch as {earlier}, in one epoch"
    return None
