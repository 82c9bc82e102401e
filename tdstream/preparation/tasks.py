"""Preparation by several tasks: wait for all of them, then merge their shares."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tdstream.core.errors import OutputError
from tdstream.preparation.holdout import read_val_counts
from tdstream.preparation.options import PrepareOptions
from tdstream.preparation.result import Counts, PrepareResult
from tdstream.writing.journal import is_done
from tdstream.writing.locks import is_locked
from tdstream.writing.merge import merge_tasks
from tdstream.writing.staging import task_directory

_PAUSE_S = 0.2


def merge_all(options: PrepareOptions, result: PrepareResult) -> PrepareResult:
    """Wait for the other tasks, merge all shares, and return the result; its time is this task's."""
    if result.was_complete:
        return result
    output, tasks = options.output, options.tasks
    wait_for_tasks(output.output_path, tasks.num_tasks or 1, tasks.merge_wait)
    merged = merge_tasks(output.output_path, overwrite=output.overwrite)
    if not merged.notes:  # an earlier merge had removed the journals
        meta, val = merged.meta, merged.val
        counts = Counts(documents=max(meta.num_documents, 0), tokens=meta.total_tokens)
        held_out = None if val is None else Counts(documents=val.num_documents, tokens=val.total_tokens)
        return replace(result, counts=counts, meta=meta, val=held_out, was_complete=True)
    counts, lengths = Counts(), Counter[int]()
    for note in merged.notes:
        counts += Counts.from_json(note)
        lengths.update({int(length): int(times) for length, times in note["lengths"]})
    held_out = read_val_counts(merged.notes) if merged.val is not None else None
    return replace(result, counts=counts, lengths=lengths, meta=merged.meta, val=held_out)


def wait_for_tasks(output: Path, num_tasks: int, patience_s: float) -> None:
    """Wait for all tasks; OutputError if an unfinished one shows no sign of life for `patience_s` s."""
    alive = dict.fromkeys(range(num_tasks), time.monotonic())
    while True:
        directories = {task: task_directory(output, task) for task in alive}
        for task, directory in directories.items():
            if is_done(directory) and not is_locked(directory):
                del alive[task]
        if not alive:
            return
        now = time.monotonic()
        alive = {task: now if _is_alive(directories[task]) else seen for task, seen in alive.items()}
        dead = [task for task, seen in alive.items() if now - seen > patience_s]
        if dead:
            raise OutputError(
                f"Of {num_tasks} tasks, these have ended or never begun, and their shares are missing in "
                f"{output}: {', '.join(map(str, dead))} (no sign of life for {patience_s:g} s).",
                "Start again with {resume}: the others have nothing to do again.",
            )
        time.sleep(_PAUSE_S)


def _is_alive(directory: Path) -> bool:
    """Return whether a task is running: it holds its lock or, without locks, has just written a file."""
    if is_locked(directory):
        return True
    try:
        newest = max(path.stat().st_mtime for path in directory.iterdir())
    except (OSError, ValueError):
        return False
    return time.time() - newest < 2 * _PAUSE_S
