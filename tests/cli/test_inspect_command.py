"""The command prints what a corpus is: shards, documents as text, and how long documents are."""

from __future__ import annotations

import json
import os
import shutil
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import tdstream
from helpers_text import corpus_bytes, write_jsonl
from tdstream.cli.inspect import text_histogram
from tdstream.cli.main import main
from tdstream.corpus.meta import read_meta
from tdstream.verification.contents import LengthStatistics
from tdstream.verification.overview import overview

TEXTS = ["the first one", "", "json " * 300, *(f"number {number}" for number in range(9))]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, tokenizer_dir: Path) -> Path:
    """Return a prepared corpus of 12 documents; one lies in three chunks or more."""
    place = tmp_path_factory.mktemp("clean")
    write_jsonl(place / "texts.jsonl", [{"text": text} for text in TEXTS])
    flags = ["--tokenizer", str(tokenizer_dir), "--dataset", str(place / "texts.jsonl")]
    assert main(["prepare", *flags, "--output_path", str(place / "corpus"), "--tokens_per_chunk", "100"]) == 0
    return place / "corpus"


@pytest.fixture
def corpus(tmp_path: Path, clean: Path) -> Path:
    """Return a copy of it that a test may change."""
    return Path(shutil.copytree(clean, tmp_path / "corpus"))


def lengths_of(directory: Path) -> list[int]:
    """Return the lengths of a corpus's documents, by the places of id 0 in its bytes."""
    ends = np.flatnonzero(np.frombuffer(corpus_bytes(directory), "<u2") == 0).tolist()
    return [end - before - 1 for before, end in pairwise([-1, *ends])]


