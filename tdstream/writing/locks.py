"""Directory locks, which the kernel releases when their process ends.

Not `filelock`: it has no shared locks (tasks need them), cannot tell whether another process holds a lock,
and on file systems without locks falls back to a marker file that outlives a killed process.
"""

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
_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


def take_lock(directory: Path, output: Path, *, shared: bool = False) -> int:
    """Lock a directory, creating it if needed; return the descriptor that holds the lock until it is closed.

    Raises OutputError, which names the corpus directory `output`, if another process holds the lock.
    """
    path = directory / LOCK_FILE
    while True:
        directory.mkdir(exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:
            continue  # the last holder has just removed the directory
        if not _lock(descriptor, output, shared=shared):
            return descriptor
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return descriptor
        os.close(descriptor)  # the file was removed before it was locked: lock its successor


def _lock(descriptor: int, output: Path, *, shared: bool) -> bool:
    """Lock an open file; return False if its file system has no locks."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise OutputError(
            f"Another preparation is writing into {output}. Wait for it or choose another output path."
        ) from None
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            os.close(descriptor)
            raise
        logger.warning("%s is on a file system without locks: start one preparation at a time.", output)
        return False
    return True


def is_locked(directory: Path) -> bool:
    """Return whether any process holds the exclusive lock of a directory."""
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)
    return False
