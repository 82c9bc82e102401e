"""Say what an unfinished preparation has left in an output directory, and whether it may be touched."""

from __future__ import annotations

from pathlib import Path

from tdstream.corpus.journal import Record, read_journal
from tdstream.corpus.meta import STAGING_DIR
from tdstream.corpus.output import TASK_PATTERN
from tdstream.errors import OutputError


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
            f"{output} holds the unfinished preparation of several tasks. Start those again with --resume, "
            f"put their shards together with tdstream merge, or pass --overwrite to begin again."
        )
    if task is not None and unfinished(output) is not None:
        raise OutputError(
            f"{output} holds an unfinished preparation that was begun as one task. Resume it as one, "
            f"or remove {staging} to begin again."
        )
    record = unfinished(output, task)
    if record is not None and append is not bool(record.identity.get("append")):
        kind, flag = ("makes a new corpus", "without") if append else ("appends", "with")
        raise OutputError(
            f"{output} holds an unfinished preparation that {kind}. Go on with it {flag} --append and with "
            f"--resume, or remove {staging} to begin again; nothing was changed."
        )
    if record is not None and append and not resume:
        raise OutputError(
            f"{output} holds documents that were being appended: {record.num_documents:,} documents, "
            f"{record.num_tokens:,} tokens are safe. Pass --resume to go on, or remove {staging} to begin "
            f"again; nothing was changed."
        )
    if record is not None and not resume:
        raise OutputError(
            f"{output} holds an unfinished preparation: {record.num_documents:,} documents, "
            f"{record.num_tokens:,} tokens are safe. Pass --resume to go on with it, or --overwrite to begin "
            f"again; nothing was changed."
        )


def _entries(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []
