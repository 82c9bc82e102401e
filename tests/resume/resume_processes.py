"""Look at processes through /proc, and stand for a trainer that will be killed."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from resume_loaders import Setup, make_dataset, strict_warnings, wrap
from resume_truth import MODES

Process = tuple[int, str]
"""A process id and the time when the process began, since ids are used again."""


def stat_of(pid: int) -> tuple[str, int, str] | None:
    """Return state, parent and start time of a process; None if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[1]), fields[19]


def all_pids() -> list[int]:
    """Return the ids of all processes."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def descendants(ancestor: int) -> set[Process]:
    """Return all processes below one."""
    stats = {pid: stat for pid in all_pids() if (stat := stat_of(pid)) is not None}
    found, below = set(), {ancestor}
    while below:
        below = {pid for pid, (_, parent, _) in stats.items() if parent in below}
        found |= {(pid, stats[pid][2]) for pid in below}
    return found


def is_alive(process: Process) -> bool:
    """Return whether a process runs; one that only waits to be buried does not."""
    stat = stat_of(process[0])
    return stat is not None and stat[0] not in "ZX" and stat[2] == process[1]


def marked(mark: str) -> set[Process]:
    """Return the processes that were started with a mark in their environment."""
    found = set()
    for pid in all_pids():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        stat = stat_of(pid)
        if mark.encode() in environment and stat is not None and stat[0] not in "ZX":
            found.add((pid, stat[2]))
    return found


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Return whether a condition becomes true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def pad(batches: list[Any]) -> dict[str, Any]:
    """Give a batch 200 KB of bytes, which fill the pipe from a worker to its trainer."""
    return {"padding": b"x" * 200_000, **batches[0]}


def trainer(corpus: str, out: Path, method: str, *, busy: bool) -> None:
    """Start a loader, take a batch, say so, and wait to be killed."""
    loader = wrap(
        make_dataset(corpus, MODES["batch"]),
        MODES["batch"],
        Setup(1 if method == "spawn" else 2, True, 1, 4, method),
    )
    if busy:
        loader.collate_fn = pad
    if busy:
        next(iter(loader))
    else:
        for _ in loader:
            pass
    time.sleep(0.5)  # for the workers to run into the full pipe
    workers = [worker.pid for worker in loader._iterator._workers]
    announce = out.with_suffix(".tmp")
    announce.write_text(json.dumps({"pid": os.getpid(), "workers": workers}))
    announce.rename(out)
    time.sleep(120)


def nursery(corpus: str, out: Path, kinds: Iterable[list[Any]]) -> None:
    """Fork one trainer per kind, so that the long import is paid once; they announce themselves in files."""
    strict_warnings()
    for number, (method, busy) in enumerate(kinds):
        if os.fork() == 0:
            trainer(corpus, out / f"trainer{number}", method, busy=busy)
    time.sleep(120)


if __name__ == "__main__":
    nursery(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
