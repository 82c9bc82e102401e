"""The demo reads a whole epoch, alone and under torchrun, and its bar ends at exactly 100 %."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--local_addr=127.0.0.1", "--nproc_per_node=2"]
TORCHRUN += ["--run_path", "--start_method=fork"]  # ranks are forked, and so need not import torch each


def run_demo(*flags: str, launcher: tuple[str, ...] | list[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run the demo as a user does, and return its exit code and what it printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, str(DEMO), *flags]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def bars(output: str) -> list[str]:
    """Return the states of a progress bar, like "100% 31/31"."""
    return [" ".join(found) for found in re.findall(r"(\d+%)\|[^|]*\| (\d+/\d+)", output)]


def test_alone_it_reads_one_epoch(make_corpus):
    """1,030 tokens are 103 samples of 9 + 1; alone these are 25 batches of 4, and 3 samples are left out."""
    done = run_demo("--data_path", str(make_corpus(700, 330)), "--seq_len", "9", "--batch_size", "4")

    assert done.returncode == 0, done.stderr
    assert bars(done.stderr)[-1] == "100% 25/25"
    assert "input_ids [4, 9] torch.int64, labels [4, 9] torch.int64" in done.stdout
    assert re.search(r"900 tokens in \S+ s on 1 rank\(s\): [\d,]+ tokens/s", done.stdout)
    assert "rank 0 saw 25 batches" in done.stdout
    assert "Warning" not in done.stderr


def test_under_torchrun_ranks_share_the_epoch(make_corpus, tmp_path):
    """Two ranks read 12 batches of 4 each, other ones, and one bar counts to 12."""
    flags = ["--data_path", str(make_corpus(700, 330)), "--seq_len", "9", "--batch_size", "4"]

    done = run_demo(*flags, "--num_workers", "2", launcher=[*TORCHRUN, f"--log_dir={tmp_path / 'torchrun'}"])

    assert done.returncode == 0, done.stderr
    assert bars(done.stderr)[-1] == "100% 12/12"
    assert {state.split("/")[-1] for state in bars(done.stderr)} == {"12"}
    rows = re.findall(r"rank (\d) saw 12 batches; its first row begins (\[.*\])", done.stdout)
    assert [rank for rank, _ in rows] == ["0", "1"]
    assert rows[0][1] != rows[1][1]


def test_a_missing_corpus_ends_with_one_sentence(tmp_path):
    """Without a corpus the demo says what is missing and how to make it, and exits with 1."""
    done = run_demo("--data_path", str(tmp_path / "nowhere"))

    assert done.returncode == 1
    assert done.stdout == ""
    error = done.stderr.strip()
    assert error.startswith(f"demo: {tmp_path / 'nowhere'} is not a directory, ")
    assert error.endswith(
        f"tdstream prepare --dataset ... --tokenizer ... --output_path {tmp_path / 'nowhere'}"
    )
    assert "\n" not in error


@pytest.mark.parametrize(
    ("flag", "default"),
    [
        ("data_path", "./data/fineweb-edu-sample-10BT"),
        ("seq_len", 1024),
        ("batch_size", 16),
        ("num_workers", 0),
    ],
)
def test_defaults(monkeypatch, flag, default):
    """The flags' defaults are what the documentation says."""
    monkeypatch.syspath_prepend(str(DEMO.parent))
    monkeypatch.setattr(sys, "argv", ["demo.py"])
    import demo

    assert getattr(demo.parse_arguments(), flag) == default
