"""Locks of the directories that a preparation writes to."""

from __future__ import annotations

from pathlib import Path

from tdstream.core.errors import OutputError
from tdstream.distributed.file_lock import Lock, describe_holder, try_lock
from tdstream.distributed.file_lock import is_locked as is_file_locked

LOCK_FILE = "lock"


class LockedError(OutputError):
    """Another process holds the lock."""


def take_lock(directory: Path, output: Path, *, shared: bool = False) -> Lock:
    """Lock a directory, creating it if needed.

    Raises LockedError, which names the corpus directory `output` and who holds the lock.
    """
    path = directory / LOCK_FILE
    while True:
        directory.mkdir(exist_ok=True)
        try:
            lock = try_lock(path, shared=shared)
        except FileNotFoundError:
            continue  # the last holder has just removed the directory
        if lock is not None:
            return lock
        raise LockedError(
            f"Another preparation is writing into {output} ({describe_holder(path)}). Wait for it or choose "
            f"another output path."
        )


def is_locked(directory: Path) -> bool:
    """Return whether any process holds the exclusive lock of a directory."""
    return is_file_locked(directory / LOCK_FILE)
