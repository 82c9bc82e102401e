"""Several tasks that prepare one corpus: wait for all of them, then merge."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tdstream.core.errors import OutputError
from tdstream.preparation.holdout import count_held_out
from tdstream.preparation.options import PrepareOptions
from tdstream.preparation.result import Counts, PrepareResult
from tdstream.writing.journal import is_done
from tdstream.writing.locks import is_locked
from tdstream.writing.merge import merge_tasks
from tdstream.writing.staging import task_directory

_PAUSE_S = 0.2


def merge_all(options: PrepareOptions, result: PrepareResult) -> PrepareResult:
    """Wait for the other tasks, merge the shares of all, and return what all have done.

    The seconds are those of the slowest task.

    Raises:
        OutputError: If a task has ended without finishing its share.
        CorpusError: If a task prepared something else.
    """
    if result.was_complete:
        return result
    output, tasks = options.output, options.tasks
    wait_for_tasks(output.output_path, tasks.num_tasks or 1, tasks.merge_wait)
    merged = merge_tasks(output.output_path, overwrite=output.overwrite)
    counts, lengths = Counts(), Counter[int]()
    for note in merged.notes:
        counts += Counts.from_json(note)
        lengths.update({int(length): int(times) for length, times in note["lengths"]})
    val = count_held_out(merged.notes) if merged.val is not None else None
    return replace(result, counts=counts, lengths=lengths, meta=merged.meta, val=val)


def wait_for_tasks(output: Path, num_tasks: int, patience_s: float) -> None:
    """Wait until every task has finished its share.

    Raises:
        OutputError: If one that has not finished shows no life for `patience_s` seconds.
    """
    alive = dict.fromkeys(range(num_tasks), time.monotonic())
    while True:
        alive = {task: seen for task, seen in alive.items() if not _has_finished(output, task)}
        if not alive:
            return
        now = time.monotonic()
        for task in alive:
            if _is_alive(task_directory(output, task)):
                alive[task] = now
        dead = [task for task, seen in alive.items() if now - seen > patience_s]
        if dead:
            raise OutputError(
                f"Of {num_tasks} tasks, these have ended or never begun, and their shares are missing in "
                f"{output}: {', '.join(map(str, dead))} (no sign of life for {patience_s:g} s).",
                "Start again with {resume}: the others have nothing to do again.",
            )
        time.sleep(_PAUSE_S)


def _has_finished(output: Path, task: int) -> bool:
    directory = task_directory(output, task)
    return is_done(directory) and not is_locked(directory)


def _is_alive(directory: Path) -> bool:
    """Return whether a task runs: it holds its lock or, where there are no locks, has just written."""
    if is_locked(directory):
        return True
    try:
        newest = max(path.stat().st_mtime for path in directory.iterdir())
    except (OSError, ValueError):
        return False
    return time.time() - newest < 2 * _PAUSE_S
