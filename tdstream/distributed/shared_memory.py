"""Tensors in shared memory, and sentences for the limits of a machine that workers meet."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.context import get_spawning_popen

from torch import Tensor

from tdstream.core.errors import OutputError

_FULL = (
    "Shared memory (/dev/shm) is full, which worker processes need. Give the container more (docker run "
    "--shm-size=1g; in Kubernetes an emptyDir of medium Memory at /dev/shm), remove what other programs left "
    "in it, or use num_workers=0."
)
_ADVICE = {
    errno.ENOSPC: _FULL,
    errno.EMFILE: "Worker processes need more open files than this process may have. Raise the limit "
    "(ulimit -n), or use fewer workers.",
    errno.ENFILE: "Worker processes need more open files than this machine allows. Raise the limit (sysctl "
    "fs.file-max), or use fewer workers.",
    errno.EAGAIN: "No more worker processes can be started: a limit on processes or threads is reached. "
    "Raise it (ulimit -u; in a container, its pids limit), or use fewer workers.",
    errno.ENOMEM: "There is no memory for more worker processes. Use fewer workers.",
}
# torch's own words, in RuntimeError. Where memory is promised but not there, a worker gets a bus error.
_FULL_PATTERN = re.compile(
    r"shared memory\(shm\) for file.*No space left|write to file </torch_|killed by signal: Bus error"
)
_FILES_PATTERN = re.compile(r"Too many open files|received 0 items of ancdata")


def share(cells: Tensor) -> Tensor:
    """Move a tensor to shared memory; where that is full, leave it, since only workers need it there."""
    with suppress(RuntimeError, OSError):
        cells.share_memory_()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
    return cells


def is_shared(cells: Tensor) -> bool:
    """Return whether a tensor is in shared memory."""
    return bool(cells.is_shared())  # type: ignore[no-untyped-call]  # torch leaves it unannotated


def check_shared(cells: Tensor) -> None:
    """Refuse to work in a worker process with cells that nobody else sees."""
    if not is_shared(cells):
        raise OutputError(_FULL)


def check_can_be_sent(cells: Tensor) -> None:
    """Refuse to send cells to a process that is being started, while they cannot be shared with it."""
    if get_spawning_popen() is not None:
        check_shared(share(cells))


@contextmanager
def explain_limits() -> Iterator[None]:
    """Turn an OSError of starting workers into one that names the limit and what to do."""
    try:
        yield
    except OSError as error:
        if isinstance(error, OutputError) or error.errno not in _ADVICE:
            raise
        raise OutputError(f"{_ADVICE[error.errno]} ({error.strerror})") from error


def explain_worker_error(error: BaseException) -> str:
    """Return what limit an error of torch's about a worker speaks of, and what to do; "" if of none."""
    if isinstance(error, RuntimeError):
        if _FULL_PATTERN.search(str(error)):
            return _FULL
        if _FILES_PATTERN.search(str(error)):
            return _ADVICE[errno.EMFILE]
    return ""
