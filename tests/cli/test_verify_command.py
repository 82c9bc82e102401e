"""The command names each fault of a corpus, says what it could not check, and exits with 1 after a fault."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from helpers_text import write_jsonl
from tdstream.cli.main import main

TEXTS = [f'{{"number": {number}}}' for number in range(12)]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, tokenizer_dir: Path) -> Path:
    """Return a prepared corpus of 12 documents in several chunks of 40 tokens."""
    place = tmp_path_factory.mktemp("clean")
    write_jsonl(place / "texts.jsonl", [{"text": text} for text in TEXTS])
    flags = ["--tokenizer", str(tokenizer_dir), "--dataset", str(place / "texts.jsonl")]
    assert main(["prepare", *flags, "--output_path", str(place / "corpus"), "--tokens_per_chunk", "40"]) == 0
    return place / "corpus"


@pytest.fixture
def corpus(tmp_path: Path, clean: Path) -> Path:
    """Return a copy of it that a test may damage."""
    return Path(shutil.copytree(clean, tmp_path / "corpus"))


def test_clean(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A corpus without a fault gives 0; the tokenizer that meta.json names is found; stderr stays empty."""
    assert main(["verify", str(clean)]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    chunks = len(list(clean.glob("*.bin")))
    assert lines[0].startswith(f"{clean}: {chunks} shards, ")
    assert "  ok         12 end-of-text tokens for 12 documents" in lines
    assert "  ok         12 of 12 sample documents decode and encode to the same ids" in lines
    assert lines[-1] == "no fault found; 0 things could not be checked"
    assert printed.err == ""


def test_json(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--json prints one object with these keys, and nothing else."""
    assert main(["verify", str(clean), "--json", "--samples", "3"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert list(report) == [
        "ok", "directory", "fast", "chunks", "tokens", "eos_tokens", "faults", "notes", "checked",
        "unchecked",
    ]  # fmt: skip
    assert report["ok"] is True
    assert report["eos_tokens"] == 12
    assert report["faults"] == []
    assert "3 of 3 sample documents decode and encode to the same ids" in report["checked"]


@pytest.mark.parametrize("fast", [[], ["--fast"]])
def test_faults(corpus: Path, fast: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Several faults are all named, in text and in JSON, and the exit code is 1."""
    os.truncate(corpus / "chunk_000000.bin", 78)
    (corpus / "chunk_000001.bin").unlink()
    (corpus / "old.bin").write_bytes(b"\0\0")

    assert main(["verify", str(corpus), *fast]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("  fault")] == [
        "  fault      chunk_000000.bin: is truncated: it has 78 bytes (39 tokens); "
        "meta.json promises 80 (40 tokens).",
        "  fault      chunk_000001.bin: is missing; meta.json promises 40 tokens in it.",
        "  fault      old.bin: is not listed in meta.json; readers ignore it.",
    ]
    assert lines[-1].startswith("3 faults found; ")

    assert main(["verify", str(corpus), "--json", *fast]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert [list(fault) for fault in report["faults"]] == [["kind", "file", "message"]] * 3
    assert [(fault["kind"], fault["file"]) for fault in report["faults"]] == [
        ("truncated", "chunk_000000.bin"),
        ("missing", "chunk_000001.bin"),
        ("stray", "old.bin"),
    ]


def test_broken_meta(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A meta.json that was cut is a fault, not an error."""
    (corpus / "meta.json").write_text((corpus / "meta.json").read_text()[:100])
    assert main(["verify", str(corpus)]) == 1
    printed = capsys.readouterr()
    assert "  fault      meta.json: is not JSON (" in printed.out
    assert printed.err == ""


def test_a_tokenizer_that_is_gone(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that meta.json names and that is gone is unchecked; one that the user names is an error."""
    meta = json.loads((corpus / "meta.json").read_text())
    (corpus / "meta.json").write_text(json.dumps({**meta, "tokenizer_name_or_path": "./nowhere"}))
    assert main(["verify", str(corpus)]) == 0
    assert (
        "  unchecked  decoding of documents: Tokenizer './nowhere' not found: there is no such directory. "
        "Pass one that tokenizer.save_pretrained has written, or a name on the hub. "
        "Pass another name or path with --tokenizer."
    ) in capsys.readouterr().out.splitlines()

    assert main(["verify", str(corpus), "--tokenizer", "./elsewhere"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        "tdstream: error: Tokenizer './elsewhere' not found: there is no such directory. Pass one that "
        "tokenizer.save_pretrained has written, or a name on the hub.\n"
    )


def test_tokenizer(corpus: Path, tokenizer_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--tokenizer says where the tokenizer is."""
    meta = json.loads((corpus / "meta.json").read_text())
    (corpus / "meta.json").write_text(json.dumps({**meta, "tokenizer_name_or_path": "./nowhere"}))
    assert main(["verify", str(corpus), "--tokenizer", str(tokenizer_dir)]) == 0
    assert "the tokenizer is the one that wrote the corpus" in capsys.readouterr().out


def test_bare(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bare shards: --dtype and --eos say what meta.json would."""
    (corpus / "meta.json").unlink()
    assert main(["verify", str(corpus)]) == 1
    assert "meta.json: is missing. If these are bare shards" in capsys.readouterr().out

    assert main(["verify", str(corpus), "--dtype", "uint16", "--eos", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  ok         the corpus ends with an end-of-text token" in lines
    assert "  unchecked  decoding of documents: no tokenizer is known; name one with --tokenizer" in lines


def test_nothing_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is no corpus is an error in one sentence."""
    assert main(["verify", str(tmp_path / "nowhere")]) == 1
    error = capsys.readouterr().err
    assert f"{tmp_path / 'nowhere'} is not a directory, a file, or a prefix" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("flags", [["--samples", "0"], ["--fast"]])
def test_no_tokenizer_is_loaded_where_none_is_needed(
    clean: Path, flags: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--samples 0 and --fast do not wait for the tokenizer's library."""
    monkeypatch.setitem(sys.modules, "tdstream.text.tokenizer", None)
    assert main(["verify", str(clean), *flags]) == 0
    assert "decode and encode" not in capsys.readouterr().out
    with pytest.raises(ImportError):
        main(["verify", str(clean)])
