"""A thread that ends a loader's worker when the process that it works for is gone.

A worker that waits to write into a full pipe, or that a fork server started, outlives a trainer killed with
SIGKILL for ever. A thread that looks twice a second ends it. Two signs are needed: under fork and spawn the
parent's process id changes; under forkserver the parent is the fork server, which stays alive, but
multiprocessing's parent process reports the end of the trainer.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time

_POLL_SECONDS = 0.5
_watched: set[int] = set()  # process ids, since a forked child inherits this set but not the thread


def watch_parent() -> None:
    """Start the thread in this worker process, once; it ends the process with os._exit."""
    if os.getpid() in _watched:
        return
    _watched.add(os.getpid())
    threading.Thread(target=_watch, args=(os.getppid(),), name="tdstream-watchdog", daemon=True).start()


def _watch(parent_pid: int) -> None:
    parent = multiprocessing.parent_process()
    while os.getppid() == parent_pid and (parent is None or parent.is_alive()):
        time.sleep(_POLL_SECONDS)
    os._exit(1)
