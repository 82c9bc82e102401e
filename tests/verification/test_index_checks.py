"""Every fault of an index of document ends is named, and what cannot be checked is said."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tdstream.cli.main import main
from tdstream.corpus.meta import CorpusMeta, read_meta
from tdstream.verification import index_checks
from tdstream.verification.verify import VerifyReport, verify_corpus
from tdstream.writing.writer import CorpusWriter

LENGTHS = [3, 1, 9, 4, 4, 2, 13, 1]  # 37 tokens, end-of-text tokens too: chunks of 10, 10, 10, 7
ENDS = [[3, 4], [3, 7], [1, 3], [6, 7]]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Write a corpus whose tokens are their places, and 0 at the end of each document."""
    ends = np.cumsum(LENGTHS)
    tokens = np.arange(1, 38)
    tokens[ends - 1] = 0
    index = {"version": 1, "suffix": ".ends", "dtype": "int64"}
    plan = CorpusMeta(
        dtype="uint16", chunks=(), eos_token_id=0, tokens_per_chunk=10, vocab_size=99, doc_index=index
    )
    with CorpusWriter(tmp_path / "corpus", plan) as writer:
        writer.append(tokens[:16], ends=ends[:3])
        writer.append(tokens[16:], ends=ends[3:] - 16)
        writer.finish(num_documents=8)
    return tmp_path / "corpus"


def write_ends(directory: Path, number: int, ends: list[int]) -> None:
    """Replace an index, and what meta.json says of it: as if it had been written so."""
    content = np.array(ends, "<i8").tobytes()
    (directory / f"chunk_{number:06d}.ends").write_bytes(content)
    meta = json.loads((directory / "meta.json").read_text())
    file = f"chunk_{number:06d}.bin"
    meta["doc_index_checksums"][file] = f"sha256:{hashlib.sha256(content).hexdigest()}"
    meta["chunk_documents"][file] = len(ends)
    meta["num_documents"] = sum(meta["chunk_documents"].values())
    (directory / "meta.json").write_text(json.dumps(meta))


def change_meta(directory: Path, **changes: Any) -> None:
    """Set keys of meta.json."""
    content = json.loads((directory / "meta.json").read_text())
    (directory / "meta.json").write_text(json.dumps({**content, **changes}))


def found(report: VerifyReport) -> list[tuple[str, str]]:
    """Return kind and file of each fault."""
    return [(fault.kind, fault.file) for fault in report.faults]


def test_clean(corpus: Path) -> None:
    """The index is what the lengths of the documents say, and has no fault."""
    stored = [np.fromfile(corpus / f"chunk_{number:06d}.ends", "<i8").tolist() for number in range(4)]
    assert stored == ENDS
    report = verify_corpus(corpus)
    assert report.ok
    assert "sizes of indices: 4 of 4 shards" in report.checked
    assert "indices of document ends: 4 of 4 shards" in report.checked


@pytest.mark.parametrize("piece_bytes", [4, 8, 1 << 20])
@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ([3, 8], "points at 1 tokens that are not end-of-text; the first is token 7 of chunk_000001.bin,"
         " whose id is 18."),
        ([1, 2, 3], "points at 2 tokens that are not end-of-text; the first is token 0 of "
         "chunk_000001.bin, whose id is 11."),
        ([7, 3], "is not an index of chunk_000001.bin: its entry 1 is 3, not above the one before, or "
         "beyond the shard's 10 tokens."),
        ([3, 3, 7], "is not an index of chunk_000001.bin: its entry 1 is 3, not above"),
        ([0, 3, 7], "is not an index of chunk_000001.bin: its entry 0 is 0, not above"),
        ([-4, 3, 7], "is not an index of chunk_000001.bin: its entry 0 is -4, not above"),
        ([3, 7, 11], "is not an index of chunk_000001.bin: its entry 2 is 11, not above"),
    ],
)  # fmt: skip
def test_wrong_ends(corpus: Path, ends: list[int], message: str, piece_bytes: int) -> None:
    """Ends that are not ascending, not in the chunk or not behind end-of-text are named with their place."""
    write_ends(corpus, 1, ends)
    report = verify_corpus(corpus, piece_bytes=piece_bytes)
    faults = [fault for fault in report.faults if fault.file == "chunk_000001.ends"]
    assert [fault.kind for fault in faults] == ["index"]
    assert faults[0].message.startswith(message)
    assert "indices of document ends: 3 of 4 shards" in report.checked


