"""Every fault of a corpus is named, each by itself, and what cannot be checked is said."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from helpers_text import EOS, corpus_bytes, numbers_tokenizer, train_tokenizer, write_jsonl
from tdstream.cli.main import main
from tdstream.core.errors import ConfigError, CorpusNotFoundError
from tdstream.corpus.meta import Shard, read_meta
from tdstream.corpus.shard_reader import TokenFiles
from tdstream.text.tokenizer import fingerprint
from tdstream.verification import contents
from tdstream.verification.verify import VerifyReport, verify_corpus

TEXTS = [f'{{"number": {number}}}' for number in range(20)] + ["json and more text, " * 25, "", "the last"]
CHUNK_TOKENS = 50
INDEX_KEYS = ("doc_index", "chunk_documents", "doc_index_checksums")
NEW_KEYS = (
    "format_version",
    "tokenizer_fingerprint",
    "vocab_size",
    "num_documents",
    "chunk_checksums",
    *INDEX_KEYS,
)


def prepare(place: Path, tokenizer: Path, texts: list[str], output: Path) -> Path:
    """Prepare a corpus with the command."""
    write_jsonl(place / "texts.jsonl", [{"text": text} for text in texts])
    flags = [
        "--tokenizer",
        str(tokenizer),
        "--dataset",
        str(place / "texts.jsonl"),
        "--output_path",
        str(output),
    ]
    assert main(["prepare", *flags, "--tokens_per_chunk", str(CHUNK_TOKENS)]) == 0
    return output


@pytest.fixture(scope="module")
def tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a byte-level BPE with 400 ids, "<|endoftext|>" being 0."""
    return train_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def tokenizer(tokenizer_dir: Path) -> Any:
    """Return that tokenizer."""
    return AutoTokenizer.from_pretrained(tokenizer_dir)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, tokenizer_dir: Path) -> Path:
    """Return a corpus of 23 documents, one of which lies in more than three chunks."""
    place = tmp_path_factory.mktemp("clean")
    return prepare(place, tokenizer_dir, TEXTS, place / "corpus")


@pytest.fixture
def corpus(tmp_path: Path, clean: Path) -> Path:
    """Return a copy of it that a test may damage."""
    return Path(shutil.copytree(clean, tmp_path / "corpus"))


@pytest.fixture
def verify(tokenizer: Any) -> Callable[..., VerifyReport]:
    """Return verify_corpus with the tokenizer that wrote the corpus."""

    def call(directory: Path, **options: Any) -> VerifyReport:
        known = {"tokenizer": tokenizer, "tokenizer_fingerprint": fingerprint(tokenizer)}
        return verify_corpus(directory, **{**known, **options})

    return call


def found(report: VerifyReport) -> list[tuple[str, str]]:
    """Return kind and file of each fault."""
    return [(fault.kind, fault.file) for fault in report.faults]


def chunk(number: int) -> str:
    """Return the name of a chunk."""
    return f"chunk_{number:06d}.bin"


def change_meta(directory: Path, **changes: Any) -> None:
    """Set keys of meta.json; None removes one."""
    path = directory / "meta.json"
    content = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def set_token(directory: Path, number: int, place: int, token: int) -> None:
    """Overwrite one token of a chunk, and its checksum in meta.json: as if it had been written so."""
    path = directory / chunk(number)
    tokens = np.fromfile(path, "<u2")
    tokens[place] = token
    path.write_bytes(tokens.tobytes())
    checksums = json.loads((directory / "meta.json").read_text())["chunk_checksums"]
    checksum = "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    change_meta(directory, chunk_checksums={**checksums, path.name: checksum})


def resize(path: Path, change: int) -> int:
    """Make a file longer or shorter by some bytes; return its size."""
    size = path.stat().st_size + change
    os.truncate(path, size)
    return size


def write_corpus(directory: Path, tokens: np.ndarray, *sizes: int) -> Path:
    """Write a corpus by hand, as the existing tool does, with id 0 as end-of-text."""
    directory.mkdir()
    chunks, borders = [], np.cumsum([0, *sizes])
    for number, size in enumerate(sizes):
        chunks.append({"file": chunk(number), "tokens": size})
        (directory / chunk(number)).write_bytes(tokens[borders[number] : borders[number + 1]].tobytes())
    meta = {"dtype": tokens.dtype.name, "chunks": chunks, "total_tokens": len(tokens), "eos_token_id": 0}
    (directory / "meta.json").write_text(json.dumps(meta))
    return directory


