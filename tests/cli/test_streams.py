"""A command does its work whatever became of its standard streams, and says what it does."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from helpers_text import corpus_bytes, expected_tokens, write_jsonl
from tdstream.cli.main import main

UNREAD = "| true; exit ${PIPESTATUS[0]}"
COMMAND = '"$PYTHON" -c "import sys; from tdstream.cli.main import main; sys.exit(main())" '


def shell(command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a command with the streams that a shell gives it."""
    environment = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run(
        ["bash", "-c", command], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def flags(tmp_path: Path, tokenizer_dir: Path) -> list[str]:
    """Return the flags of a small preparation with the tokenizer itself."""
    write_jsonl(tmp_path / "a.jsonl", [{"text": f"text {number}"} for number in range(50)])
    return [
        *("prepare", "--dataset", str(tmp_path / "a.jsonl"), "--tokenizer", str(tokenizer_dir)),
        *("--encoder", "hf", "--output_path", str(tmp_path / "out")),
    ]


@pytest.mark.parametrize("streams", ["2>&-", "0<&- >&- 2>&-", "2>/dev/full", f"2>&1 {UNREAD}"])
def test_a_preparation_without_stderr(
    streams: str, flags: list[str], tmp_path: Path, tokenizer_dir: Path
) -> None:
    """The corpus is written, the exit code is 0, and nothing that is shown lands in a shard."""
    done = shell(f"{COMMAND} {' '.join(flags)} {streams}", tmp_path)
    assert done.returncode == 0, done.stderr
    right = expected_tokens(tokenizer_dir, [f"text {number}" for number in range(50)], "<u2")
    assert corpus_bytes(tmp_path / "out") == right.tobytes()


class TestVerify:
    """A command whose output is its purpose."""

    @pytest.fixture(autouse=True)
    def _prepared(self, flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert main(flags) == 0
        capsys.readouterr()

    def test_a_full_disk(self, tmp_path: Path) -> None:
        """It is named in one sentence."""
        done = shell(f"{COMMAND} verify out --fast > /dev/full", tmp_path)
        assert done.returncode == 1
        assert done.stderr == "tdstream: error: The output cannot be written: No space left on device.\n"

    @pytest.mark.parametrize(("streams", "code"), [(">&-", 0), ("2>&-", 0), (UNREAD, 141)])
    def test_closed_streams(self, streams: str, code: int, tmp_path: Path) -> None:
        """The exit code tells."""
        done = shell(f"{COMMAND} verify out --fast {streams}", tmp_path)
        assert (done.returncode in (code, 0), done.stderr) == (True, "")


class TestSpeech:
    """What prepare says of its encoder."""

    @pytest.fixture
    def auto(self, flags: list[str]) -> list[str]:
        """Return flags with the default encoder."""
        return [flag for flag in flags if flag not in ("--encoder", "hf")]

    def test_without_a_fast_one(
        self, auto: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A line says so at the start and at the end, and what to install."""

        def missing(name: str) -> str:
            raise PackageNotFoundError(name)

        monkeypatch.setattr("tdstream.text.encoders.encoder.version", missing)
        assert main(auto) == 0
        said = [line for line in capsys.readouterr().err.splitlines() if "pip install" in line]
        assert said == [said[0]] * 2
        assert (
            "many times as long as a fast encoder, and none is installed. pip install 'tdstream[fast]'"
            in said[0]
        )

    def test_a_test_is_announced(
        self,
        auto: list[str],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """A line says what is tested before that takes a minute; then what came of it, and what is used."""
        pytest.importorskip("fastokens")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setattr("tdstream.text.encoders.select.code_points", lambda: range(32, 300))
        assert main(auto) == 0
        said = capsys.readouterr().err
        places = [
            said.index(part) for part in ("Testing encoder fastokens", "Tested encoder", "Encoder fastokens")
        ]
        assert places == sorted(places)
        assert "tokens/s with encoder fastokens" in said

    def test_the_log_is_left_as_it_was(self, flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        """Only a preparation by the command shows what is logged."""
        logger = logging.getLogger("tdstream")
        before: Any = (logger.level, list(logger.handlers))
        assert main(flags) == 0
        assert (logger.level, logger.handlers) == before
        assert "1 file (1 jsonl)" in capsys.readouterr().err
