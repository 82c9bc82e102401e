"""Prepare a corpus in child processes that are killed again and again; print what happened as JSON.

Each line of the input is a job, {"options": {...}, "kills": 5, "seed": 1, "most_chunks": 9}, and each line
of the output its result. The libraries are imported once and every attempt is forked, so that an attempt
takes no seconds to begin.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import datasets  # noqa: F401 - here, and not in each attempt

from tdstream.core.errors import TdstreamError
from tdstream.preparation.engine import prepare_corpus
from tdstream.preparation.options import PrepareOptions


def attempt(options: dict[str, Any]) -> int:
    """Fork a preparation; return its process id."""
    child = os.fork()
    if child:
        return child
    try:
        given = {**options, "output_path": Path(options["output_path"]), "resume": True}
        prepare_corpus(PrepareOptions.of(**given))
    except TdstreamError as error:
        print(error, file=sys.stderr)
        os._exit(1)
    os._exit(0)


def num_chunks(journal: Path) -> int:
    """Return how many chunks are safe."""
    try:
        return journal.read_bytes().count(b"\n") - 1
    except FileNotFoundError:
        return -1


def children_of(process: int) -> list[int]:
    """Return the processes that a process has started."""
    try:
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except FileNotFoundError:
        return []


def is_alive(process: int) -> bool:
    """Return whether a process runs."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def kill_once(options: dict[str, Any], wanted: int, delay: float) -> tuple[bool, list[int]]:
    """Kill an attempt when some more chunks are safe; return whether it was alive, and its workers."""
    journal = Path(options["output_path"]) / ".preparing" / "journal.jsonl"
    begun_with = max(num_chunks(journal), 0)
    child = attempt(options)
    while num_chunks(journal) < begun_with + wanted:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False, []
        time.sleep(0.001)
    time.sleep(delay)
    workers = children_of(child)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status), workers


def kill_and_finish(given: dict[str, Any]) -> dict[str, Any]:
    """Kill some attempts, then let one live; return what happened."""
    chance = random.Random(given["seed"])
    options, kills, workers = given["options"], 0, []
    for _ in range(given["kills"]):
        killed, started = kill_once(options, chance.randint(0, given["most_chunks"]), chance.random() * 0.02)
        kills += killed
        workers += started
    last = attempt(options)
    code = os.waitstatus_to_exitcode(os.waitpid(last, 0)[1])
    deadline = time.monotonic() + 60
    while any(map(is_alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    orphans = [worker for worker in workers if is_alive(worker)]
    return {"kills": kills, "code": code, "workers": len(workers), "orphans": orphans}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(kill_and_finish(json.loads(line))), flush=True)