class TestClean:
    """A corpus without a fault."""

    def test_prepared(self, clean: Path, verify: Callable[..., VerifyReport]) -> None:
        """A prepared corpus has no fault, nothing is worth a note, and everything is checked."""
        report = verify(clean, samples=1000)

        tokens = np.frombuffer(corpus_bytes(clean), "<u2")
        chunks = -(-len(tokens) // CHUNK_TOKENS)
        assert (report.ok, report.faults, report.notes, report.unchecked) == (True, (), (), ())
        assert (report.chunks, report.tokens, report.eos_tokens) == (chunks, len(tokens), 23)
        assert report.checked == (
            f"sizes: {chunks} of {chunks} shards",
            f"sizes of indices: {chunks} of {chunks} shards",
            f"checksums: {chunks} of {chunks} shards",
            "all ids are below 400",
            "the corpus ends with an end-of-text token",
            "23 end-of-text tokens for 23 documents",
            f"indices of document ends: {chunks} of {chunks} shards",
            "the tokenizer is the one that wrote the corpus",
            "23 of 23 sample documents decode and encode to the same ids",
        )

    def test_fast(self, corpus: Path) -> None:
        """Fast means that no shard is opened: a flipped bit is not seen, and the report says why."""
        set_token(corpus, 0, 0, 65_535)
        report = verify_corpus(corpus, fast=True)
        assert (report.ok, report.fast, report.eos_tokens) == (True, True, None)
        assert report.unchecked == ("contents of the shards: only names and sizes were requested",)

    def test_own_end_of_text(
        self, tmp_path: Path, tokenizer_dir: Path, verify: Callable[..., VerifyReport]
    ) -> None:
        """More end-of-text tokens than documents are a note: a document may hold one itself."""
        made = prepare(tmp_path, tokenizer_dir, ["a", f"b{EOS}c{EOS}", "d"], tmp_path / "own")
        report = verify(made)
        assert report.ok
        assert report.eos_tokens == 5
        assert [note[:57] for note in report.notes] == [
            "Found 5 end-of-text tokens for 3 documents: unless a docu"
        ]

    @pytest.mark.parametrize("piece_bytes", [1, 8, 100, 104])
    def test_pieces(self, clean: Path, verify: Callable[..., VerifyReport], piece_bytes: int) -> None:
        """How much is read at once changes nothing."""
        assert verify(clean, piece_bytes=piece_bytes) == verify(clean)

    def test_progress(self, clean: Path) -> None:
        """The bytes that are told to have been read are those of all shards."""
        seen: list[int] = []
        verify_corpus(clean, piece_bytes=16, advance=seen.append)
        assert sum(seen) == len(corpus_bytes(clean))
        assert max(seen) == 16


class TestSizes:
    """Shards that are there in part, or not at all; --fast sees these, too."""

    @pytest.mark.parametrize("fast", [False, True])
    @pytest.mark.parametrize(
        ("change", "kind", "odd"),
        [(-2, "truncated", False), (-3, "truncated", True), (2, "extended", False), (1, "extended", True)],
    )
    def test_size(
        self, corpus: Path, verify: Callable[..., VerifyReport], change: int, kind: str, odd: bool, fast: bool
    ) -> None:
        """A shard that is shorter or longer is named, with both sizes."""
        size = resize(corpus / chunk(2), change)
        report = verify(corpus, fast=fast)
        assert found(report) == [(kind, chunk(2))]
        held = "not a multiple of 2" if odd else f"{size // 2} tokens"
        promise = "meta.json promises 100 (50 tokens)."
        assert report.faults[0].message == f"is {kind}: it has {size} bytes ({held}); {promise}"

    @pytest.mark.parametrize("number", [0, 3, -1])
    def test_missing(self, corpus: Path, verify: Callable[..., VerifyReport], number: int) -> None:
        """A shard that is not there is named; the documents beside the hole are not mixed up."""
        names = sorted(path.name for path in corpus.glob("*.bin"))
        tokens, hole = np.frombuffer(corpus_bytes(corpus), "<u2"), names.index(names[number])
        ends = np.flatnonzero(tokens == 0).tolist()
        # From the end of the one before to its own end, both included, a whole document is outside the hole.
        ranges = [range(max(before, 0), end + 1) for before, end in pairwise([-1, *ends])]
        whole = sum(all(place // CHUNK_TOKENS != hole for place in places) for places in ranges)
        (corpus / names[number]).unlink()

        report = verify(corpus, samples=1000)

        assert found(report) == [("missing", names[number])]
        same = f"{whole} of {whole} sample documents decode and encode to the same ids"
        assert 10 < whole < 23
        assert same in report.checked
        assert "number of end-of-text tokens: a damaged shard hides some" in report.unchecked

    def test_a_directory_is_no_shard(self, corpus: Path, verify: Callable[..., VerifyReport]) -> None:
        """Something else under a shard's name does not count."""
        (corpus / chunk(1)).unlink()
        (corpus / chunk(1)).mkdir()
        assert found(verify(corpus)) == [("missing", chunk(1))]

    def test_a_dangling_link_is_no_shard(self, corpus: Path, verify: Callable[..., VerifyReport]) -> None:
        """A link to a file that does not exist is a missing shard, and no error."""
        (corpus / chunk(1)).unlink()
        (corpus / chunk(1)).symlink_to(corpus / "elsewhere.bin")
        assert found(verify(corpus)) == [("missing", chunk(1))]

    def test_stray(self, corpus: Path, verify: Callable[..., VerifyReport]) -> None:
        """A .bin file that meta.json does not list is named; other files are nobody's business."""
        (corpus / "chunk_000099.bin").write_bytes(b"\1\0")
        (corpus / "README.md").write_text("mine")
        assert found(verify(corpus)) == [("stray", "chunk_000099.bin")]

    def test_unfinished(self, corpus: Path, verify: Callable[..., VerifyReport]) -> None:
        """A preparation that was left in the middle is named."""
        (corpus / ".preparing").mkdir()
        assert found(verify(corpus)) == []  # the rest of a finished move
        (corpus / ".preparing/journal.jsonl").touch()
        assert found(verify(corpus)) == [("unfinished", ".preparing")]
        (corpus / ".preparing" / "meta.json").write_text("{}")
        report = verify(corpus)
        assert found(report) == [("unfinished", ".preparing")]
        assert "complete" in report.faults[0].message

    def test_only_begun(self, tmp_path: Path) -> None:
        """A directory with nothing but an unfinished preparation is a faulty corpus."""
        (tmp_path / ".preparing").mkdir()
        assert found(verify_corpus(tmp_path)) == [("unfinished", ".preparing"), ("meta", "meta.json")]

    def test_nothing(self, tmp_path: Path) -> None:
        """Where nothing of a corpus lies there is nothing to verify."""
        with pytest.raises(CorpusNotFoundError, match=r"has no meta\.json and no \*\.bin file"):
            verify_corpus(tmp_path)
        with pytest.raises(CorpusNotFoundError, match="is not a directory"):
            verify_corpus(tmp_path / "nowhere")

    def test_unreadable(
        self, corpus: Path, verify: Callable[..., VerifyReport], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A shard that the disk does not give back is named, and the others are examined."""
        real = contents.byte_pieces

        def failing(path: Path, piece_bytes: int) -> Any:
            yield from real(path, piece_bytes)
            if path.name == chunk(1):
                raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(contents, "byte_pieces", failing)
        set_token(corpus, 3, 0, 400)
        report = verify(corpus)
        assert found(report) == [("unreadable", chunk(1)), ("id_range", chunk(3))]
        assert report.faults[0].message == "cannot be read: Input/output error."


class TestChecksums:
    """Shards of the right size with other bytes."""

    @pytest.mark.parametrize("piece_bytes", [4, 32, 1 << 20])
    @pytest.mark.parametrize("place", [0, 31, 32, 99])
    def test_bit_flip(
        self, corpus: Path, verify: Callable[..., VerifyReport], place: int, piece_bytes: int
    ) -> None:
        """One flipped bit anywhere is seen: first and last byte of the shard, and of a piece."""
        content = bytearray((corpus / chunk(1)).read_bytes())
        content[place] ^= 1 << 3
        (corpus / chunk(1)).write_bytes(content)
        report = verify(corpus, piece_bytes=piece_bytes, samples=0)
        assert ("checksum", chunk(1)) in found(report)
        assert {file for _, file in found(report)} <= {chunk(1), ""}

    def test_swapped(self, corpus: Path, verify: Callable[..., VerifyReport]) -> None:
        """Two shards with each other's content are one fault that names both."""
        exchange(corpus / chunk(1), corpus / chunk(3))
        report = verify(corpus)
        assert found(report) == [("swapped", chunk(1))]
        assert report.faults[0].message.startswith(
            "has the content of chunk_000003.bin, and chunk_000003.bin has"
        )

    def test_swapped_with_the_last(self, corpus: Path, verify: Callable[..., VerifyReport]) -> None:
        """Shards of different sizes, too: being exchanged explains their sizes. --fast sees the sizes."""
        last = max(path.name for path in corpus.glob("*.bin"))
        exchange(corpus / chunk(0), corpus / last)
        assert found(verify(corpus)) == [("swapped", chunk(0))]
        assert found(verify(corpus, fast=True)) == [("truncated", chunk(0)), ("extended", last)]

    @pytest.mark.parametrize("fast", [False, True])
    def test_listed_in_another_order(
        self, corpus: Path, verify: Callable[..., VerifyReport], fast: bool
    ) -> None:
        """Every shard is as it was written, but readers would find the documents in another order."""
        chunks = json.loads((corpus / "meta.json").read_text())["chunks"]
        change_meta(corpus, chunks=[chunks[1], chunks[0], *chunks[2:]])
        faults = [fault for fault in verify(corpus, fast=fast).faults if fault.kind == "order"]
        assert [(fault.file, fault.message.split(" in ")[0]) for fault in faults] == [
            (chunk(0), f"is listed after {chunk(1)}")
        ]

    def test_rotated(self, corpus: Path, verify: Callable[..., VerifyReport]) -> None:
        """Three shards that went round are three faults, each naming whose content it is."""
        exchange(corpus / chunk(1), corpus / chunk(2))
        exchange(corpus / chunk(2), corpus / chunk(3))
        faults = verify(corpus).faults
        assert [(fault.file, fault.message) for fault in faults] == [
            (chunk(1), f"holds the content of {chunk(2)} instead of its own."),
            (chunk(2), f"holds the content of {chunk(3)} instead of its own."),
            (chunk(3), f"holds the content of {chunk(1)} instead of its own."),
        ]

    def test_some_are_missing(self, corpus: Path, verify: Callable[..., VerifyReport]) -> None:
        """Shards without a checksum, or with one of an unknown kind, could not be checked."""
        checksums = json.loads((corpus / "meta.json").read_text())["chunk_checksums"]
        del checksums[chunk(0)]
        checksums[chunk(1)] = "crc32:00000000"
        change_meta(corpus, chunk_checksums=checksums)
        assert verify(corpus).unchecked == ("bytes of 2 shards: there is no checksum for them",)


def exchange(one: Path, other: Path) -> None:
    """Give two files each other's content."""
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


class TestIds:
    """Tokens that the vocabulary does not have."""

    @pytest.mark.parametrize("piece_bytes", [4, 12, 1 << 20])
    @pytest.mark.parametrize("place", [0, 1, 2, 49])
    def test_out_of_range(
        self, corpus: Path, verify: Callable[..., VerifyReport], place: int, piece_bytes: int
    ) -> None:
        """The first id outside the vocabulary is named with its place; 399 is inside, 400 is not."""
        set_token(corpus, 1, place, 399)
        assert "id_range" not in [kind for kind, _ in found(verify(corpus, samples=0))]
        set_token(corpus, 1, place, 400)
        report = verify(corpus, piece_bytes=piece_bytes, samples=0)
        assert ("id_range", chunk(1)) in found(report)
        message = next(fault.message for fault in report.faults if fault.kind == "id_range")
        assert message.startswith("has 1 ids outside the vocabulary of 400; ")
        assert message.endswith(f"the first is token {place} of the shard, the highest is 400.")

    def test_each_shard(self, corpus: Path, verify: Callable[..., VerifyReport]) -> None:
        """Shards are named one by one; several ids of one shard are counted."""
        for number, place, token in [(1, 3, 500), (1, 40, 65_535), (1, 7, 400), (2, 0, 1000)]:
            set_token(corpus, number, place, token)
        report = verify(corpus, piece_bytes=8, samples=0)
        assert [str(fault) for fault in report.faults if fault.kind == "id_range"] == [
            f"{chunk(1)}: has 3 ids outside the vocabulary of 400; the first is token 3 of the shard, "
            "the highest is 65,535.",
            f"{chunk(2)}: has 1 ids outside the vocabulary of 400; the first is token 0 of the shard, "
            "the highest is 1,000.",
        ]


class TestEndOfText:
    """Documents without an end."""

    @pytest.mark.parametrize("piece_bytes", [4, 20, 1 << 20])
    def test_missing(self, corpus: Path, verify: Callable[..., VerifyReport], piece_bytes: int) -> None:
        """One end-of-text token less than documents is a fault."""
        place = int(np.flatnonzero(np.fromfile(corpus / chunk(1), "<u2") == 0)[0])
        set_token(corpus, 1, place, 5)
        report = verify(corpus, piece_bytes=piece_bytes, samples=0)
        assert [str(fault) for fault in report.faults] == [
            "Found 22 end-of-text tokens for 23 documents: 1 missing.",
            "chunk_000001.ends: points at 1 tokens that are not end-of-text; the first is token "
            f"{place} of chunk_000001.bin, whose id is 5.",
        ]

    def test_last(self, corpus: Path, verify: Callable[..., VerifyReport]) -> None:
        """A corpus that does not end with one was cut off."""
        last = len(list(corpus.glob("*.bin"))) - 1
        set_token(corpus, last, -1, 7)
        report = verify(corpus, samples=0)
        assert found(report) == [("last_token", chunk(last)), ("eos_count", "")]
        assert report.faults[0].message == "ends with id 7, not with the end-of-text id 0."

    def test_uint32(self, tmp_path: Path) -> None:
        """Tokens of four bytes are read as such: 0x00010000 is not 0."""
        tokens = np.array([65_536, 7, 0, 65_537, 65_536], "<u4")
        made = write_corpus(tmp_path / "wide", tokens, 2, 3)
        report = verify_corpus(made)
        assert found(report) == [("last_token", chunk(1))]
        assert report.eos_tokens == 1


class TestMeta:
    """A meta.json that is damaged; what can be trusted is used all the same."""

    def test_missing(self, corpus: Path, verify: Callable[..., VerifyReport]) -> None:
        """Without it, and without the type of the tokens, nothing can be checked."""
        (corpus / "meta.json").unlink()
        report = verify(corpus)
        assert found(report) == [("meta", "meta.json")]
        assert report.unchecked == ("the shards: meta.json does not say what they should be",)

    @pytest.mark.parametrize("text", ["", '{"dtype": "uint16", "chu', "[]", "3", "\x00", '"meta"'])
    def test_broken(self, corpus: Path, verify: Callable[..., VerifyReport], text: str) -> None:
        """What is not a JSON object is one fault."""
        (corpus / "meta.json").write_text(text)
        assert found(verify(corpus)) == [("meta", "meta.json")]

    def test_not_utf8(self, corpus: Path, verify: Callable[..., VerifyReport]) -> None:
        """Nor is it a crash."""
        (corpus / "meta.json").write_bytes(b'{"dtype": "\xff"}')
        assert found(verify(corpus)) == [("meta", "meta.json")]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"total_tokens": 1}, "says total_tokens 1, but its shards add up to "),
            ({"total_tokens": "many"}, 'says total_tokens "many", but its shards add up to '),
            ({"vocab_size": 70_000}, "has dtype uint16 for a vocab_size of 70,000, whose ids need uint32."),
            ({"vocab_size": "400"}, 'has vocab_size "400"; expected a whole number.'),
            ({"vocab_size": -5}, "has vocab_size -5; expected a number of ids."),
            ({"num_documents": True}, "has num_documents true; expected a whole number."),
            ({"chunk_checksums": [1]}, "has chunk_checksums [1]; expected an object."),
            ({"chunk_checksums": {"x.bin": "sha256:0"}}, "has a checksum for x.bin, which it does not list."),
            ({"tokenizer_name_or_path": 1}, "has tokenizer_name_or_path 1; expected a text."),
            ({"is_fast": "yes", "format_version": 2}, "has format_version 2, this tdstream reads up to 1. "),
        ],
    )
    def test_contradiction(
        self, corpus: Path, verify: Callable[..., VerifyReport], changes: dict[str, Any], message: str
    ) -> None:
        """A value that cannot be is one fault, and does not hide others."""
        change_meta(corpus, **changes)
        (corpus / "more.bin").write_bytes(b"")
        report = verify(corpus, tokenizer=None)
        assert [fault.message.startswith(message) for fault in report.faults if fault.kind == "meta"] == [
            True
        ]
        newer = "format_version" in changes
        assert [kind for kind, _ in found(report) if kind != "meta"] == ([] if newer else ["stray"])

    def test_dtype(self, corpus: Path, verify: Callable[..., VerifyReport]) -> None:
        """Another type than the files have is one fault, an unknown one, too; what else can be is checked."""
        change_meta(corpus, dtype="uint32")
        report = verify(corpus)
        assert [str(fault) for fault in report.faults] == [
            "meta.json: says dtype uint32, but every shard has the size of its tokens as uint16."
        ]
        assert report.notes == ("A vocab_size of 400 would fit uint16; meta.json says uint32.",)
        assert "23 end-of-text tokens for 23 documents" in report.checked

        change_meta(corpus, dtype="int16")
        report = verify(corpus)
        assert [str(fault) for fault in report.faults] == [
            'meta.json: has dtype "int16"; expected "uint16" or "uint32".'
        ]
        assert "range of the ids: the type of the tokens is unknown" in report.unchecked

    def test_end_of_text_id(self, corpus: Path, verify: Callable[..., VerifyReport]) -> None:
        """It is an id of the vocabulary."""
        change_meta(corpus, eos_token_id=400)
        assert "has eos_token_id 400, which is no id of a vocabulary of 400." in [
            fault.message for fault in verify(corpus).faults
        ]

    def test_chunks(self, corpus: Path, verify: Callable[..., VerifyReport]) -> None:
        """Entries that are none are named one by one; the others are examined."""
        chunks = json.loads((corpus / "meta.json").read_text())["chunks"]
        bad = [{"file": "../x.bin", "tokens": 1}, {"file": chunk(0)}, {"file": "y.bin", "tokens": -1}, 7]
        change_meta(corpus, chunks=[*chunks, *bad, chunks[1]], total_tokens=None)
        resize(corpus / chunk(0), -2)
        report = verify(corpus, samples=0)
        messages = [fault.message for fault in report.faults if fault.kind == "meta"]
        numbers = range(len(chunks), len(chunks) + 4)
        assert [message.split(" as ")[0] for message in messages[:4]] == [f"lists shard {n}" for n in numbers]
        assert messages[4:] == [f"lists {chunk(1)} 2 times."]
        assert ("truncated", chunk(0)) in found(report)

    @pytest.mark.parametrize(("chunks", "kind"), [([], "empty"), ("none", "meta"), (None, "meta")])
    def test_no_chunks(
        self, corpus: Path, verify: Callable[..., VerifyReport], chunks: Any, kind: str
    ) -> None:
        """A corpus holds something."""
        change_meta(corpus, chunks=chunks, total_tokens=0, chunk_checksums={})
        assert (kind, "meta.json") in found(verify(corpus))


