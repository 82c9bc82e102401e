"""The staging directory of a preparation: claimed, resumed, and published as a complete corpus.

Shards are written to ``<output>/.preparing/``, beside a journal of the safe ones; a killed run resumes after
those. Writing ``.preparing/meta.json`` is the commit: from then on, the next run finishes the move. Each of
several tasks has its own directory, ``<output>/.preparing/task_00003/``.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from tdstream.core.errors import CorpusError, OutputError
from tdstream.corpus.meta import (
    DTYPES,
    META_FILE,
    STAGING_DIR,
    VAL_DIR,
    CorpusMeta,
    fsync_directory,
    write_meta,
)
from tdstream.distributed.file_lock import Lock
from tdstream.writing.append import check_base
from tdstream.writing.journal import JOURNAL_FILE, JournalContent, check_shards, read_journal
from tdstream.writing.locks import take_lock
from tdstream.writing.publish import (
    TASK_PATTERN,
    check_contents,
    check_parent,
    clear_staging,
    explain_os_errors,
    finish_move,
    is_leftover,
    remove_staging,
    remove_task,
)


def task_directory(output: Path, task: int | None) -> Path:
    """Return the staging directory of a task, or of the whole preparation if `task` is None."""
    staging = output / STAGING_DIR
    return staging if task is None else staging / f"task_{task:05d}"


def read_unfinished(output: Path, task: int | None = None) -> JournalContent | None:
    """Return the journal that `resume` continues; None if there is nothing to resume."""
    journal = read_journal(task_directory(output, task))
    return journal if journal is not None and (journal.entries or journal.done) else None


class Staging:
    """The locked directory that a preparation, or one of its tasks, writes its shards to."""

    def __init__(
        self,
        output: Path,
        *,
        overwrite: bool,
        resume: bool = False,
        task: int | None = None,
        append: bool = False,
    ) -> None:
        """Claim the directory, creating it if needed; the options are those of `check_output`."""
        self.output = output
        self.directory = task_directory(output, task)
        self.unfinished: JournalContent | None = None
        """The journal to resume; None to start from scratch."""
        self._task = task
        self._append = append
        self._locks: list[Lock] = []
        with explain_os_errors(output):
            # The directories to create, innermost first.
            self._created = list(takewhile(lambda path: not os.path.lexists(path), (output, *output.parents)))
            output.mkdir(parents=True, exist_ok=True)
            try:
                self._claim(overwrite=overwrite, resume=resume)
            except BaseException:
                self.discard()
                raise

    def _claim(self, *, overwrite: bool, resume: bool) -> None:
        staging = self.output / STAGING_DIR
        self._locks.append(take_lock(staging, self.output, shared=self._task is not None))
        if self._task is None:
            finish_move(self.output)
        else:
            self._locks.append(take_lock(self.directory, self.output))
        if self._append:
            check_base(self.output)
        else:
            check_contents(self.output, overwrite=overwrite)
        _check_unfinished(
            self.output, overwrite=overwrite, resume=resume, task=self._task, append=self._append
        )
        if resume:
            self.unfinished = read_unfinished(self.output, self._task)

    def clear(self) -> None:
        """Remove what earlier runs left; when resuming, keep what is safe."""
        with explain_os_errors(self.output):
            if self.unfinished is None:
                # The journal first: without it nothing can be resumed.
                (self.directory / JOURNAL_FILE).unlink(missing_ok=True)
                clear_staging(self.directory)
                return
            journal = self.unfinished
            if not journal.done:
                check_shards(self.directory, journal.entries, DTYPES[journal.plan["dtype"]].itemsize)
            safe = {name for entry in journal.entries for name in entry.file_sizes(1)}
            clear_staging(self.directory, keep=frozenset({JOURNAL_FILE, VAL_DIR, *safe}))

    def publish(self, meta: CorpusMeta) -> None:
        """Move the staged corpus to the output directory. Nothing is lost once its meta.json is written."""
        with explain_os_errors(self.output):
            fsync_directory(self.directory)
            write_meta(self.directory / META_FILE, meta)
        try:
            with explain_os_errors(self.output):
                finish_move(self.output)
        except OutputError as error:
            raise OutputError(
                f"{error} The new corpus is complete in {self.directory}; start again to move it."
            ) from None
        self.release()

    def discard(self) -> None:
        """Release the claim; unless a later run can resume, remove everything made for it."""
        if self._locks and not self._is_worth_keeping():
            with suppress(OSError):
                if self._task is None:
                    remove_staging(self.output)
                else:
                    remove_task(self.directory)
        self.release()
        for directory in self._created:
            with suppress(OSError):
                directory.rmdir()

    def _is_worth_keeping(self) -> bool:
        try:
            safe = read_unfinished(self.output, self._task) is not None
        except CorpusError:  # a newer version may be able to read it
            safe = True
        return safe or (self.output / STAGING_DIR / META_FILE).exists()

    def release(self) -> None:
        """Release the locks, the task's last: it tells other processes that the task has ended."""
        while self._locks:
            self._locks.pop(0).close()


