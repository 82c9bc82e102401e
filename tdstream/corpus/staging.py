"""Turn a directory from what it was into a whole corpus, with nothing in between that could mislead a reader.

While a preparation runs, its shards lie in ``<output>/.preparing/``. Writing ``.preparing/meta.json`` is the
commit: before it a killed run counts for nothing, after it the next start finishes the move. In the move
the old meta.json goes first and the new one comes last, so a directory with a meta.json is always whole.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from contextlib import suppress
from pathlib import Path

from tdstream.corpus.meta import META_FILE, STAGING_DIR, CorpusMeta, fsync_directory, read_meta, write_meta
from tdstream.corpus.output import (
    CHUNK_PATTERN,
    STAGED_PATTERN,
    check_contents,
    check_parent,
    explain_os_errors,
)
from tdstream.errors import CorpusError, OutputError

logger = logging.getLogger(__name__)

LOCK_FILE = "lock"
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


def check_output(output: Path, *, overwrite: bool) -> None:
    """Refuse an output directory that cannot be used, before anything slow is done.

    A move that was interrupted is finished first.

    Args:
        output: Where the corpus is to lie; it need not exist.
        overwrite: Whether an older corpus may be replaced.

    Raises:
        OutputError: If it is a file, not writable, in use, or holds what must not be lost.
    """
    with explain_os_errors(output):
        if not os.path.lexists(output):
            check_parent(output)
            return
        if not output.is_dir():
            raise OutputError(f"{output} is a file, not a directory. Choose another output path.")
        if not os.access(output, os.W_OK | os.X_OK):
            raise OutputError(
                f"{output} may not be written. Change its permissions or choose another output path."
            )
        if (output / STAGING_DIR / LOCK_FILE).exists():
            lock = _lock(output)
            try:
                finish_move(output)
            finally:
                os.close(lock)
        check_contents(output, overwrite=overwrite)


class Staging:
    """The output directory of one preparation: locked, checked, with an empty place for its shards."""

    def __init__(self, output: Path, *, overwrite: bool) -> None:
        """Claim a directory.

        Args:
            output: Where the corpus is to lie; created where it does not exist.
            overwrite: Whether an older corpus may be replaced.

        Raises:
            OutputError: If it cannot be used, or another preparation is using it.
        """
        self.output = output
        self.directory = output / STAGING_DIR
        self._lock_descriptor: int | None = None
        with explain_os_errors(output):
            self._created = _make_directories(output)
            try:
                self._lock_descriptor = _lock(output)
                finish_move(output)
                check_contents(output, overwrite=overwrite)
                _empty(self.directory)
            except BaseException:
                self.discard()
                raise

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
        self._release()

    def discard(self) -> None:
        """Give the claim up: remove what was staged, and the directories that were made for it.

        A corpus that has been committed is left for the next start to finish.
        """
        if self._lock_descriptor is None:
            _remove_empty(self._created)
            return
        if not (self.directory / META_FILE).exists():
            with suppress(OSError):
                _empty(self.directory)
                _remove_staging(self.output)
            _remove_empty(self._created)
        self._release()

    def _release(self) -> None:
        if self._lock_descriptor is not None:
            os.close(self._lock_descriptor)
            self._lock_descriptor = None


def finish_move(output: Path) -> None:
    """Bring a committed corpus from its staging place to its final place, if there is one.

    It may be interrupted anywhere and started again: a shard is either staged or already moved.

    Args:
        output: The corpus directory; the caller holds its lock.
    """
    staging = output / STAGING_DIR
    if not (staging / META_FILE).exists():
        return
    meta = read_meta(staging / META_FILE)
    (output / META_FILE).unlink(missing_ok=True)
    fsync_directory(output)
    names = {chunk.file for chunk in meta.chunks}
    for name in sorted(names):
        if (staging / name).exists():
            os.replace(staging / name, output / name)
        elif not (output / name).exists():
            raise CorpusError(
                f"{output} lacks {name}, which {staging / META_FILE} lists. "
                f"Remove {staging} and prepare again."
            )
    for path in output.iterdir():
        if CHUNK_PATTERN.fullmatch(path.name) and path.name not in names:
            path.unlink()
    fsync_directory(output)
    os.replace(staging / META_FILE, output / META_FILE)
    fsync_directory(output)
    _remove_staging(output)


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


def _lock(output: Path) -> int:
    """Lock the staging directory for this process; return the descriptor that holds the lock."""
    path = output / STAGING_DIR / LOCK_FILE
    while True:
        path.parent.mkdir(exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:
            continue  # The run before us has just removed the staging directory.
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise OutputError(
                f"Another preparation is writing into {output}. Wait for it or choose another output path."
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(descriptor)
                raise
            logger.warning("%s cannot be locked there: start one preparation at a time.", output)
            return descriptor
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return descriptor
        os.close(descriptor)  # The file that we locked has been removed meanwhile; lock its successor.


def _empty(staging: Path) -> None:
    """Remove all that a killed run left, except the lock, which is ours by now."""
    for path in staging.iterdir():
        if path.name != LOCK_FILE and STAGED_PATTERN.fullmatch(path.name):
            path.unlink()


def _remove_staging(output: Path) -> None:
    staging = output / STAGING_DIR
    _empty(staging)
    (staging / LOCK_FILE).unlink(missing_ok=True)
    with suppress(OSError):  # A run that waits for this directory may already have put its own lock there.
        staging.rmdir()
    fsync_directory(output)
