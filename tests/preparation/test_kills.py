"""A preparation that is killed with SIGKILL at random moments ends as if nothing had happened."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers_points import files_of

from helpers_text import corpus_bytes, expected_tokens, write_jsonl
from tdstream.preparation.engine import prepare_corpus
from tdstream.preparation.options import PrepareOptions
from tdstream.verification.verify import verify_corpus

RUNNER = Path(__file__).with_name("helpers_kill.py")
NUM_DOCUMENTS = 600
WORDS = ["self", "def", "json", "return", "x", "=", "\u00e9t\u00e9", "\u65e5\u672c"]


def texts() -> list[str]:
    """Return documents of 0 to 60 words, the same at every call."""
    chance = random.Random(7)
    return [" ".join(chance.choices(WORDS, k=chance.randrange(60))) for _ in range(NUM_DOCUMENTS)]


def write_source(kind: str, directory: Path) -> Path:
    """Write the documents, and three records without text, into three files of a kind."""
    directory.mkdir()
    rows: list[dict[str, Any]] = [{"id": number, "text": text} for number, text in enumerate(texts())]
    for place in (5, 250, 599):
        rows.insert(place, {"id": -1, "text": None})
    for number in range(3):
        part = rows[number * 201 : (number + 1) * 201]
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(part), directory / f"{number}.parquet", row_group_size=50)
        elif kind == "jsonl":
            write_jsonl(directory / f"{number}.jsonl", part)
        else:
            lines = "".join(json.dumps(row) + "\n" for row in part)
            (directory / f"{number}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    return directory


def jobs(
    directory: Path, tokenizer_dir: Path, runs: list[tuple[str, int, int]], more: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return what the runner is to do for some (kind, num_proc, kills); each has a directory of its own."""
    made = []
    for kind, num_proc, kills in runs:
        place = directory / f"{kind}_{num_proc}"
        place.mkdir()
        options = {
            "dataset": str(write_source(kind, place / "data")), "tokenizer": str(tokenizer_dir),
            "output_path": str(place / "killed"), "tokens_per_chunk": 150, "batch_size": 9, "skip_bad": True,
            "num_proc": num_proc, "encoder": "hf", **more,
        }  # fmt: skip
        made.append(
            {
                "options": options,
                "kills": kills,
                "seed": kills + num_proc,
                "most_chunks": max(120 // kills, 1),
            }
        )
    return made


@pytest.fixture(scope="module")
def runner() -> Iterator[subprocess.Popen[str]]:
    """Yield the process that prepares and kills, one for all tests: it imports for seconds."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, str(RUNNER)], **pipes) as process:
        yield process
        process.stdin.close()


Check = Callable[..., None]


@pytest.fixture
def check(tmp_path: Path, tokenizer_dir: Path, runner: subprocess.Popen[str]) -> Check:
    """Return the comparison of killed runs with a run that lived, in this test's directory."""
    return partial(kill_and_compare, runner, tmp_path, tokenizer_dir)


def kill_and_compare(
    runner: subprocess.Popen[str],
    directory: Path,
    tokenizer_dir: Path,
    runs: list[tuple[str, int, int]],
    **more: Any,
) -> None:
    """Compare what killed runs leave with what a run that lived leaves, and with the rule."""
    given = jobs(directory, tokenizer_dir, runs, more)
    for job in given if "append" in more else []:
        base = write_jsonl(directory / "base.jsonl", [{"text": text} for text in texts()[:90]])
        for output in ("killed", "whole"):
            place = Path(job["options"]["output_path"]).with_name(output)
            options = {**job["options"], "append": False, "dataset": str(base), "output_path": place}
            prepare_corpus(PrepareOptions.of(**options))
    for job, (_, num_proc, kills) in zip(given, runs, strict=True):
        print(json.dumps(job), file=runner.stdin, flush=True)
        result = json.loads(runner.stdout.readline())
        assert result["code"] == 0, result
        assert result["kills"] >= kills - 1  # The last one may come too late.
        assert result["workers"] > 0 or num_proc == 1
        assert result["orphans"] == []
        compare(Path(job["options"]["output_path"]), tokenizer_dir, job["options"])


def compare(killed: Path, tokenizer_dir: Path, options: dict[str, Any]) -> None:
    """Compare with a run that lived, file by file, and with the rule."""
    whole = killed.with_name("whole")
    prepare_corpus(PrepareOptions.of(**{**options, "num_proc": 1, "output_path": whole}))
    assert files_of(killed) == files_of(whole)
    if "append" in options:
        all_texts = [*texts()[:90], *texts()]
        assert corpus_bytes(killed) == expected_tokens(tokenizer_dir, all_texts, "<u2").tobytes()
    elif "val_fraction" not in options:
        assert corpus_bytes(killed) == expected_tokens(tokenizer_dir, texts(), "<u2").tobytes()
    else:
        val = corpus_bytes(killed / "val")
        assert 0.2 < len(val) / (len(val) + len(corpus_bytes(killed))) < 0.4
        assert verify_corpus(killed / "val").ok


def test_five_kills(check: Check) -> None:
    """Five kills for every format: the files are those of a run that lived."""
    check([(kind, 1, 5) for kind in ("parquet", "jsonl", "gz")])


def test_kills_with_documents_held_out(check: Check) -> None:
    """Three kills while a second corpus is written beside the first: the files of both are the same."""
    check([("parquet", 1, 3)], val_fraction=0.3)


def test_kills_while_appending(check: Check) -> None:
    """Three kills while documents are appended: every one is in the corpus once."""
    check([("parquet", 1, 3)], append=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("num_proc", [1, 2])
def test_fifty_kills_while_appending(check: Check, num_proc: int) -> None:
    """Fifty kills, one process and two."""
    check([("gz", num_proc, 50)], append=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("num_proc", [1, 2])
def test_fifty_kills_with_documents_held_out(check: Check, num_proc: int) -> None:
    """Fifty kills, one process and two."""
    check([("jsonl", num_proc, 50)], val_fraction=0.3)


@pytest.mark.exhaustive
def test_kills_with_workers(check: Check) -> None:
    """Two kills with two worker processes: the same files, and no worker outlives what it works for."""
    check([("gz", 2, 2)])


@pytest.mark.exhaustive
@pytest.mark.parametrize("num_proc", [1, 2])
@pytest.mark.parametrize("kind", ["parquet", "jsonl", "gz"])
def test_fifty_kills(check: Check, kind: str, num_proc: int) -> None:
    """Fifty kills, every format, one process and two."""
    check([(kind, num_proc, 50)])