def test_order_across_pieces(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An end is compared with the one before it also where another piece of the index begins."""
    monkeypatch.setattr(index_checks, "_PIECE", 1)
    assert verify_corpus(corpus).ok
    write_ends(corpus, 1, [3, 3])
    assert found(verify_corpus(corpus)) == [("index", "chunk_000001.ends")]


def test_bit_flip(corpus: Path) -> None:
    """Other bytes than were written are one fault, whatever they mean."""
    path = corpus / "chunk_000003.ends"
    content = bytearray(path.read_bytes())
    content[9] ^= 1
    path.write_bytes(content)
    assert found(verify_corpus(corpus)) == [("checksum", path.name)]


@pytest.mark.parametrize("fast", [False, True])
def test_sizes(corpus: Path, fast: bool) -> None:
    """Indices that are missing, shorter, longer or of no chunk are named; --fast sees these, too."""
    (corpus / "chunk_000000.ends").unlink()
    (corpus / "chunk_000001.ends").write_bytes(b"\0" * 15)
    (corpus / "chunk_000002.ends").write_bytes(b"\0" * 24)
    (corpus / "chunk_000009.ends").write_bytes(b"")
    report = verify_corpus(corpus, fast=fast)
    assert found(report) == [
        ("missing", "chunk_000000.ends"),
        ("truncated", "chunk_000001.ends"),
        ("extended", "chunk_000002.ends"),
        ("stray", "chunk_000009.ends"),
    ]
    promise = "meta.json promises 16 (2 ends of documents)."
    assert report.faults[1].message == f"is truncated: it has 15 bytes (not a multiple of 8); {promise}"
    assert "sizes of indices: 1 of 4 shards" in report.checked
    assert main(["verify", str(corpus), "--fast"]) == 1


def test_counts(corpus: Path) -> None:
    """meta.json has to agree with itself about the numbers of documents."""
    change_meta(corpus, num_documents=9)
    message = "says 9 documents, but its chunk_documents add up to 8."
    assert message in [fault.message for fault in verify_corpus(corpus, fast=True).faults]
    change_meta(corpus, num_documents=8, chunk_documents={"chunk_000000.bin": 2, "chunk_000009.bin": 6})
    messages = [fault.message for fault in verify_corpus(corpus, fast=True).faults]
    assert messages == [
        "has a number of documents for chunk_000009.bin, which it does not list.",
        *(f"lacks the number of documents that end in chunk_{n:06d}.bin." for n in (1, 2, 3)),
    ]


def test_a_faulty_chunk(corpus: Path) -> None:
    """An index is not judged by a chunk that does not hold what it should."""
    path = corpus / "chunk_000001.bin"
    path.write_bytes(b"\1\0" * 10)
    report = verify_corpus(corpus)
    assert ("checksum", path.name) in found(report)
    assert "index of chunk_000001.bin: the shard itself has a fault" in report.unchecked
    assert not [fault for fault in report.faults if fault.file.endswith(".ends")]


@pytest.mark.parametrize(
    ("index", "why"), [({}, "there is none"), ({"version": 2}, "its version 2 is unknown")]
)
def test_none(corpus: Path, index: dict[str, Any], why: str) -> None:
    """Without an index, or with one of a newer version, that is said, and is no fault."""
    change_meta(corpus, doc_index=index)
    report = verify_corpus(corpus)
    assert report.ok
    assert f"index of document ends: {why}" in report.unchecked
    assert not any("indices" in text for text in report.checked)


def test_inspect_uses_it(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An end-of-text token inside a document is none of its ends; without the index it is taken for one."""
    path = corpus / "chunk_000001.bin"
    tokens = np.fromfile(path, "<u2")
    tokens[8] = 0  # inside the seventh document
    path.write_bytes(tokens.tobytes())
    main(["inspect", str(corpus), "--json", "--documents", "99"])
    shown = json.loads(capsys.readouterr().out)
    assert [document["tokens"] for document in shown["documents"]] == [n - 1 for n in LENGTHS]
    assert (shown["lengths"]["documents"], shown["doc_index"], shown["open_tokens"]) == (8, True, 0)

    change_meta(corpus, doc_index={})
    main(["inspect", str(corpus), "--json", "--documents", "99"])
    shown = json.loads(capsys.readouterr().out)
    assert (shown["lengths"]["documents"], shown["doc_index"]) == (9, False)
    assert not read_meta(corpus / "meta.json").doc_index