def test_nobody_reads(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind `| head`, it ends quietly when what reads its output has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert main(["inspect", str(clean)]) == 128 + 13


def test_json(clean: Path, tokenizer_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--json prints one object with these keys, and nothing else; the numbers are those of the bytes."""
    assert main(["inspect", str(clean), "--json", "--documents", "20"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert printed.err == ""
    assert list(found) == [
        "directory", "dtype", "tokens", "bytes", "chunks", "tokenizer", "tokenizer_fingerprint",
        "tokenizer_problem", "vocab_size", "encoder", "eos_token_id", "num_documents", "doc_index",
        "open_tokens", "lengths", "documents", "kept",
    ]  # fmt: skip
    size = len(corpus_bytes(clean))
    assert (found["dtype"], found["tokens"], found["bytes"]) == ("uint16", size // 2, size)
    assert found["tokenizer"] == str(tokenizer_dir)
    assert (found["vocab_size"], found["eos_token_id"], found["num_documents"]) == (400, 0, 12)
    assert (found["open_tokens"], found["tokenizer_problem"]) == (0, "")
    assert found["encoder"] == read_meta(clean / "meta.json").encoder
    assert found["chunks"][0] == {"file": "chunk_000000.bin", "tokens": 100}
    assert sum(chunk["tokens"] for chunk in found["chunks"]) == size // 2

    lengths = lengths_of(clean)
    assert max(lengths) > 300
    assert found["lengths"]["documents"] == len(lengths) == 12
    assert (found["lengths"]["minimum"], found["lengths"]["maximum"]) == (0, max(lengths))
    assert found["lengths"]["mean"] == sum(lengths) / 12
    assert [document["tokens"] for document in found["documents"]] == lengths
    shown = [document["text"] for document in found["documents"]]
    assert [text for text in shown if not text.startswith("json")] == [TEXTS[0], TEXTS[1], *TEXTS[3:]]
    assert TEXTS[2].startswith(shown[2])
    assert len(found["documents"][2]["ids"]) == 200


def test_text(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same for people."""
    assert main(["inspect", str(clean), "--documents", "1"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0] == str(clean)
    assert "             chunk_000000.bin  100 tokens" in lines
    assert "  documents  12 (by their index)" in lines
    assert "  eos        0" in lines
    first = lines.index(f"document 0: {lengths_of(clean)[0]} tokens from 0")
    assert lines[first + 1] == "  'the first one'"
    assert sum(line.startswith("document ") for line in lines) in (1, 2)
    assert lines[lines.index("tokens in a document, documents") + 1].split()[:2] == ["0", "1"]


def test_seed(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--seed decides which documents are shown; the first one always is."""
    chosen = set()
    for seed in ("1", "1", "2", "3"):
        assert main(["inspect", str(clean), "--json", "--documents", "3", "--seed", seed]) == 0
        documents = json.loads(capsys.readouterr().out)["documents"]
        assert documents[0]["number"] == 0
        chosen.add(tuple(document["number"] for document in documents))
    assert 1 < len(chosen) < 4


@pytest.mark.parametrize("piece_bytes", [4, 8, 200, 204, 1 << 20])
def test_pieces(clean: Path, piece_bytes: int) -> None:
    """How much is read at once changes nothing: documents over borders of chunks and pieces stay whole."""
    meta = read_meta(clean / "meta.json")
    found = overview(clean, meta, documents=100, seed=0, piece_bytes=piece_bytes)
    assert [excerpt.tokens for excerpt in found.excerpts] == lengths_of(clean)


def test_without_tokenizer(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the tokenizer, ids are shown, and why."""
    meta = json.loads((corpus / "meta.json").read_text())
    (corpus / "meta.json").write_text(
        json.dumps({**meta, "tokenizer_name_or_path": "./nowhere", "encoder": "hf"})
    )
    assert main(["inspect", str(corpus), "--documents", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    ids = np.fromfile(corpus / "chunk_000000.bin", "<u2")[: lengths_of(corpus)[0]]
    assert "  " + " ".join(map(str, ids)) in lines
    assert any(
        "./nowhere, 400 ids, encoded by hf (not loaded: Tokenizer './nowhere' not found" in line
        for line in lines
    )


def test_reference(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A corpus without the new keys is shown as well."""
    meta = json.loads((corpus / "meta.json").read_text())
    new = ("format_version", "tokenizer_fingerprint", "vocab_size", "num_documents", "chunk_checksums")
    (corpus / "meta.json").write_text(json.dumps({key: meta[key] for key in meta if key not in new}))
    assert main(["inspect", str(corpus), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["num_documents"] is None
    assert found["lengths"]["documents"] == 12
    assert found["documents"][0]["text"] == TEXTS[0]


def test_bare(corpus: Path, tokenizer_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bare shards: --dtype is needed; --eos or --tokenizer tell documents apart."""
    (corpus / "meta.json").unlink()
    assert main(["inspect", str(corpus)]) == 1
    assert "so the type of its tokens is unknown" in capsys.readouterr().err

    assert main(["inspect", str(corpus), "--dtype", "uint16"]) == 0
    out = capsys.readouterr().out
    assert "documents  unknown (no end-of-text id; pass --eos)" in out
    assert f"the first tokens: {len(corpus_bytes(corpus)) // 2} tokens from 0" in out

    for more in (["--eos", "0"], ["--tokenizer", str(tokenizer_dir)]):
        assert main(["inspect", str(corpus), "--dtype", "uint16", "--json", *more]) == 0
        assert json.loads(capsys.readouterr().out)["lengths"]["documents"] == 12


def test_open_end(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tokens behind the last end-of-text token are a document, and are said to be open."""
    (corpus / "meta.json").unlink()
    last = max(corpus.glob("*.bin"))
    last.write_bytes(last.read_bytes() + b"\5\0\6\0")
    assert main(["inspect", str(corpus), "--dtype", "uint16", "--eos", "0"]) == 0
    out = capsys.readouterr().out
    assert "documents  13; the last one has no end-of-text token (2 tokens)" in out


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--documents", "-1"], "--documents must be at least 0, got -1."),
        (["--seed", "-1"], "--seed must be at least 0, got -1."),
        (["--eos", "5"], "eos 5 was given, but meta.json says 0. Leave it out."),
    ],
)
def test_refusals(clean: Path, more: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A flag that cannot be used is one sentence."""
    assert main(["inspect", str(clean), *more]) == 1
    assert capsys.readouterr().err == f"tdstream: error: {sentence}\n"


def test_damaged(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A corpus that training would refuse is refused here, too."""
    os.truncate(corpus / "chunk_000001.bin", 100)
    assert main(["inspect", str(corpus)]) == 1
    assert "it has 100 bytes (50 tokens); meta.json promises 200 (100 tokens)" in capsys.readouterr().err


def test_histogram() -> None:
    """Bars are as long as their numbers say, the longest 40; no document is invisible; columns align."""
    bins = ((0, 0, 1), (1, 1, 0), (2, 3, 1000), (4, 7, 500), (8, 15, 26), (16, 31, 25))
    lengths = LengthStatistics(documents=1552, minimum=0, median=3, mean=3, p99=9, maximum=31, histogram=bins)
    assert text_histogram(lengths) == [
        "    0      1  #",
        "    1      0",
        "  2-3  1,000  ########################################",
        "  4-7    500  ####################",
        " 8-15     26  ##",
        "16-31     25  #",
    ]


class TestPlot:
    """The lengths as a picture."""

    def test_png(self, clean: Path, tmp_path: Path) -> None:
        """--plot writes a PNG."""
        pytest.importorskip("matplotlib")
        assert main(["inspect", str(clean), "--plot", str(tmp_path / "lengths.png")]) == 0
        assert (tmp_path / "lengths.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"

    def test_no_place(self, clean: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A file that cannot be written is one sentence."""
        pytest.importorskip("matplotlib")
        assert main(["inspect", str(clean), "--plot", str(tmp_path / "no" / "lengths.png")]) == 1
        assert "lengths.png cannot be written: No such file or directory." in capsys.readouterr().err

    def test_not_installed(
        self, clean: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Without matplotlib the extra is named, before anything is read."""
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
        assert main(["inspect", str(clean), "--plot", "lengths.png"]) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err == "tdstream: error: --plot needs matplotlib: pip install 'tdstream[plot]'.\n"

    def test_no_documents(
        self,
        corpus: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """Where documents cannot be told apart there is nothing to draw."""
        (corpus / "meta.json").unlink()
        monkeypatch.setattr("tdstream.cli.inspect.figure_class", lambda: None)
        assert main(["inspect", str(corpus), "--dtype", "uint16", "--plot", "lengths.png"]) == 1
        assert "whose ends are unknown. Pass --eos." in capsys.readouterr().err


def test_what_is_kept(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans, also those of an earlier state of the corpus: so that somebody finds what fills a disk."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(["inspect", str(corpus), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kept"] == {}
    for seq_len in (8, 16):
        tdstream.build(corpus, seq_len=seq_len, cut="pack", batch_size=1)
    plans = sorted((corpus / ".tdstream").glob("pack-*[0-9a-f]"))
    sizes = {str(plan): sum(file.stat().st_size for file in plan.iterdir()) for plan in plans}
    assert len(sizes) == 2
    assert main(["inspect", str(corpus), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kept"] == sizes
    assert main(["inspect", str(corpus)]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("  kept "))
    assert f"{sum(sizes.values()):,} bytes derived from this corpus" in line
    assert str(corpus / ".tdstream") in line
