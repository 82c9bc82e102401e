"""Let one preparation at a time write into a directory, also where its locks disappear with it."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from contextlib import suppress
from pathlib import Path

from tdstream.core.errors import OutputError

logger = logging.getLogger(__name__)

LOCK_FILE = "lock"
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


def take_lock(directory: Path, output: Path, *, shared: bool = False) -> int:
    """Lock a directory for this process; return the descriptor that holds the lock until it is closed.

    Args:
        directory: What to lock; created where it does not exist.
        output: The corpus directory, for the sentence.
        shared: Whether others that share it may hold it at the same time.

    Raises:
        OutputError: If another process holds it.
    """
    path = directory / LOCK_FILE
    while True:
        directory.mkdir(exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:
            continue  # The run before us has just removed the directory.
        if not _locked(descriptor, output, shared=shared):
            return descriptor
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return descriptor
        os.close(descriptor)  # The file that we locked has been removed meanwhile; lock its successor.


def _locked(descriptor: int, output: Path, *, shared: bool) -> bool:
    """Lock an open file; return whether its file system knows locks."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
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
        return False
    return True


def is_locked(directory: Path) -> bool:
    """Return whether some process holds the lock of a directory."""
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # No locks there, so nobody can hold one.
        return False
    finally:
        os.close(descriptor)
    return False
