"""The examples of trainers, run, killed and resumed: they end as if nothing had happened."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "trainers"
pytestmark = [pytest.mark.trainers, pytest.mark.filterwarnings("ignore")]
CASES = [
    ("transformers_trainer", "accelerate", "checkpoint-10"),
    ("accelerate_loop", "accelerate", "step-40"),
]


def start(name: str, directory: Path, *flags: str) -> subprocess.Popen[str]:
    """Start an example."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), "--tiny", "--output_dir", str(directory), *flags]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.Popen(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    )


@pytest.mark.parametrize(("name", "package", "checkpoint"), CASES)
def test_a_killed_example_ends_as_an_uninterrupted_one(
    name: str, package: str, checkpoint: str, tmp_path: Path
) -> None:
    """SIGKILL after the first checkpoint, then --resume: the last line is the same."""
    pytest.importorskip(package, reason=f"{package} is not installed: make test-trainers")
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= 80
    whole = start(name, tmp_path / "whole")
    text, _ = whole.communicate(timeout=300)
    assert whole.returncode == 0, text
    killed = start(name, tmp_path / "killed")
    last_file = "trainer_state.json" if name == "transformers_trainer" else "."
    while not (tmp_path / "killed" / checkpoint / last_file).exists():
        assert killed.poll() is None
        time.sleep(0.02)
    killed.kill()
    killed.communicate()
    resumed = start(name, tmp_path / "killed", "--resume")
    again, _ = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, again
    assert again.splitlines()[-1] == text.splitlines()[-1]
    assert "step" in text.splitlines()[-1]
    assert "Warning" not in text + again
