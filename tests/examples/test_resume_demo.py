"""A killed training job goes on exactly: the demo that shows it, on a small text and with one kill."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from helpers_corpus import write_corpus

DEMO = Path(__file__).parents[2] / "examples" / "resume_demo.py"


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """Yield an empty directory with a short path: sockets of multiprocessing go there, and have a limit."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def python_path() -> str:
    """Return where forked trainers look for the modules beside their script."""
    return os.pathsep.join([str(DEMO.parent), *filter(None, [os.environ.get("PYTHONPATH")])])


def test_a_killed_job_goes_on_exactly(short_dir):
    """After a SIGKILL of torchrun and its trainers every batch and every loss is as if nothing had been."""
    flags = ["--kills", "1", "--epochs", "2", "--text_mb", "0.08", "--workers", "1"]
    flags += ["--seed", "46"]  # kills late enough for a checkpoint to be there
    # Defaults of torchrun's flags: its trainers are forked, and so need not import torch each.
    forking = {"PET_RUN_PATH": "1", "PET_START_METHOD": "fork", "PYTHONPATH": python_path()}
    environment = {**os.environ, "TMPDIR": str(short_dir), **forking}
    command = [sys.executable, str(DEMO), *flags]

    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^killed 1 .* trainers killed$", done.stdout, re.MULTILINE)
    assert re.search(r"^killed 2 +step [1-9]0 .* finished$", done.stdout, re.MULTILINE)
    verdict = re.search(r"(\d+) batches on each of 2 ranks, 1 kill: every batch and every loss", done.stdout)
    assert verdict is not None
    assert int(verdict[1]) % 2 == 0  # of two equal epochs
    assert not list(short_dir.iterdir())  # the scratch folder is gone, and nothing lies beside it


@pytest.mark.exhaustive
def test_a_job_goes_on_with_other_numbers_of_processes(short_dir, tmp_path, monkeypatch, capsys):
    """Killed with 2 and then 3 processes and ended with 1, a job has had each sample once in each epoch."""
    tokens = np.random.default_rng(5).integers(2048, size=400 * 65 + 7).astype(np.uint16)
    corpus = write_corpus(tmp_path / "corpus", tokens, [11_000, 9_000, 6_007])
    monkeypatch.syspath_prepend(str(DEMO.parent))
    demo = importlib.import_module("resume_demo")
    monkeypatch.setattr(demo, "make_corpus", lambda directory, text_bytes: corpus)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(tempfile, "tempdir", str(short_dir))
    monkeypatch.setattr(sys, "argv", ["resume_demo.py", "--elastic", "--epochs", "2", "--seed", "6"])

    with pytest.raises(SystemExit) as end:
        demo.main()

    output = capsys.readouterr().out
    assert end.value.code == 0, output
    assert re.search(r"^1 +2 +2 +epoch 0, position 0 +epoch 0, .* killed$", output, re.MULTILINE)
    assert re.search(r"^2 +3 +0 +epoch 0, position [1-9].* epoch 1, .* killed$", output, re.MULTILINE)
    assert re.search(
        r"^3 +1 +1 +epoch [01], position [1-9].* position 400 .* finished$", output, re.MULTILINE
    )
    words = " ".join(output.split())
    told = re.search(r"(\d+) samples in 2 epochs over 3 machines: .* of (\d+) and (\d+) samples", words)
    assert told, words
    served, *left_out = map(int, told.groups())
    assert served + sum(left_out) == 800  # what an epoch leaves out depends on where the kills came
    assert max(left_out) < 24
    assert "Losses are not compared" in words
    assert not list(short_dir.iterdir())


@pytest.mark.parametrize("seed", range(20))
def test_kills_are_spread_over_the_training(monkeypatch, seed):
    """Each third of the training has its kill, none falls on step 0 or near the end, and both kinds occur."""
    monkeypatch.syspath_prepend(str(DEMO.parent))
    kills = importlib.import_module("resume_job").choose_kills(3, 70, seed)

    assert [(kill.step - 1) // 20 for kill in kills] == [0, 1, 2]
    assert [kill.everything for kill in kills] == [False, True, False]


@pytest.mark.parametrize("seed", range(10))
def test_kills_fall_into_the_middle_of_the_first_epochs(monkeypatch, seed):
    """The first machine dies in the middle of epoch 0, the second in that of epoch 1, behind a checkpoint."""
    monkeypatch.syspath_prepend(str(DEMO.parent))
    elastic = importlib.import_module("elastic_proof")
    first, second = elastic.choose_elastic_kills(1200, seed)

    served = first.step * 2 * elastic.BATCH_SIZE
    assert 0.28 < served / 1200 < 0.7
    assert 1.28 < (served + (second.step - first.step) * 3 * elastic.BATCH_SIZE) / 1200 < 1.7
    assert elastic.choose_elastic_kills(10, seed)[0].step == elastic.SAVE_EVERY + 2


def test_an_epoch_for_each_kill_is_asked_for(monkeypatch, capsys):
    """With a single epoch there is no second one to kill the job in, and the demo says so."""
    monkeypatch.syspath_prepend(str(DEMO.parent))
    monkeypatch.setattr(sys, "argv", ["resume_demo.py", "--elastic", "--epochs", "1"])

    with pytest.raises(SystemExit):
        importlib.import_module("resume_demo").parse_arguments()
    assert "pass --epochs 2 or more" in capsys.readouterr().err
