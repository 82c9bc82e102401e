"""Run training jobs, read their logs, and say what they should have trained on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from trainer_job import ROW, SAMPLES, SEED

from helpers_corpus import write_corpus
from tdstream.schedule.order import make_order

JOB = Path(__file__).parent / "trainer_job.py"
G = 8


class Run(NamedTuple):
    """What one attempt wrote, rank by rank joined into global batches."""

    batches: list[list[int]]
    losses: list[list[float]]
    """The ranks' losses of each batch."""
    notes: list[dict[str, Any]]
    """All lines of rank 0 that are not batches."""
    text: str
    """What it printed."""


def make_directory(path: Path) -> Path:
    """Return a directory with the corpus."""
    tokens = np.arange(SAMPLES * ROW, dtype=np.uint32)
    write_corpus(path / "corpus", tokens, [len(tokens)])
    return path


def truth(epoch: int, per_batch: int = G, start: int = 0) -> list[list[int]]:
    """Return the global batches of an epoch, from the order alone."""
    order = make_order("feistel", num_samples=SAMPLES, seed=SEED, epoch=epoch)
    rows = order(np.arange(start, SAMPLES)).tolist()
    return [rows[i : i + per_batch] for i in range(0, len(rows) - per_batch + 1, per_batch)]


def run(trainer: str, directory: Path, *flags: object, ranks: int = 1, fails: bool = False) -> Run:
    """Run a job to its end, or to its kill."""
    for old in directory.glob("log-*"):
        old.unlink()
    command = [sys.executable, str(JOB), trainer, str(directory), *map(str, flags)]
    if ranks > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
        command = [sys.executable, *launcher, *command[1:]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
        env=environment,
    )  # fmt: skip
    assert (done.returncode != 0) == fails, done.stdout[-6000:]
    by_rank = {}
    for log in directory.glob("log-*.jsonl"):
        by_rank[int(log.stem.rsplit("-", 1)[1])] = [json.loads(line) for line in log.read_text().splitlines()]
    logs = [by_rank[rank] for rank in sorted(by_rank)]
    batches = [[line for line in log if "rows" in line] for log in logs]
    joined = list(zip(*batches, strict=False))
    return Run(
        [[*chain(*(part["rows"] for part in parts))] for parts in joined],
        [[part["loss"] for part in parts] for parts in joined],
        [line for line in (logs[0] if logs else []) if "rows" not in line],
        done.stdout,
    )


def copy_checkpoint(directory: Path, step: int, name: str) -> Path:
    """Keep a checkpoint of a run, in a directory of its own."""
    return Path(shutil.copytree(directory / "runs" / f"checkpoint-{step}", directory / name))
