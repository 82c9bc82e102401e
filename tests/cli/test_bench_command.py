"""The command measures a corpus and says what the figures mean, or in one sentence why it cannot."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tdstream.cli.bench import BenchOptions, BenchResult, evict, findings
from tdstream.cli.main import main
from tdstream.core.errors import ConfigError
from tdstream.nodes.shard_source import ShardSource


@pytest.fixture
def corpus(make_corpus: Callable[..., Path]) -> Path:
    """Return the directory of a corpus of 4,000 tokens in two shards."""
    return make_corpus(1500, 2500, dtype="uint16")


def arguments(corpus: Path, *more: str) -> list[str]:
    """Return the arguments of a short measurement."""
    return ["bench", str(corpus), "--seq_len", "31", "--batch_size", "4", "--seconds", "0.05", *more]


def speed(workers: int, warm: float, cold: float | None = None) -> BenchResult:
    """Return a measured speed."""
    return BenchResult(
        workers=workers, start_up_s=0.1, resume_s=0.1, warm_tokens_per_s=warm, cold_tokens_per_s=cold
    )


def test_json_has_every_figure(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One object: the settings, a run for each number of workers, and what follows."""
    assert main(arguments(corpus, "--workers", "0,1", "--cold", "--no-shuffle", "--json")) == 0
    result = json.loads(capsys.readouterr().out)
    assert [run["workers"] for run in result["runs"]] == [0, 1]
    for run in result["runs"]:
        assert all(
            run[name] > 0 for name in ("start_up_s", "resume_s", "warm_tokens_per_s", "cold_tokens_per_s")
        )
    sure = {run["workers"]: min(run["warm_tokens_per_s"], run["cold_tokens_per_s"]) for run in result["runs"]}
    assert result["best_workers"] == max(sure, key=sure.__getitem__)
    assert result["limit_tokens_per_s"] == max(sure.values())
    assert (result["seq_len"], result["batch_size"], result["shuffle"], result["cold"]) == (
        31,
        4,
        False,
        True,
    )
    assert len(result["findings"]) == 3


def test_people_get_a_table_and_sentences(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each number of workers; the speed is said in words."""
    assert main(arguments(corpus, "--workers", "0")) == 0
    head, line, _, *sentences = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "workers"
    assert line.split()[0] == "0"
    assert sentences[0].startswith("The loader is not a bottleneck for training at up to ")
    assert "Without workers, reading takes less than 1 % of a step" in sentences[1]


def test_a_corpus_without_meta(make_corpus: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Its storage type is an argument."""
    bare = make_corpus(4000, dtype="uint32", meta=False)
    assert main(arguments(bare, "--workers", "0", "--dtype", "uint32")) == 0
    assert main(arguments(bare, "--workers", "0")) == 1
    assert 'Pass dtype="uint16" or dtype="uint32"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--seconds", "0"], "seconds must be more than 0, got 0.0."),
        (["--seconds", "nan"], "seconds must be more than 0, got nan."),
        (["--seconds", "inf"], "seconds must be more than 0, got inf."),
        (["--workers", "-1"], "workers must be numbers of at least 0, got [-1]."),
        (["--batch_size", "0"], "batch_size must be an integer of at least 1, got 0."),
        (["--seq_len", "0"], "seq_len must be an integer of at least 1, got 0."),
        (["--seq_len", "4000"], "holds 4,000 tokens, fewer than the 4,001 of one sample"),
        (["--batch_size", "1000"], "an epoch has 125 samples, fewer than the 1,000 of one global batch"),
    ],
)
def test_what_cannot_be_measured(
    corpus: Path, more: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence on stderr, nothing on stdout, exit code 1."""
    assert main(arguments(corpus, *more)) == 1
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_a_missing_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The directory is named."""
    assert main(arguments(tmp_path / "nowhere")) == 1
    assert f"{tmp_path / 'nowhere'} is not a directory" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0,x", "", "1,,2"])
def test_workers_that_are_no_numbers(corpus: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage exits with 2."""
    with pytest.raises(SystemExit) as exit_info:
        main(arguments(corpus, f"--workers={text}"))
    assert exit_info.value.code == 2
    assert "expected a whole number" in capsys.readouterr().err


def test_a_system_without_fadvise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cold reading is refused where nothing can be dropped, and only that."""
    monkeypatch.delattr(os, "posix_fadvise")
    BenchOptions(source=tmp_path)
    with pytest.raises(ConfigError, match="cannot drop files from its page cache; leave --cold out"):
        BenchOptions(source=tmp_path, cold=True)


def test_evicting_drops_the_whole_corpus(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each shard, from its first byte to its last, is dropped once."""
    dropped = []
    monkeypatch.setattr(os, "posix_fadvise", lambda fd, *span: dropped.append((os.fstat(fd).st_size, *span)))
    evict(ShardSource(corpus))
    assert dropped == [(3000, 0, 0, os.POSIX_FADV_DONTNEED), (5000, 0, 0, os.POSIX_FADV_DONTNEED)]


class TestFindings:
    """What the figures mean."""

    def test_workers_that_help(self) -> None:
        """The limit is the best that was reached, from the disk where that is slower."""
        limit, share, helpful = findings([speed(0, 5e6, 1e6), speed(2, 9e6, 3e6), speed(4, 8e6, 2e6)])
        assert "up to 3.0 million tokens/s per rank, also from the disk, with 2 workers." in limit
        assert "up to 10,000 tokens/s per rank" in share
        assert helpful == "Workers help here: 2 workers read 3.0 times as fast as none."

    def test_workers_that_do_not(self) -> None:
        """A gain that two runs may differ by is none."""
        limit, share, helpful = findings([speed(0, 4e8), speed(1, 4.2e8)])
        assert "up to 420 million tokens/s per rank, from the page cache, with 1 worker." in limit
        assert "up to 4.0 million tokens/s" in share
        assert helpful.startswith("Workers do not help here: the best of them, 1 worker, read 1.05 times")

    def test_without_a_comparison(self) -> None:
        """Nothing is said about what was not measured."""
        assert len(findings([speed(2, 1e6)])) == 1
        assert len(findings([speed(0, 1e6)])) == 2
