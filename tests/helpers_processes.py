"""Kill workers of a loader."""

from __future__ import annotations

import os
import signal
from contextlib import suppress


def kill_worker(pid: int) -> None:
    """Kill a worker. If torch raises its error here already, the loader finds out within 5 seconds."""
    with suppress(RuntimeError):
        os.kill(pid, signal.SIGKILL)
