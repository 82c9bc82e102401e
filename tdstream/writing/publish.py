"""The output directory of a corpus: what may be replaced in it, and the move of a finished corpus there."""

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
from tdstream.distributed.file_lock import marker_names, remove_lock_files
from tdstream.writing.journal import JOURNAL_FILE
from tdstream.writing.locks import LOCK_FILE

CHUNK_PATTERN = re.compile(r"chunk_\d{6,}\.(bin|ends)")
"""File names of shards and their indices."""
TASK_PATTERN = re.compile(r"task_\d{5,}")
"""Directories of tasks inside the staging directory."""
_LOCK_PATTERN = re.compile(rf"{LOCK_FILE}|{marker_names(LOCK_FILE)}")
_STAGED_PATTERN = re.compile(
    r"chunk_\d{6,}\.(bin|ends)(\.tmp)?|meta\.json(\.tmp)?|journal\.jsonl(\.tmp)?|" + _LOCK_PATTERN.pattern
)


@contextmanager
def explain_os_errors(output: Path) -> Iterator[None]:
    """Turn any OSError into an OutputError that names the output directory."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(_explain(output, error)) from error


def _explain(output: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"No space left for {output} ({error.strerror}). Free some or choose another output path."
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{output} is not writable ({error.strerror}). Change that or choose another output path."
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"{output} cannot be a directory: {error.filename} is a file. Choose another output path."
    return f"{output} cannot be written: {error.strerror or error}. Choose another output path."


def check_space(directory: Path, num_bytes: int) -> None:
    """Raise OSError (ENOSPC) unless the file system has space for the next shard."""
    disk = os.statvfs(directory)
    free = disk.f_bavail * disk.f_frsize
    if free < num_bytes:
        raise OSError(errno.ENOSPC, f"the next shard takes {num_bytes:,} bytes, {free:,} are free")


def check_parent(output: Path) -> None:
    """Refuse an output directory that cannot be created."""
    parent = next(path for path in output.absolute().parents if os.path.lexists(path))
    if not parent.is_dir():
        raise OutputError(f"{output} cannot be created: {parent} is a file. Choose another output path.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputError(
            f"{output} cannot be created: {parent} is not writable. Choose another output path."
        )


def check_contents(output: Path, *, overwrite: bool) -> None:
    """Refuse a directory that is not empty or, with `overwrite`, holds anything but a corpus."""
    entries = sorted(path for path in output.iterdir() if path.name != STAGING_DIR)
    if entries and not overwrite:
        raise OutputError(
            f"{output} is not empty (it holds {_list(entries)}).",
            "Pass {overwrite} to replace a corpus there, or choose another output path; nothing was changed.",
        )
    _check_foreign(output, [path for path in entries if not _is_ours(path) and not _is_our_val(path)])
    check_staged(output)


def check_staged(output: Path) -> None:
    """Refuse a staging directory with foreign content, or anything else of its name."""
    foreign: list[Path] = []
    staging = output / STAGING_DIR
    if staging.is_dir() and not staging.is_symlink():
        foreign = sorted(path for path in staging.iterdir() if not _is_staged(path))
    elif os.path.lexists(staging):
        foreign = [staging]
    _check_foreign(output, foreign)


def _check_foreign(output: Path, foreign: list[Path]) -> None:
    if foreign:
        raise OutputError(
            f"{output} holds files that no preparation wrote: {_list(foreign)}. Nothing was changed; "
            f"move them away or choose another output path."
        )


def _list(paths: list[Path]) -> str:
    shown = ", ".join(path.name for path in paths[:3])
    return shown if len(paths) <= 3 else f"{shown} and {len(paths) - 3:,} more"


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
    """Return whether a path is the directory of held-out documents of the corpus beside it, and only that."""
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
    return _STAGED_PATTERN.fullmatch(path.name) is not None


def is_leftover(output: Path) -> bool:
    """Return whether the staging directory is the rest of a finished move: nothing in it can be resumed."""
    staging = output / STAGING_DIR
    if not (output / META_FILE).exists() or not staging.is_dir() or staging.is_symlink():
        return False
    journals = [staging / JOURNAL_FILE, *staging.glob(f"*/{JOURNAL_FILE}")]
    kept = any(path.exists() for path in [staging / META_FILE, *journals])
    return not kept and all(_is_staged(path) for path in staging.iterdir())


def finish_move(output: Path) -> None:
    """Complete the move of a committed corpus, if there is one, in a locked directory.

    The old meta.json goes first and the new one comes last: a directory with a meta.json is always complete.
    """
    staging = output / STAGING_DIR
    if not (staging / META_FILE).exists():
        return
    meta = read_meta(staging / META_FILE)
    _remove_journals(staging)
    if (output / META_FILE).exists() and not all((staging / chunk.file).exists() for chunk in meta.chunks):
        _move_appended(staging, output, meta)  # shards that are not staged are those of the base
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


def _remove_journals(staging: Path) -> None:
    """Remove the journals, so that no later run resumes from shards that are about to move."""
    for path in [staging / JOURNAL_FILE, *staging.glob(f"*/{JOURNAL_FILE}")]:
        if path.exists():
            path.unlink()
            fsync_directory(path.parent)


def _move_appended(staging: Path, output: Path, meta: CorpusMeta) -> None:
    """Move appended shards; readers see them once the new meta.json is in place."""
    _move_files(staging, output, meta)
    fsync_directory(output)
    shutil.rmtree(output / DERIVED_DIR, ignore_errors=True)  # made from the shorter corpus
    os.replace(staging / META_FILE, output / META_FILE)
    fsync_directory(output)
    remove_staging(output)


def _move(staging: Path, output: Path) -> None:
    """Replace an older corpus by the staged one, unless an earlier run has done so."""
    if not (staging / META_FILE).exists():
        return
    (output / META_FILE).unlink(missing_ok=True)
    shutil.rmtree(output / DERIVED_DIR, ignore_errors=True)  # made from the older corpus
    fsync_directory(output)
    names = _move_files(staging, output, read_meta(staging / META_FILE))
    for path in output.iterdir():
        if CHUNK_PATTERN.fullmatch(path.name) and path.name not in names:
            path.unlink()
    fsync_directory(output)
    os.replace(staging / META_FILE, output / META_FILE)
    fsync_directory(output)


def _move_files(staging: Path, output: Path, meta: CorpusMeta) -> set[str]:
    """Move the remaining shards and indices; return the names of all."""
    names = file_names(meta)
    for name in sorted(names):
        if (staging / name).exists():
            os.replace(staging / name, output / name)
    for name in sorted(names):
        if not (output / name).exists():
            raise CorpusError(
                f"{output} lacks {name}, which {staging / META_FILE} lists. "
                f"Remove {staging} and prepare again."
            )
    return names


def _remove_val(directory: Path) -> None:
    """Remove the held-out documents of a corpus that is about to be replaced."""
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


def clear_staging(staging: Path, *, keep: frozenset[str] = frozenset()) -> None:
    """Remove what earlier runs left in a staging directory, except the lock and the names in `keep`."""
    for path in staging.iterdir():
        if TASK_PATTERN.fullmatch(path.name) and path.is_dir():
            remove_task(path)
        elif path.name == VAL_DIR and path.is_dir() and VAL_DIR not in keep:
            clear_staging(path)
            path.rmdir()
        elif path.name in keep or _LOCK_PATTERN.fullmatch(path.name):
            continue
        elif _STAGED_PATTERN.fullmatch(path.name):
            path.unlink()


def remove_task(directory: Path) -> None:
    """Remove the directory of a task."""
    clear_staging(directory)
    remove_lock_files(directory / LOCK_FILE)
    directory.rmdir()


def remove_staging(output: Path) -> None:
    """Remove the staging directory of a locked output directory."""
    staging = output / STAGING_DIR
    clear_staging(staging)
    remove_lock_files(staging / LOCK_FILE)
    with suppress(OSError):  # a waiting run may already have put its own lock there
        staging.rmdir()
    fsync_directory(output)