class TestOtherCorpora:
    """Corpora that say less about themselves."""

    @pytest.fixture
    def reference(self, corpus: Path) -> Path:
        """Return a corpus with the keys that the existing tool writes, and no others."""
        change_meta(corpus, **dict.fromkeys(NEW_KEYS))
        return corpus

    def test_reference(self, reference: Path) -> None:
        """It passes, and what it does not say could not be checked."""
        report = verify_corpus(reference)
        chunks = report.chunks
        assert report.ok
        assert report.unchecked == (
            "index of document ends: there is none",
            f"bytes of {chunks} shards: there is no checksum for them",
            "range of the ids: the size of the vocabulary is unknown",
            "number of end-of-text tokens: meta.json lacks the number of documents",
            "decoding of documents: no tokenizer was given",
        )

    def test_reference_with_tokenizer(self, reference: Path, verify: Callable[..., VerifyReport]) -> None:
        """The tokenizer says which ids there are; documents decode."""
        report = verify(reference, samples=5)
        assert report.ok
        assert "5 of 5 sample documents decode and encode to the same ids" in report.checked
        assert "whether this tokenizer wrote the corpus: its fingerprint is missing" in report.unchecked
        tokens = np.fromfile(reference / chunk(2), "<u2")
        tokens[4] = 400
        (reference / chunk(2)).write_bytes(tokens.tobytes())
        assert ("id_range", chunk(2)) in found(verify(reference))

    def test_bare(self, corpus: Path, verify: Callable[..., VerifyReport]) -> None:
        """Bare shards need their type; what can be seen of them is checked."""
        (corpus / "meta.json").unlink()
        report = verify_corpus(corpus, dtype="uint16")
        assert report.ok
        assert report.tokens == len(corpus_bytes(corpus)) // 2
        assert report.unchecked == (
            "names and sizes of all shards: there is no meta.json that lists them",
            "index of document ends: there is none",
            f"bytes of {report.chunks} shards: there is no checksum for them",
            "range of the ids: the size of the vocabulary is unknown",
            "document ends: the end-of-text id is unknown",
            "decoding of documents: no tokenizer was given",
        )
        assert verify_corpus(corpus, dtype="uint16", eos_token_id=0).eos_tokens == 23
        assert verify(corpus, dtype="uint16").eos_tokens == 23

    def test_bare_damage(self, corpus: Path) -> None:
        """Of bare shards, half tokens and gaps in the numbers are seen."""
        (corpus / "meta.json").unlink()
        (corpus / chunk(0)).unlink()
        (corpus / chunk(3)).unlink()
        resize(corpus / chunk(1), -1)
        assert found(verify_corpus(corpus, dtype="uint16")) == [
            ("odd_size", chunk(1)),
            ("missing", chunk(1)),
            ("missing", chunk(4)),
        ]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"dtype": "int8"}, 'dtype must be "uint16" or "uint32", got \'int8\''),
            ({"dtype": "uint32"}, "dtype 'uint32' was given, but meta.json says 'uint16'"),
            ({"eos_token_id": 1}, "eos 1 was given, but meta.json says 0"),
        ],
    )
    def test_contradiction(self, clean: Path, options: dict[str, Any], message: str) -> None:
        """What is asked for must not contradict what the corpus says."""
        with pytest.raises(ConfigError, match=message):
            verify_corpus(clean, **options)


