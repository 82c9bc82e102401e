"""Make one corpus of the shards of several tasks: only names change, and meta.json is written.

The shards get their numbers in the order of the tasks, whichever finished first. A merge that was interrupted
can be started again: a shard has its old name or its new one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tdstream.core.errors import CorpusError, OutputError
from tdstream.corpus.document_index import ends_name
from tdstream.corpus.meta import (
    META_FILE,
    STAGING_DIR,
    VAL_DIR,
    CorpusMeta,
    Shard,
    chunk_name,
    fsync_directory,
    read_meta,
    write_meta,
)
from tdstream.writing.held_out import check_not_empty, num_held_out, read_val, val_entries
from tdstream.writing.journal import JournalEntry, Record, changed, meta_of, read_journal, val_meta_of
from tdstream.writing.locks import take_lock
from tdstream.writing.publish import TASK_PATTERN, check_contents, explain_os_errors, finish_move
from tdstream.writing.staging import task_directory


@dataclass(frozen=True, slots=True)
class Merged:
    """A corpus that several tasks have prepared."""

    meta: CorpusMeta
    val: CorpusMeta | None
    """What was held out; None if nothing was."""
    notes: list[dict[str, Any]]
    """What the tasks' journals said of each shard; nothing where an earlier merge has removed them."""


def merge_tasks(output: Path, *, overwrite: bool = False) -> Merged:
    """Make the shards of all tasks the corpus of an output directory.

    Args:
        output: The corpus directory.
        overwrite: Whether an older corpus there may be replaced.

    Raises:
        OutputError: If a task still runs, or the directory holds what must not be lost.
        CorpusError: If a task is missing, unfinished, or prepared something else.
    """
    staging = output / STAGING_DIR
    if not staging.is_dir():
        raise CorpusError(
            f"{output} holds no shares of tasks to put together.", "Prepare with {task:...} first."
        )
    with explain_os_errors(output):
        lock = take_lock(staging, output)
        try:
            if (staging / META_FILE).exists():
                meta = read_meta(staging / META_FILE)
                finish_move(output)
                return Merged(meta, read_val(output) if meta.holdout else None, [])
            check_contents(output, overwrite=overwrite)
            records = _records(output)
            return _merged(output, records)
        finally:
            os.close(lock)


def _records(output: Path) -> list[Record]:
    """Return the journals of all tasks, in their order, after making sure that they belong together."""
    found = {
        int(path.name.removeprefix("task_")): read_journal(path)
        for path in sorted((output / STAGING_DIR).iterdir())
        if TASK_PATTERN.fullmatch(path.name)
    }
    known = {task: record for task, record in found.items() if record is not None}
    if not known:
        raise CorpusError(
            f"{output} holds no shares of tasks to put together.", "Prepare with {task:...} first."
        )
    first = known[min(known)]
    num_tasks = int(first.identity.get("num_tasks") or 0)
    for task, record in known.items():
        _check_kin(output, task, record, {**first.identity, "task": task})
    if max(known) >= num_tasks:
        raise CorpusError(
            f"{output} holds a share of task {max(known)}, but there are tasks 0 to {num_tasks - 1}. "
            f"Remove {task_directory(output, max(known))} if it is of no use."
        )
    missing = [task for task in range(num_tasks) if task not in known or not known[task].done]
    if missing:
        named = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        raise CorpusError(
            f"{output} lacks the shares of {len(missing)} of {num_tasks} tasks: {named}.",
            "Start those with {resume}, then merge again; the others need not run again.",
        )
    return [known[task] for task in range(num_tasks)]


def _check_kin(output: Path, task: int, record: Record, expected: dict[str, Any]) -> None:
    differences = changed(expected, record.identity)
    if differences:
        raise CorpusError(
            f"{task_directory(output, task)} belongs to another preparation: {'; '.join(differences)}.",
            "Prepare that task again, with the options of the others and {overwrite}.",
        )


def _merged(output: Path, records: list[Record]) -> Merged:
    staging, plan = output / STAGING_DIR, CorpusMeta(**_plan(records[0]))
    homes = [task_directory(output, task) for task in range(len(records))]
    said = [[*record.entries, *record.tail] for record in records]
    entries = _put_together(homes, [record.entries for record in records], staging)
    if not entries:
        raise CorpusError(f"The tasks in {output} have written no token; a corpus holds at least one.")
    val = None
    if plan.holdout:
        held_out = [val_entries(of_task) for of_task in said]
        (staging / VAL_DIR).mkdir(exist_ok=True)
        shards = _put_together([home / VAL_DIR for home in homes], held_out, staging / VAL_DIR)
        encoder = meta_of(plan, entries, 0).encoder
        val = val_meta_of(
            replace(plan, encoder=encoder), shards, sum(num_held_out(of_task) for of_task in said)
        )
        check_not_empty(val)
        write_meta(staging / VAL_DIR / META_FILE, val)
    meta = meta_of(plan, entries, sum(record.num_documents for record in records))
    fsync_directory(staging)
    write_meta(staging / META_FILE, meta)
    finish_move(output)
    return Merged(meta, val, [entry.note for of_task in said for entry in of_task])


def _put_together(homes: list[Path], shares: list[list[JournalEntry]], target: Path) -> list[JournalEntry]:
    """Give the shards of all tasks their place and number; return them."""
    entries: list[JournalEntry] = []
    for home, share in zip(homes, shares, strict=True):
        for entry in share:
            name = chunk_name(len(entries))
            _rename(home / entry.chunk.file, target / name)
            if entry.index is not None:
                _rename(home / ends_name(entry.chunk.file), target / ends_name(name))
            entries.append(replace(entry, chunk=Shard(name, entry.chunk.tokens)))
    return entries


def _rename(source: Path, target: Path) -> None:
    if source.exists():
        os.replace(source, target)
    elif not target.exists():
        raise OutputError(f"{source} is gone. Remove {source.parent} and prepare that task again.")


def _plan(record: Record) -> dict[str, Any]:
    known = {name: record.plan[name] for name in CorpusMeta.__dataclass_fields__ if name in record.plan}
    return {**known, "chunks": ()}
