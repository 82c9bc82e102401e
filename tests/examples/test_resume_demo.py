"""A killed training job goes on exactly: the demo that shows it, on a small text and with one kill."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "resume_demo.py"


def test_a_killed_job_goes_on_exactly(tmp_path):
    """After a SIGKILL of torchrun and its trainers every batch and every loss is as if nothing had been."""
    flags = ["--kills", "1", "--epochs", "2", "--text_mb", "0.12", "--workers", "1"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, str(DEMO), *flags], env=environment, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^killed 1 .* trainers killed$", done.stdout, re.MULTILINE)
    verdict = re.search(
        r"(\d+) batches on each of 2 ranks, 1 kill: every batch and every loss equal", done.stdout
    )
    assert verdict is not None
    assert int(verdict[1]) % 2 == 0  # of two equal epochs
    assert not list(tmp_path.glob("tdstream-*")) + list(
        tmp_path.glob("torchelastic_*")
    )  # the scratch folder is gone


@pytest.mark.parametrize("seed", range(20))
def test_kills_are_spread_over_the_training(monkeypatch, seed):
    """Each third of the training has its kill, none falls on step 0 or near the end, and both kinds occur."""
    monkeypatch.syspath_prepend(str(DEMO.parent))
    kills = importlib.import_module("resume_job").choose_kills(3, 70, seed)

    assert [(kill.step - 1) // 20 for kill in kills] == [0, 1, 2]
    assert [kill.everything for kill in kills] == [False, True, False]