class TestRoundTrip:
    """Documents, decoded and encoded."""

    def test_other_ids(self, tmp_path: Path, tokenizer: Any) -> None:
        """Ids that the tokenizer would not have chosen for their text are a fault."""
        whole = tokenizer("json", add_special_tokens=False)["input_ids"]
        letters = tokenizer.convert_tokens_to_ids(list("json"))
        assert len(whole) < 4
        made = write_corpus(tmp_path / "made", np.array([*whole, 0, *letters, 0], "<u2"), len(whole) + 6)
        report = verify_corpus(made, tokenizer=tokenizer)
        assert found(report) == [("round_trip", "")]
        place = f"(first: document 1, 4 tokens from {len(whole) + 1}; all: 1)"
        assert report.faults[0].message == (
            "1 of 2 sample documents decode to text that has other ids "
            f"{place}: damaged, or written by another tokenizer."
        )

    def test_lossy(self, tmp_path: Path) -> None:
        """Where the tokenizer itself loses something, no fault is claimed."""
        name = numbers_tokenizer(tmp_path / "words", {"<eos>": 0, "<unk>": 1, "x y": 2, "x": 3})
        made = write_corpus(tmp_path / "made", np.array([3, 0, 2, 0], "<u2"), 4)
        report = verify_corpus(made, tokenizer=AutoTokenizer.from_pretrained(name))
        assert report.ok
        assert len(report.notes) == 1
        assert "1 of 2 sample documents get other ids, which says nothing" in report.notes[0]

    def test_another_tokenizer(self, clean: Path, tmp_path: Path) -> None:
        """A tokenizer that cannot have written the corpus is a fault, whatever decodes."""
        name = numbers_tokenizer(tmp_path / "words", {"x": 0, "<unk>": 1, "<eos>": 2})
        other = AutoTokenizer.from_pretrained(name)
        report = verify_corpus(clean, tokenizer=other, tokenizer_fingerprint=fingerprint(other))
        assert found(report) == [("tokenizer", ""), ("tokenizer", "")]
        assert report.faults[0].message == "The tokenizer has 3 ids, the one that wrote the corpus had 400."
        assert report.faults[1].message == "The tokenizer's end-of-text id is 2, the corpus's is 0."

    def test_another_fingerprint(self, corpus: Path, verify: Callable[..., VerifyReport]) -> None:
        """A fingerprint that differs while the documents come back is a note."""
        change_meta(corpus, tokenizer_fingerprint="sha256:0")
        report = verify(corpus)
        assert report.ok
        assert [note[:62] for note in report.notes] == [
            "The tokenizer's fingerprint is not meta.json's: it is another "
        ]

    def test_a_tokenizer_that_fails(self, clean: Path, tokenizer: Any) -> None:
        """What it raises is a reason not to have checked, no traceback."""

        class Failing:
            eos_token_id = 0

            def __len__(self) -> int:
                return 400

            def get_vocab(self) -> dict[str, int]:
                return {"x": 399}

            def __call__(self, text: str, **_: Any) -> Any:
                raise RuntimeError("no")

        report = verify_corpus(clean, tokenizer=Failing())
        assert report.ok
        assert "decoding of documents: the tokenizer fails (RuntimeError: no)" in report.unchecked


