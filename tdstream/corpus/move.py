"""Move a whole staged corpus to its place, or go on with a move that was interrupted."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from tdstream.corpus.derived import DERIVED_DIR
from tdstream.corpus.doc_index import file_names
from tdstream.corpus.journal import JOURNAL_FILE
from tdstream.corpus.locks import LOCK_FILE
from tdstream.corpus.meta import META_FILE, STAGING_DIR, VAL_DIR, CorpusMeta, fsync_directory, read_meta
from tdstream.corpus.output import CHUNK_PATTERN, STAGED_PATTERN, TASK_PATTERN
from tdstream.errors import CorpusError


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
