"""Locks between processes: the kernel's and, on file systems without locks, files that name their owner.

The kernel releases its locks when their process ends. A file stays, so it names its owner: host, process and
that process's start. One whose owner has ended is taken over on the same host; from another host nobody can
tell, and the error or log line says which file to remove.

Not `filelock`: it has no shared locks (tasks need them), cannot tell whether another process holds a lock,
and on file systems without locks falls back to a marker file that outlives a killed process.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import secrets
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

logger = logging.getLogger(__name__)

_LARGEST_RECORD = 4096
_POLL_S = 0.1
_FIRST_WORD_S = 5.0
_WORD_EVERY_S = 60.0
_KINDS = r"owner|(?:shared|new|stale)-[0-9a-f]{16}"


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that holds a lock."""

    host: str
    machine: str
    """The kernel's boot and the namespace of process ids; "" if unknown."""
    pid: int
    start: str
    """The clock tick at which the process began, since a process id is used again; "" if unknown."""
    since: int
    """When it took the lock, in Unix seconds."""
    token: str

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {self.host}, since {since}"

    @classmethod
    def here(cls) -> Owner:
        """Return this process, with a new token."""
        pid, token = os.getpid(), secrets.token_hex(8)
        return cls(socket.gethostname(), _machine(), pid, _start_of(pid), int(time.time()), token)

    @classmethod
    def read(cls, path: Path) -> Owner | None:
        """Return the owner that a file names; None if there is no such file or it names none."""
        try:
            with path.open("rb") as file:
                fields = json.loads(file.read(_LARGEST_RECORD))
            owner = cls(**fields)
            return owner if isinstance(owner.pid, int) and isinstance(owner.since, int) else None
        except (OSError, ValueError, TypeError):
            return None

    def is_near(self, other: Owner) -> bool:
        """Return whether this process and another see each other."""
        return (self.host, self.machine) == (other.host, other.machine)

    @property
    def has_ended(self) -> bool:
        """Whether the process has certainly ended."""
        if not self.is_near(Owner.here()):
            return False  # nobody here can tell
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False  # another user's
        return self.start != _start_of(self.pid)


class Lock:
    """A lock, held until it is closed or, if it is the kernel's, until the process ends."""

    def __init__(self, descriptor: int, marker: Path | None = None, owner: Owner | None = None) -> None:
        self._descriptor, self._marker, self._owner = descriptor, marker, owner

    def close(self) -> None:
        """Release the lock, once."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        with suppress(OSError):
            if self._marker is None:
                os.ftruncate(descriptor, 0)
            elif Owner.read(self._marker) == self._owner:
                self._marker.unlink()
        os.close(descriptor)


def try_lock(path: Path, *, shared: bool = False) -> Lock | None:
    """Lock a file, creating it if needed; None if another process holds it.

    Raises OSError if the file cannot be created; FileNotFoundError without its directory.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            found = _lock(descriptor, path, shared=shared)
        except BaseException:
            os.close(descriptor)
            raise
        if found is None:
            os.close(descriptor)
            return None
        with suppress(FileNotFoundError):
            if found._marker is not None or os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return found
        found.close()  # the file was removed before it was locked: lock its successor


def wait_for_lock(path: Path, task: str) -> Lock | None:
    """Lock a file once no other process holds it; after some seconds, say who is busy with the task.

    Returns None where nobody can tell whether the holder still lives: without locks, on another machine.
    """
    next_word = time.monotonic() + _FIRST_WORD_S
    while (lock := try_lock(path)) is None:
        if _find_elsewhere(path) is not None:
            return None
        if time.monotonic() >= next_word:
            logger.warning("Waiting for another process that is %s (%s).", task, describe_holder(path))
            next_word = time.monotonic() + _WORD_EVERY_S
        time.sleep(_POLL_S)
    return lock


