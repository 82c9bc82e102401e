"""A loader in processes of its own: warnings as errors, torch without set_vital, kills of the trainer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from loader_truth import SEED, SEQ_LEN, rest

# A trainer: prints what it consumed, one line of JSON for a step, and the state behind the sixth one.
TRAINER = f"""
import json, sys, warnings
import torch

def main(corpus, workers, method, without):
    if without:
        found = torch.__getattr__ if hasattr(torch, "__getattr__") else None

        def lookup(name):
            if name != "set_vital" and found is not None:
                return found(name)
            raise AttributeError(name)

        torch.__dict__.pop("set_vital", None)
        torch.__getattr__ = lookup
        assert not hasattr(torch, "set_vital")
    import tdstream

    warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork.*")
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    options = {{"multiprocessing_context": method, "persistent_workers": True}} if workers else {{}}
    loader = tdstream.loader(
        corpus, seq_len={SEQ_LEN}, batch_size=12, shuffle=True, order="numpy", seed={SEED},
        dp_rank=0, dp_world_size=1, num_workers=workers, **options,
    )
    if without:
        assert not hasattr(torch, "set_vital")
    loader.load_state_dict(loader.state_dict())
    import multiprocessing
    for _ in range(2):
        for batch in loader:
            ids = (batch["input_ids"][:, 0] // {SEQ_LEN + 1}).tolist()
            pids = [child.pid for child in multiprocessing.active_children()]
            print(json.dumps({{"ids": ids, "pids": pids, "state": loader.state_dict()}}), flush=True)
            if len(sys.argv) > 5:
                sys.stdin.readline()

if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4] == "without")
"""


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the trainer as a file, since spawned workers import the main module."""
    path = tmp_path_factory.mktemp("trainer") / "trainer.py"
    path.write_text(TRAINER)
    return path


@pytest.mark.parametrize(
    ("workers", "method", "vital"), [(0, "fork", "with"), (0, "fork", "without"), (2, "fork", "without")]
)
def test_a_loader_runs_where_warnings_are_errors(
    workers: int, method: str, vital: str, trainer: Path, counting: Path
) -> None:
    """Under -W error, with torch's set_vital and without it, two epochs must run and nothing be printed."""
    # What torch and others do when they are imported is theirs.
    flags = ["-W", "error", "-W", "ignore::DeprecationWarning", "-W", "ignore::FutureWarning"]
    command = [sys.executable, *flags, str(trainer), str(counting), str(workers), method, vital]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = [tuple(json.loads(line)["ids"]) for line in done.stdout.splitlines()]
    assert found == rest(12, 0) + rest(12, 1)


def alive(pid: int) -> bool:
    """Say whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("method", "sign"),
    [("fork", signal.SIGKILL), ("fork", signal.SIGTERM), ("forkserver", signal.SIGKILL)],
)
def test_workers_end_with_their_trainer(method: str, sign: int, trainer: Path, counting: Path) -> None:
    """When a trainer is killed, its workers must be gone soon, and its last state must be good."""
    command = [sys.executable, str(trainer), str(counting), "2", method, "with", "step"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, stderr=subprocess.DEVNULL, **pipes) as process:
        try:
            lines = []
            for _ in range(6):
                lines.append(json.loads(process.stdout.readline()))
                process.stdin.write("\n")
                process.stdin.flush()
        finally:
            os.kill(process.pid, sign)
    pids = lines[-1]["pids"]
    assert len(pids) == 2
    begun = time.monotonic()
    while any(map(alive, pids)):
        assert time.monotonic() - begun < 6, "a worker outlived its trainer"
        time.sleep(0.05)
    assert [tuple(line["ids"]) for line in lines] == rest(12, 0)[:6]
    assert lines[-1]["state"]["position"] == 72