def test_memory_is_bounded(tmp_path: Path) -> None:
    """A corpus of 32 MB with half a million documents takes what a few pieces of 64 KB take."""
    tokens = np.tile(np.array([*range(1, 32), 0], "<u2"), 1 << 19)
    made = write_corpus(tmp_path / "large", tokens, len(tokens))
    del tokens
    tracemalloc.start()
    report = verify_corpus(made, piece_bytes=1 << 16)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (report.ok, report.eos_tokens) == (True, 1 << 19)
    assert peak < 2 << 20


class TestTokenFiles:
    """Shards as one stream."""

    def test_read(self, make_corpus: Callable[..., Path]) -> None:
        """Any range can be read, over any number of borders; a token's value is its position."""
        chunks = [Shard(chunk(number), tokens) for number, tokens in enumerate((3, 4, 1, 5))]
        files = TokenFiles(make_corpus(3, 4, 1, 5), np.dtype("<u4"), chunks)
        for first in range(13):
            for count in range(14 - first):
                assert files.read(first, count).tolist() == list(range(first, first + count))
        assert files.find_files(3, 4) == [chunk(1)]
        assert files.find_files(2, 6) == [chunk(0), chunk(1), chunk(2)]
        assert files.find_files(8, 0) == []

    @pytest.mark.parametrize("piece_bytes", [1, 4, 7, 8, 100])
    def test_pieces(self, make_corpus: Callable[..., Path], piece_bytes: int) -> None:
        """Pieces are of whole tokens, no larger than asked for, and together all there is."""
        chunks = [Shard(chunk(number), tokens) for number, tokens in enumerate((3, 4, 1, 5))]
        pieces = list(TokenFiles(make_corpus(3, 4, 1, 5), np.dtype("<u4"), chunks).pieces(piece_bytes))
        assert np.concatenate(pieces).tolist() == list(range(13))
        assert max(piece.nbytes for piece in pieces) <= max(piece_bytes, 4)


def test_the_promise_is_what_readers_read(clean: Path, verify: Callable[..., VerifyReport]) -> None:
    """Chunks and tokens of the report are those that the reader of meta.json finds."""
    meta = read_meta(clean / "meta.json")
    report = verify(clean, fast=True)
    assert (report.chunks, report.tokens) == (len(meta.chunks), meta.total_tokens)
