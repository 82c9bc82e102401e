"""A killed training job goes on exactly: the demo that shows it, on a small text and with one kill."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "resume_demo.py"


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """Yield an empty directory with a short path: sockets of multiprocessing go there, and have a limit."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_a_killed_job_goes_on_exactly(short_dir):
    """After a SIGKILL of torchrun and its trainers every batch and every loss is as if nothing had been."""
    flags = ["--kills", "1", "--epochs", "2", "--text_mb", "0.08", "--workers", "1"]
    flags += ["--seed", "46"]  # kills late enough for a checkpoint to be there
    environment = {**os.environ, "TMPDIR": str(short_dir)}
    command = [sys.executable, str(DEMO), *flags]

    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^killed 1 .* trainers killed$", done.stdout, re.MULTILINE)
    assert re.search(r"^killed 2 +step [1-9]0 .* finished$", done.stdout, re.MULTILINE)
    verdict = re.search(r"(\d+) batches on each of 2 ranks, 1 kill: every batch and every loss", done.stdout)
    assert verdict is not None
    assert int(verdict[1]) % 2 == 0  # of two equal epochs
    assert not list(short_dir.iterdir())  # the scratch folder is gone, and nothing lies beside it


@pytest.mark.parametrize("seed", range(20))
def test_kills_are_spread_over_the_training(monkeypatch, seed):
    """Each third of the training has its kill, none falls on step 0 or near the end, and both kinds occur."""
    monkeypatch.syspath_prepend(str(DEMO.parent))
    kills = importlib.import_module("resume_job").choose_kills(3, 70, seed)

    assert [(kill.step - 1) // 20 for kill in kills] == [0, 1, 2]
    assert [kill.everything for kill in kills] == [False, True, False]