def check_output(
    output: Path, *, overwrite: bool, resume: bool = False, task: int | None = None, append: bool = False
) -> None:
    """Refuse an unusable output directory before any slow work; finish an interrupted move.

    `overwrite` replaces an older corpus and, without `resume`, unfinished work; `resume` continues unfinished
    work, if any; `task` is the number of this task, if there are several.
    """
    with explain_os_errors(output):
        if not os.path.lexists(output) and not append:
            check_parent(output)
            return
        if append and not output.is_dir():
            raise OutputError(
                f"{output} is not a directory with a corpus to append to.", "Leave {append} out."
            )
        if not output.is_dir():
            raise OutputError(f"{output} is a file, not a directory. Choose another output path.")
        if not os.access(output, os.W_OK | os.X_OK):
            raise OutputError(
                f"{output} is not writable. Change its permissions or choose another output path."
            )
        if task is not None:
            _tidy_together(output)
        elif (output / STAGING_DIR).is_dir() and not (output / STAGING_DIR).is_symlink():
            _tidy(output)
        complete = resume and not overwrite and (output / META_FILE).exists()
        if append:
            check_base(output)
        elif not complete:
            check_contents(output, overwrite=overwrite)
        _check_unfinished(output, overwrite=overwrite, resume=resume, task=task, append=append)


def _check_unfinished(output: Path, *, overwrite: bool, resume: bool, task: int | None, append: bool) -> None:
    """Refuse to replace unfinished work silently, or to resume it as something else."""
    if overwrite and not resume:
        return
    staging = output / STAGING_DIR
    entries = staging.iterdir() if staging.is_dir() else ()
    if task is None and any(TASK_PATTERN.fullmatch(path.name) for path in entries):
        raise OutputError(
            f"{output} holds the unfinished preparation of several tasks.",
            "Start those again with {resume}, join their shards with tdstream merge, or pass {overwrite} to "
            "start again.",
        )
    if task is not None and read_unfinished(output) is not None:
        raise OutputError(
            f"{output} holds an unfinished preparation that was begun as one task. Resume it as one, "
            f"or remove {staging} to start again."
        )
    journal = read_unfinished(output, task)
    if journal is None:
        return
    if append is not bool(journal.identity.get("append")):
        kind, with_or_without = ("makes a new corpus", "without") if append else ("appends", "with")
        raise OutputError(
            f"{output} holds an unfinished preparation that {kind}.",
            "Resume it {with_or_without} {append} and with {resume}, or remove {staging} to start again; "
            "nothing was changed.",
            with_or_without=with_or_without,
            staging=staging,
        )
    safe = f"{journal.num_documents:,} documents, {journal.num_tokens:,} tokens are safe"
    if append and not resume:
        raise OutputError(
            f"{output} holds documents that were being appended: {safe}.",
            "Pass {resume} to continue, or remove {staging} to start again; nothing was changed.",
            staging=staging,
        )
    if not resume:
        raise OutputError(
            f"{output} holds an unfinished preparation: {safe}.",
            "Pass {resume} to continue it, or {overwrite} to start again; nothing was changed.",
        )


def _tidy(output: Path) -> None:
    """Finish an interrupted move, and remove what is left of a finished one."""
    staging = output / STAGING_DIR
    lock = take_lock(staging, output)
    try:
        finish_move(output)
        if is_leftover(output):
            remove_staging(output)
    finally:
        lock.close()


def _tidy_together(output: Path) -> None:
    """Finish an interrupted move in one of the tasks, which all start at once; the others wait for it."""
    for _ in range(600):
        if not (output / STAGING_DIR / META_FILE).exists():
            if is_leftover(output):
                with suppress(OutputError):  # another task has begun
                    _tidy(output)
            return
        with suppress(OutputError):  # another task holds the lock
            _tidy(output)
        time.sleep(0.1)
