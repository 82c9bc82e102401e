"""Say whether a directory may become a corpus, and why it cannot be written."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tdstream.corpus.derived import DERIVED_DIR
from tdstream.corpus.meta import META_FILE, STAGING_DIR, VAL_DIR, read_meta
from tdstream.errors import CorpusError, OutputError

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
            f"{output} is not empty (it holds {_named(entries)}). Pass --overwrite to replace a corpus "
            f"that lies there, or choose another output path; nothing was changed."
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