def is_locked(path: Path) -> bool:
    """Return whether any process holds the exclusive lock of a file."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        marker = _exclusive_marker(path)
        owner = Owner.read(marker)
        return marker.exists() if owner is None else not owner.has_ended
    finally:
        os.close(descriptor)
    return False


def describe_holder(path: Path) -> str:
    """Describe who holds the lock of a file, and what to do if that is over and nobody can tell."""
    elsewhere = _find_elsewhere(path)
    if elsewhere is not None:
        owner = Owner.read(elsewhere) or "another process"
        return f"{owner}; its file system has no locks: if that process has ended, remove {elsewhere}"
    named = [Owner.read(file) for file in (_exclusive_marker(path), *_shared_markers(path), path)]
    return str(next(filter(None, named), "another process"))


def _find_elsewhere(path: Path) -> Path | None:
    """Return a file beside a lock of whose owner nobody here can tell whether it lives."""
    here = Owner.here()
    for marker in (_exclusive_marker(path), *_shared_markers(path)):
        owner = Owner.read(marker)
        unknown = marker.exists() if owner is None else not owner.is_near(here)
        if unknown:
            return marker
    return None


def marker_names(name: str) -> str:
    """Return the pattern, for `re`, of the names of all files beside a lock file of this name."""
    return rf"({_KINDS})\.{re.escape(name)}"


def remove_lock_files(path: Path) -> None:
    """Remove a lock file and what stands beside it."""
    for file in (*_list_beside(path, _KINDS), path):
        file.unlink(missing_ok=True)


def _lock(descriptor: int, path: Path, *, shared: bool) -> Lock | None:
    owner = Owner.here()
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    except OSError as error:  # file systems differ in how they say that they have none
        _say_once(path.parent, error.strerror or str(error))
        marker = _beside(path, "shared", owner) if shared else _exclusive_marker(path)
        return Lock(descriptor, marker, owner) if _place(marker, owner, path, shared=shared) else None
    if not shared:
        with suppress(OSError):  # it only tells others who holds the lock
            os.ftruncate(descriptor, os.pwrite(descriptor, _record(owner), 0))
    return Lock(descriptor)


@lru_cache(maxsize=64)
def _say_once(directory: Path, reason: str) -> None:
    logger.warning(
        "%s is on a file system without locks (%s): files that name their process take their place.",
        directory,
        reason,
    )


def _place(marker: Path, owner: Owner, path: Path, *, shared: bool) -> bool:
    """Create a marker and look for others afterwards, so that of two processes at least one sees the other.

    Returns False, without a marker, if another process is in the way.
    """
    while True:
        try:
            _create(marker, owner, path)
        except FileExistsError:
            if not _remove_if_over(marker, path):
                return False
            continue
        others = [_exclusive_marker(path)] if shared else _shared_markers(path)
        if all(_remove_if_over(other, path) for other in others):
            return True
        marker.unlink(missing_ok=True)
        return False


def _create(marker: Path, owner: Owner, path: Path) -> None:
    """Create a marker with its content, at once where the file system has hard links."""
    complete = _beside(path, "new", owner)
    _write_new(complete, owner)
    try:
        os.link(complete, marker)
    except FileExistsError:
        raise
    except OSError:
        _write_new(marker, owner)
    finally:
        complete.unlink(missing_ok=True)


def _write_new(path: Path, owner: Owner) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        os.pwrite(descriptor, _record(owner), 0)
    finally:
        os.close(descriptor)


def _remove_if_over(marker: Path, path: Path) -> bool:
    """Remove a marker whose owner has ended; return whether there is none any more."""
    owner = Owner.read(marker)
    if owner is None:
        return not marker.exists()
    if not owner.has_ended:
        return False
    # Two processes may find the same one. By renaming it, one of them gets it, and looks what it got.
    taken = _beside(path, "stale", Owner.here())
    with suppress(FileNotFoundError):
        os.rename(marker, taken)
        if Owner.read(taken) != owner:  # a new one of a quicker process: it goes back
            with suppress(OSError):
                os.link(taken, marker)
        taken.unlink(missing_ok=True)
    return True


def _exclusive_marker(path: Path) -> Path:
    return path.with_name(f"owner.{path.name}")


def _beside(path: Path, kind: str, owner: Owner) -> Path:
    return path.with_name(f"{kind}-{owner.token}.{path.name}")


def _shared_markers(path: Path) -> list[Path]:
    return _list_beside(path, r"shared-[0-9a-f]{16}")


def _list_beside(path: Path, kinds: str) -> list[Path]:
    pattern = re.compile(rf"({kinds})\.{re.escape(path.name)}")
    names = os.listdir(path.parent) if path.parent.is_dir() else []
    return [path.with_name(name) for name in sorted(names) if pattern.fullmatch(name)]


def _record(owner: Owner) -> bytes:
    return json.dumps(asdict(owner)).encode()


def _start_of(pid: int) -> str:
    """Return the clock tick at which a process began; "" if the system does not tell, or if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    state, *fields = text.rpartition(")")[2].split()  # after the program's name, which may hold anything
    # A killed process keeps its number until its parent asks, and in a container perhaps nobody does.
    return "" if state in ("Z", "X") else fields[18]


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
