"""Merge of several tasks' shards into one corpus: shards are renamed, and meta.json is written.

Shards are numbered in the order of the tasks, regardless of which finished first. An interrupted merge can be
started again: each shard has either its old or its new name.
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
from tdstream.writing.held_out import complete_val_meta, count_held_out, read_val, read_val_entries
from tdstream.writing.journal import JournalContent, JournalEntry, complete_meta, list_changes, read_journal
from tdstream.writing.locks import take_lock
from tdstream.writing.publish import (
    TASK_PATTERN,
    check_contents,
    explain_os_errors,
    finish_move,
    is_leftover,
    remove_staging,
)
from tdstream.writing.staging import task_directory


@dataclass(frozen=True, slots=True)
class MergedCorpus:
    """A corpus prepared by several tasks."""

    meta: CorpusMeta
    val: CorpusMeta | None
    """The held-out documents; None if there are none."""
    notes: list[dict[str, Any]]
    """The tasks' notes on their shards; empty if an earlier merge removed them."""
    was_complete: bool = False
    """Whether there was nothing to do."""


def merge_tasks(output: Path, *, overwrite: bool = False) -> MergedCorpus:
    """Make one corpus of all tasks' shards; refuse if a task is unfinished or of another preparation.

    Where an earlier merge has finished, or was killed, this one has nothing to do, or only the rest.
    """
    staging = output / STAGING_DIR
    if not staging.is_dir():
        return _find_complete(output)
    with explain_os_errors(output):
        lock = take_lock(staging, output)
        try:
            if (staging / META_FILE).exists():
                finish_move(output)
                return replace(_find_complete(output), was_complete=False)
            if is_leftover(output):
                remove_staging(output)
                return _find_complete(output)
            check_contents(output, overwrite=overwrite)
            return _merge(output, _read_journals(output))
        finally:
            lock.close()


def _find_complete(output: Path) -> MergedCorpus:
    """Return the complete corpus in a directory without tasks."""
    if not (output / META_FILE).exists():
        raise _nothing_to_merge(output)
    meta = read_meta(output / META_FILE)
    return MergedCorpus(meta, read_val(output) if meta.holdout else None, [], was_complete=True)


def _nothing_to_merge(output: Path) -> CorpusError:
    return CorpusError(f"{output} holds no tasks to merge.", "Prepare with {task:...} first.")


def _read_journals(output: Path) -> list[JournalContent]:
    """Return the journals of all tasks, in order; refuse if one is missing or of another preparation."""
    found = {
        int(path.name.removeprefix("task_")): read_journal(path)
        for path in sorted((output / STAGING_DIR).iterdir())
        if TASK_PATTERN.fullmatch(path.name)
    }
    known = {task: journal for task, journal in found.items() if journal is not None}
    if not known:
        raise _nothing_to_merge(output)
    first = known[min(known)]
    num_tasks = int(first.identity.get("num_tasks") or 0)
    for task, journal in known.items():
        changes = list_changes({**first.identity, "task": task}, journal.identity)
        if changes:
            raise CorpusError(
                f"{task_directory(output, task)} belongs to another preparation: {'; '.join(changes)}.",
                "Prepare that task again, with the options of the others and {overwrite}.",
            )
    if max(known) >= num_tasks:
        raise CorpusError(
            f"{output} holds shards of task {max(known)}, but there are tasks 0 to {num_tasks - 1}. "
            f"Remove {task_directory(output, max(known))} if they are not needed."
        )
    missing = [task for task in range(num_tasks) if task not in known or not known[task].done]
    if missing:
        named = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        raise CorpusError(
            f"{output} lacks the shards of {len(missing)} of {num_tasks} tasks: {named}.",
            "Start those with {resume}, then merge again; the others need not run again.",
        )
    return [known[task] for task in range(num_tasks)]


def _merge(output: Path, journals: list[JournalContent]) -> MergedCorpus:
    staging, written = output / STAGING_DIR, journals[0].plan
    known = {name: written[name] for name in CorpusMeta.__dataclass_fields__ if name in written}
    plan = CorpusMeta(**{**known, "chunks": ()})
    tasks = [task_directory(output, task) for task in range(len(journals))]
    entries = _rename_shards(tasks, [journal.entries for journal in journals], staging)
    if not entries:
        raise CorpusError(
            f"The tasks in {output} wrote no tokens; a corpus needs at least one. Check that the "
            f"source holds text."
        )
    meta = complete_meta(plan, entries, sum(journal.num_documents for journal in journals))
    with_tails = [[*journal.entries, *journal.tail] for journal in journals]
    val = None
    if plan.holdout:
        val = _merge_val(tasks, with_tails, staging, replace(plan, encoder=meta.encoder))
    fsync_directory(staging)
    write_meta(staging / META_FILE, meta)
    finish_move(output)
    return MergedCorpus(meta, val, [entry.note for of_task in with_tails for entry in of_task])


def _merge_val(
    tasks: list[Path], entries: list[list[JournalEntry]], staging: Path, plan: CorpusMeta
) -> CorpusMeta:
    """Make one corpus of the documents held out by the tasks."""
    (staging / VAL_DIR).mkdir(exist_ok=True)
    held_out = [read_val_entries(of_task) for of_task in entries]
    shards = _rename_shards([task / VAL_DIR for task in tasks], held_out, staging / VAL_DIR)
    val = complete_val_meta(plan, shards, sum(count_held_out(of_task) for of_task in entries))
    write_meta(staging / VAL_DIR / META_FILE, val)
    return val


def _rename_shards(
    sources: list[Path], entries: list[list[JournalEntry]], target: Path
) -> list[JournalEntry]:
    """Move all tasks' shards to one directory, numbered in order; return their new entries."""
    renamed: list[JournalEntry] = []
    for source, of_task in zip(sources, entries, strict=True):
        for entry in of_task:
            name = chunk_name(len(renamed))
            _rename(source / entry.shard.file, target / name)
            if entry.index is not None:
                _rename(source / ends_name(entry.shard.file), target / ends_name(name))
            renamed.append(replace(entry, shard=Shard(name, entry.shard.tokens)))
    return renamed


def _rename(source: Path, target: Path) -> None:
    if source.exists():
        os.replace(source, target)
    elif not target.exists():
        raise OutputError(f"{source} is missing. Remove {source.parent} and prepare that task again.")
