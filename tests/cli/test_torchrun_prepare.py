"""Ranks of a real torchrun prepare one corpus, also when one of them is killed on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers_text import corpus_bytes, expected_tokens, write_jsonl
from tdstream.corpus.meta import read_meta

SCRIPT = Path(__file__).parents[2] / "prepare" / "fineweb_edu.py"
TEXTS = [f"def f{number}(self): return {'x ' * (number % 31)}" for number in range(3000)]


def start(tmp_path: Path, tokenizer_dir: Path, *more: str) -> subprocess.Popen[str]:
    """Start two ranks."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc_per_node", "2",
        "--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0", str(SCRIPT),
        "--tokenizer", str(tokenizer_dir), "--encoder", "hf", "--dataset", str(tmp_path / "data"),
        "--output_path", str(tmp_path / "out"), "--tokens_per_chunk", "200", "--batch_size", "2", *more,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def rank_in(directory: Path) -> int:
    """Return the process that holds the lock of a task."""
    lock = (directory / "lock").stat()
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if "FLOCK" in fields and "WRITE" in fields and fields[-3].split(":")[-1] == str(lock.st_ino):
            return int(fields[fields.index("WRITE") + 1])
    return 0


@pytest.mark.exhaustive
def test_a_rank_is_killed(tmp_path: Path, tokenizer_dir: Path) -> None:
    """After SIGKILL of rank 1 the job ends; started again, it goes on, and rank 0 makes the one corpus."""
    (tmp_path / "data").mkdir()
    for number in range(2):
        part = TEXTS[number * 1500 : (number + 1) * 1500]
        write_jsonl(tmp_path / "data" / f"{number}.jsonl", [{"text": text} for text in part])
    share = tmp_path / "out" / ".preparing" / "task_00001"

    job = start(tmp_path, tokenizer_dir)
    deadline = time.monotonic() + 180
    while not (share / "chunk_000002.bin").exists():
        assert time.monotonic() < deadline
        assert job.poll() is None, job.communicate()
        time.sleep(0.005)
    os.kill(rank_in(share), signal.SIGKILL)
    _, said = job.communicate(timeout=180)
    assert job.returncode != 0
    assert not (tmp_path / "out" / "meta.json").exists()
    kept = {path.name: path.stat().st_mtime_ns for path in share.glob("chunk_*.bin")}
    assert len(kept) >= 3, said

    job = start(tmp_path, tokenizer_dir, "--resume")
    _, said = job.communicate(timeout=180)
    assert job.returncode == 0, said
    expected = expected_tokens(tokenizer_dir, TEXTS, "<u2")
    assert corpus_bytes(tmp_path / "out") == expected.tobytes()
    assert read_meta(tmp_path / "out" / "meta.json").num_documents == 3000
    assert f"3,000 documents (0 empty, 0 bad ones skipped), {len(expected):,} tokens in" in said
    merged = [path.stat().st_mtime_ns for path in sorted((tmp_path / "out").glob("chunk_*.bin"))]
    assert set(kept.values()) <= set(merged)  # They were renamed, not written again.
    assert not (tmp_path / "out" / ".preparing").exists()
