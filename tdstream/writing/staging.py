"""Turn a directory from what it was into a whole corpus, with nothing in between that could mislead a reader.

While a preparation runs, its shards lie in ``<output>/.preparing/``, with a journal that says which of them
are safe; a killed run goes on behind those. Writing ``.preparing/meta.json`` is the commit: after it the next
start finishes the move. In the move the old meta.json goes first and the new one comes last, so a directory
with a meta.json is always whole. Where several tasks prepare one corpus, each has a directory of its own,
``<output>/.preparing/task_00003/``.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
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
from tdstream.writing.append import check_base
from tdstream.writing.journal import JOURNAL_FILE, Record, check_shards, files_of, read_journal
from tdstream.writing.locks import LOCK_FILE, take_lock
from tdstream.writing.publish import (
    TASK_PATTERN,
    check_contents,
    check_parent,
    empty,
    explain_os_errors,
    finish_move,
    remove_staging,
)


def task_directory(output: Path, task: int | None) -> Path:
    """Return where a task stages its shards; None means the only one.

    Args:
        output: The corpus directory.
        task: 0, 1, ...
    """
    staging = output / STAGING_DIR
    return staging if task is None else staging / f"task_{task:05d}"


def unfinished(output: Path, task: int | None = None) -> Record | None:
    """Return the journal of an unfinished preparation that a resume would go on with; None if there is none.

    Args:
        output: The corpus directory.
        task: Which of several tasks; None means the only one.

    Raises:
        CorpusError: If the journal cannot be read.
    """
    record = read_journal(task_directory(output, task))
    return record if record is not None and (record.entries or record.done) else None


def check_unfinished(
    output: Path, *, overwrite: bool, resume: bool, task: int | None, append: bool = False
) -> None:
    """Refuse to begin again where there is something to go on with, or to go on otherwise.

    Args:
        output: The corpus directory.
        overwrite: Whether an older corpus may be replaced; without resume, unfinished work too.
        resume: Whether to go on with an unfinished preparation.
        task: Which of several tasks is to write there; None means that there is only one.
        append: Whether to append to the corpus there.

    Raises:
        OutputError: If that is so.
        CorpusError: If the journal cannot be read.
    """
    if overwrite and not resume:
        return
    staging = output / STAGING_DIR
    if task is None and any(TASK_PATTERN.fullmatch(path.name) for path in _entries(staging)):
        raise OutputError(
            f"{output} holds the unfinished preparation of several tasks.",
            "Start those again with {resume}, put their shards together with tdstream merge, or pass "
            "{overwrite} to begin again.",
        )
    if task is not None and unfinished(output) is not None:
        raise OutputError(
            f"{output} holds an unfinished preparation that was begun as one task. Resume it as one, "
            f"or remove {staging} to begin again."
        )
    record = unfinished(output, task)
    if record is not None and append is not bool(record.identity.get("append")):
        kind, with_or_without = ("makes a new corpus", "without") if append else ("appends", "with")
        raise OutputError(
            f"{output} holds an unfinished preparation that {kind}.",
            "Resume it {with_or_without} {append} and with {resume}, or remove {staging} to begin again; "
            "nothing was changed.",
            with_or_without=with_or_without,
            staging=staging,
        )
    if record is not None and append and not resume:
        raise OutputError(
            f"{output} holds documents that were being appended: {record.num_documents:,} documents, "
            f"{record.num_tokens:,} tokens are safe.",
            "Pass {resume} to continue, or remove {staging} to begin again; nothing was changed.",
            staging=staging,
        )
    if record is not None and not resume:
        raise OutputError(
            f"{output} holds an unfinished preparation: {record.num_documents:,} documents, "
            f"{record.num_tokens:,} tokens are safe.",
            "Pass {resume} to continue it, or {overwrite} to begin again; nothing was changed.",
        )


def _entries(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []


def check_output(
    output: Path,
    *,
    overwrite: bool,
    resume: bool = False,
    task: int | None = None,
    append: bool = False,
) -> None:
    """Refuse an output directory that cannot be used, before anything slow is done.

    A move that was interrupted is finished first.

    Args:
        output: Where the corpus is to lie; it need not exist.
        overwrite: Whether an older corpus may be replaced.
        resume: Whether to go on with an unfinished preparation.
        task: Which of several tasks is to write there; None means that there is only one.
        append: Whether to append to the corpus there.

    Raises:
        OutputError: If it is a file, not writable, in use, or holds what must not be lost.
        CorpusError: If the journal of an unfinished preparation cannot be read.
    """
    with explain_os_errors(output):
        if not os.path.lexists(output) and not append:
            check_parent(output)
            return
        if append and not output.is_dir():
            raise OutputError(f"{output} is no directory with a corpus to append to.", "Leave {append} out.")
        if not output.is_dir():
            raise OutputError(f"{output} is a file, not a directory. Choose another output path.")
        if not os.access(output, os.W_OK | os.X_OK):
            raise OutputError(
                f"{output} may not be written. Change its permissions or choose another output path."
            )
        if task is not None:
            _tidy_together(output)
        elif (output / STAGING_DIR / LOCK_FILE).exists():
            _tidy(output)
        complete = resume and not overwrite and (output / META_FILE).exists()
        if append:
            check_base(output)
        elif not complete:
            check_contents(output, overwrite=overwrite)
        check_unfinished(output, overwrite=overwrite, resume=resume, task=task, append=append)


def _tidy(output: Path) -> None:
    """Finish a move that was interrupted, and remove what is left of one that was all but finished."""
    staging = output / STAGING_DIR
    lock = take_lock(staging, output)
    try:
        finish_move(output)
        left = [name for _, _, names in os.walk(staging) for name in names if name != LOCK_FILE]
        if (output / META_FILE).exists() and staging.is_dir() and not left:
            remove_staging(output)
    finally:
        os.close(lock)


def _tidy_together(output: Path) -> None:
    """Let one of the tasks, which all start at once, finish a move; the others wait for it."""
    for _ in range(600):
        if not (output / STAGING_DIR / META_FILE).exists():
            return
        with suppress(OutputError):  # Another one holds the lock.
            _tidy(output)
        time.sleep(0.1)


class Staging:
    """The place where one preparation writes its shards: locked, checked, and empty unless it goes on."""

    def __init__(
        self,
        output: Path,
        *,
        overwrite: bool,
        resume: bool = False,
        task: int | None = None,
        append: bool = False,
    ) -> None:
        """Claim a directory.

        Args:
            output: Where the corpus is to lie; created where it does not exist.
            overwrite: Whether an older corpus may be replaced.
            resume: Whether to go on with an unfinished preparation, if there is one.
            task: Which of several tasks writes here; None means that there is only one.
            append: Whether to append to the corpus there.

        Raises:
            OutputError: If it cannot be used, or another preparation is using it.
            CorpusError: If the journal of an unfinished preparation cannot be read.
        """
        self.output = output
        self.directory = task_directory(output, task)
        self.record: Record | None = None
        """The unfinished preparation that is to be gone on with."""
        self._task = task
        self._append = append
        self._locks: list[int] = []
        with explain_os_errors(output):
            self._created = _make_directories(output)
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
        check_unfinished(
            self.output, overwrite=overwrite, resume=resume, task=self._task, append=self._append
        )
        if resume:
            self.record = unfinished(self.output, self._task)

    def clear(self) -> None:
        """Remove what earlier runs left; of the preparation that is to be gone on with, what is not safe.

        Raises:
            CorpusError: If a shard that was safe is gone or has another size.
        """
        with explain_os_errors(self.output):
            if self.record is None:
                # First of all the journal: without it nothing can be gone on with.
                (self.directory / JOURNAL_FILE).unlink(missing_ok=True)
                empty(self.directory)
                return
            if not self.record.done:
                check_shards(self.directory, self.record.entries, DTYPES[self.record.plan["dtype"]].itemsize)
            safe = {name for entry in self.record.entries for name, _ in files_of(entry, 1)}
            empty(self.directory, keep=frozenset({JOURNAL_FILE, VAL_DIR, *safe}))

    def publish(self, meta: CorpusMeta) -> None:
        """Make the staged shards the corpus of the output directory.

        Args:
            meta: What they are; all of its chunks are staged.

        Raises:
            OutputError: If that is not possible. From the commit on nothing is lost: the next start goes on.
        """
        with explain_os_errors(self.output):
            fsync_directory(self.directory)
            write_meta(self.directory / META_FILE, meta)
        try:
            with explain_os_errors(self.output):
                finish_move(self.output)
        except OutputError as error:
            raise OutputError(
                f"{error} The new corpus is complete in {self.directory}; start again to have it moved."
            ) from None
        self.release()

    def discard(self) -> None:
        """Give the claim up: remove what cannot be gone on with, and the directories that were made for it.

        Shards that a journal calls safe, and a corpus that has been committed, are left for the next start.
        """
        if self._locks and not self._is_worth_keeping():
            with suppress(OSError):
                self._remove()
        self.release()
        _remove_empty(self._created)

    def _is_worth_keeping(self) -> bool:
        try:
            safe = unfinished(self.output, self._task) is not None
        except CorpusError:  # Perhaps a newer version can read it.
            safe = True
        return safe or (self.output / STAGING_DIR / META_FILE).exists()

    def _remove(self) -> None:
        if self._task is None:
            remove_staging(self.output)
            return
        empty(self.directory)
        (self.directory / LOCK_FILE).unlink(missing_ok=True)
        self.directory.rmdir()

    def release(self) -> None:
        """Let others have the directory."""
        while self._locks:
            os.close(self._locks.pop(0))  # That of the task last: it tells others that all is done.


def _make_directories(output: Path) -> list[Path]:
    """Create a directory and its parents; return those that did not exist, innermost first."""
    missing = []
    for path in (output, *output.parents):
        if os.path.lexists(path):
            break
        missing.append(path)
    output.mkdir(parents=True, exist_ok=True)
    return missing


def _remove_empty(directories: list[Path]) -> None:
    for directory in directories:
        with suppress(OSError):
            directory.rmdir()
