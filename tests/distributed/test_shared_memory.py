"""Shared memory that is full: workers cannot start, and say so; what runs already goes on."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tdstream
from tdstream.core.errors import OutputError
from tdstream.distributed.shared_memory import explain_limits, explain_worker_error

FULL = r"Shared memory \(/dev/shm\) is full, .*--shm-size.*num_workers=0"


@pytest.fixture
def full(monkeypatch):
    """Torch gets no shared memory."""

    def share_memory_(_):
        raise RuntimeError(
            "unable to allocate shared memory(shm) for file </torch_1_2_3>: No space left (28)"
        )

    monkeypatch.setattr(torch.Tensor, "share_memory_", share_memory_)


@pytest.mark.parametrize(
    ("how", "live"),
    [
        ("fork", False),
        pytest.param("fork", True, marks=pytest.mark.exhaustive),
        pytest.param("spawn", True, marks=pytest.mark.exhaustive),
    ],
)
def test_workers_are_refused(full, make_corpus, tokenizer_dir, how, live):
    """They could not agree on the epoch. One process needs none."""
    texts = ["some words of text"] * 50
    options = {"tokenizer": str(tokenizer_dir), "kind": "stream"} if live else {}
    source = texts if live else make_corpus(100)
    alone = tdstream.loader(source, seq_len=4, batch_size=2, **options)
    assert len(list(alone)) > 5
    workers = tdstream.loader(
        source, seq_len=4, batch_size=2, num_workers=1, multiprocessing_context=how, **options
    )
    with pytest.raises(OutputError, match=FULL):
        next(iter(workers))


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, FULL),
        (errno.EMFILE, r"ulimit -n"),
        (errno.ENFILE, r"fs\.file-max"),
        (errno.EAGAIN, r"ulimit -u"),
        (errno.ENOMEM, r"fewer workers"),
    ],
)
def test_what_keeps_workers_from_starting(make_corpus, monkeypatch, number, advice):
    """Each limit has its sentence."""

    def start(_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("multiprocessing.process.BaseProcess.start", start)
    with pytest.raises(OutputError, match=rf"{advice}.*\({os.strerror(number)}\)"):
        next(iter(tdstream.loader(make_corpus(100), seq_len=4, batch_size=2, num_workers=1)))


def test_other_errors_stay():
    """What speaks of no limit."""
    with pytest.raises(FileNotFoundError), explain_limits():
        raise FileNotFoundError(errno.ENOENT, "no such file")
    assert explain_worker_error(RuntimeError("DataLoader worker (pid 1) is killed by signal: Killed.")) == ""
    assert explain_worker_error(ValueError("Too many open files")) == ""


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (
            "unable to allocate shared memory(shm) for file </torch_1>: No space left on device (28)",
            "shm-size",
        ),
        ("unable to write to file </torch_1>: No space left on device (28)", "shm-size"),
        ("DataLoader worker (pid 1) is killed by signal: Bus error. It is possible that", "shm-size"),
        ("Too many open files. Communication with the workers is no longer possible", "ulimit -n"),
        ("received 0 items of ancdata", "ulimit -n"),
    ],
)
def test_torchs_words(words, advice):
    """As torch and multiprocessing say it."""
    assert advice in explain_worker_error(RuntimeError(words))


PROGRAM = """
import pathlib, sys, tempfile
import numpy as np
from torchdata.stateful_dataloader import StatefulDataLoader
import tdstream
from helpers_corpus import write_corpus

def fill():
    with open("/dev/shm/fill", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return

with tempfile.TemporaryDirectory(dir="/tmp") as place:
    corpus = write_corpus(pathlib.Path(place) / "corpus", np.arange(60_000, dtype="<u2"), [60_000])
    options = {"seq_len": 199, "batch_size": 8}
    fill()
    wanted = [batch["input_ids"].tolist() for batch in tdstream.loader(corpus, **options)]
    for started in ("fork", "spawn"):
        try:
            next(iter(tdstream.loader(corpus, num_workers=2, multiprocessing_context=started, **options)))
        except tdstream.OutputError as error:
            print(error)
    for make in (
        lambda: tdstream.loader(corpus, num_workers=2, **options),
        lambda: StatefulDataLoader(tdstream.build(corpus, **options), batch_size=None, num_workers=2),
    ):
        pathlib.Path("/dev/shm/fill").unlink()
        iterator = iter(make())
        found = [next(iterator)["input_ids"].tolist()]
        fill()
        assert found + [batch["input_ids"].tolist() for batch in iterator] == wanted
"""


def can_mount():
    """Return whether this process may mount a file system of its own."""
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"]
    has_unshare = shutil.which("unshare") is not None
    return has_unshare and subprocess.run(command, check=False, capture_output=True).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="mounting a small /dev/shm takes root")
@pytest.mark.skipif(sys.prefix.startswith("/dev/shm"), reason="the mount would hide this Python")
def test_a_small_dev_shm():
    """Full before the workers start: a sentence. Full afterwards: every batch arrives, and nothing hangs."""
    mount = 'mount -t tmpfs -o size=2m tmpfs /dev/shm && exec timeout 90 "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount, sys.executable, PROGRAM],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True, text=True, check=False, cwd=Path.home(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("Shared memory (/dev/shm) is full, which worker processes need.") == 2
    assert "workers send batches as bytes" in done.stderr
