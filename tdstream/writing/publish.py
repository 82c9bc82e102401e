"""Move a whole staged corpus to its place, or go on with a move that was interrupted."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tdstream.core.errors import CorpusError, OutputError
from tdstream.corpus.derived import DERIVED_DIR
from tdstream.corpus.document_index import file_names
from tdstream.corpus.meta import META_FILE, STAGING_DIR, VAL_DIR, CorpusMeta, fsync_directory, read_meta
from tdstream.writing.journal import JOURNAL_FILE
from tdstream.writing.locks import LOCK_FILE

CHUNK_PATTERN = re.compile(r"chunk_\d{6,}\.(bin|ends)")
"""Names of shards and of their indices of document ends."""
STAGED_PATTERN = re.compile(
    r"chunk_\d{6,}\.(bin|ends)(\.tmp)?|meta\.json(\.tmp)?|journal\.jsonl(\.tmp)?|lock"
)
"""Names that a preparation gives to files in its staging directory."""
TASK_PATTERN = re.compile(r"task_\d{5,}")
"""Names of the directories in it where several tasks have one each."""


@contextmanager
def explain_os_errors(output: Path) -> Iterator[None]:
    """Turn what the operating system says about writing into a sentence.

    Args:
        output: The corpus directory, for the sentence.
    """
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(_sentence(output, error)) from error


def _sentence(output: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"No space left for {output} ({error.strerror}). Free some or choose another output path."
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{output} may not be written ({error.strerror}). Change that or choose another output path."
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"{output} cannot be a directory: {error.filename} is a file. Choose another output path."
    return f"{output} cannot be written: {error.strerror or error}. Choose another output path."


def check_parent(output: Path) -> None:
    """Refuse a place for a new directory under which nothing can be created."""
    parent = next(path for path in output.absolute().parents if os.path.lexists(path))
    if not parent.is_dir():
        raise OutputError(f"{output} cannot be created: {parent} is a file. Choose another output path.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputError(
            f"{output} cannot be created: {parent} may not be written. Choose another output path."
        )


def check_contents(output: Path, *, overwrite: bool) -> None:
    """Refuse a directory with anything in it, or with ``overwrite`` one that holds more than a corpus.

    Args:
        output: The directory.
        overwrite: Whether an older corpus may be replaced.

    Raises:
        OutputError: If replacing its content could lose what no preparation wrote.
    """
    entries = sorted(path for path in output.iterdir() if path.name != STAGING_DIR)
    if entries and not overwrite:
        raise OutputError(
            f"{output} is not empty (it holds {_named(entries)}).",
            "Pass {overwrite} to replace a corpus there, or choose another output path; nothing was changed.",
        )
    _refuse(output, [path for path in entries if not _is_ours(path) and not _is_our_val(path)])
    check_staged(output)


def check_staged(output: Path) -> None:
    """Refuse a directory where something else lies under the name of a staging directory, or in it.

    Args:
        output: The directory.

    Raises:
        OutputError: If that is so.
    """
    foreign: list[Path] = []
    staging = output / STAGING_DIR
    if staging.is_dir() and not staging.is_symlink():
        foreign += sorted(path for path in staging.iterdir() if not _is_staged(path))
    elif os.path.lexists(staging):
        foreign.append(staging)
    _refuse(output, foreign)


def _refuse(output: Path, foreign: list[Path]) -> None:
    if foreign:
        raise OutputError(
            f"{output} holds what no preparation wrote: {_named(foreign)}. Nothing was changed; "
            f"move that away or choose another output path."
        )


def _is_ours(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return path.name == DERIVED_DIR and path.is_dir() and not path.is_symlink()
    if path.name != META_FILE:
        return CHUNK_PATTERN.fullmatch(path.name) is not None
    try:
        read_meta(path)
    except CorpusError:
        return False
    return True


def _is_our_val(path: Path) -> bool:
    """Return whether a directory holds what was held out of the corpus beside it, and nothing else."""
    if path.name != VAL_DIR or path.is_symlink() or not path.is_dir():
        return False
    try:
        held_out = bool(read_meta(path.parent / META_FILE).holdout)
    except CorpusError:
        return False
    return held_out and all(_is_ours(inner) for inner in path.iterdir())


def _is_staged(path: Path) -> bool:
    is_directory = path.is_dir() and not path.is_symlink()
    if is_directory and (path.name == VAL_DIR or TASK_PATTERN.fullmatch(path.name)):
        return all(_is_staged(inner) for inner in path.iterdir())
    return STAGED_PATTERN.fullmatch(path.name) is not None


def check_room(directory: Path, num_bytes: int) -> None:
    """Refuse to begin a shard that the file system has no room for.

    Args:
        directory: Where it is to lie.
        num_bytes: Its size.

    Raises:
        OSError: If it does not fit.
    """
    disk = os.statvfs(directory)
    free = disk.f_bavail * disk.f_frsize
    if free < num_bytes:
        raise OSError(errno.ENOSPC, f"the next chunk takes {num_bytes:,} bytes, {free:,} are free")


def _named(paths: list[Path]) -> str:
    shown = ", ".join(path.name for path in paths[:3])
    return shown if len(paths) <= 3 else f"{shown} and {len(paths) - 3:,} more"


def finish_move(output: Path) -> None:
    """Complete the move of a committed corpus; do nothing where none is committed.

    Args:
        output: The corpus directory, which the caller has locked.

    Raises:
        CorpusError: If a shard of the committed corpus is gone.
    """
    staging = output / STAGING_DIR
    if not (staging / META_FILE).exists():
        return
    meta = read_meta(staging / META_FILE)
    _close_journals(staging)
    if (output / META_FILE).exists() and not all((staging / chunk.file).exists() for chunk in meta.chunks):
        _move_behind(staging, output, meta)  # The others are those of the corpus that is appended to.
        return
    if not meta.holdout and (output / META_FILE).exists() and read_meta(output / META_FILE).holdout:
        _remove_val(output / VAL_DIR)
    (output / META_FILE).unlink(missing_ok=True)
    fsync_directory(output)
    if meta.holdout:
        (output / VAL_DIR).mkdir(exist_ok=True)
        _move(staging / VAL_DIR, output / VAL_DIR)
    _move(staging, output)
    remove_staging(output)


def _move_behind(staging: Path, output: Path, meta: CorpusMeta) -> None:
    """Move shards beside those of a corpus that stays; its readers see them from the new meta.json on."""
    for name in sorted(file_names(meta)):
        if (staging / name).exists():
            os.replace(staging / name, output / name)
    _check_moved(staging, output, meta)
    fsync_directory(output)
    shutil.rmtree(output / DERIVED_DIR, ignore_errors=True)  # made from the shorter corpus
    os.replace(staging / META_FILE, output / META_FILE)
    fsync_directory(output)
    remove_staging(output)


def _check_moved(staging: Path, output: Path, meta: CorpusMeta) -> None:
    for name in sorted(file_names(meta)):
        if not (output / name).exists():
            raise CorpusError(
                f"{output} lacks {name}, which {staging / META_FILE} lists. "
                f"Remove {staging} and prepare again."
            )


def _move(staging: Path, output: Path) -> None:
    """Move one corpus to its place; do nothing if that has been done."""
    if not (staging / META_FILE).exists():
        return
    (output / META_FILE).unlink(missing_ok=True)
    shutil.rmtree(output / DERIVED_DIR, ignore_errors=True)  # made from the older corpus
    fsync_directory(output)
    meta = read_meta(staging / META_FILE)
    names = file_names(meta)
    for name in sorted(names):
        if (staging / name).exists():
            os.replace(staging / name, output / name)
    _check_moved(staging, output, meta)
    for path in output.iterdir():
        if CHUNK_PATTERN.fullmatch(path.name) and path.name not in names:
            path.unlink()
    fsync_directory(output)
    os.replace(staging / META_FILE, output / META_FILE)
    fsync_directory(output)


def _remove_val(directory: Path) -> None:
    """Remove the documents that were held out of a corpus that is about to be replaced."""
    if not directory.is_dir():
        return
    (directory / META_FILE).unlink(missing_ok=True)
    fsync_directory(directory)
    shutil.rmtree(directory / DERIVED_DIR, ignore_errors=True)
    for path in directory.iterdir():
        if CHUNK_PATTERN.fullmatch(path.name):
            path.unlink()
    with suppress(OSError):
        directory.rmdir()


def _close_journals(staging: Path) -> None:
    """Remove what would tell a later start that there are shards to go on from: they are about to leave."""
    for path in [staging / JOURNAL_FILE, *staging.glob(f"*/{JOURNAL_FILE}")]:
        if path.exists():
            path.unlink()
            fsync_directory(path.parent)


def empty(staging: Path, *, keep: frozenset[str] = frozenset()) -> None:
    """Remove all that earlier runs left in a staging directory, except the lock, which is the caller's.

    Args:
        staging: The directory.
        keep: Names that stay.
    """
    for path in staging.iterdir():
        if TASK_PATTERN.fullmatch(path.name) and path.is_dir():
            _remove_task(path)
        elif path.name == VAL_DIR and path.is_dir() and VAL_DIR not in keep:
            empty(path)
            path.rmdir()
        elif path.name not in keep | {LOCK_FILE} and STAGED_PATTERN.fullmatch(path.name):
            path.unlink()


def _remove_task(directory: Path) -> None:
    empty(directory)
    (directory / LOCK_FILE).unlink(missing_ok=True)
    directory.rmdir()


def remove_staging(output: Path) -> None:
    """Remove the staging directory of an output directory that the caller has locked.

    Args:
        output: The corpus directory.
    """
    staging = output / STAGING_DIR
    empty(staging)
    (staging / LOCK_FILE).unlink(missing_ok=True)
    with suppress(OSError):  # A run that waits for this directory may already have put its own lock there.
        staging.rmdir()
    fsync_directory(output)
