"""A prepared corpus holds exactly the tokens that the rule says, whatever file the text came in."""

from __future__ import annotations

import csv
import gc
import gzip
import hashlib
import json
import logging
import random
import types
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from helpers_encoder import CharTokenizer
from transformers import AutoTokenizer

from helpers_text import EOS, corpus_bytes, expected_tokens, numbers_tokenizer, write_jsonl
from tdstream.core.errors import CorpusError, SourceError
from tdstream.preparation import engine
from tdstream.preparation.engine import prepare_corpus
from tdstream.preparation.options import PrepareOptions
from tdstream.preparation.result import Counts, Observer, PrepareResult
from tdstream.text import fields
from tdstream.text import open_datasets as source
from tdstream.text.encoders.encoder import Encoded, HfEncoder
from tdstream.writing.journal import Journal, JournalEntry

TEXTS = [
    "def load(fp):\n\treturn json.load(fp)",
    "",
    "NA",
    "007",
    "\0 nul, \ufeff mark, \u200d joiner",
    f"before{EOS}after",
    "\U0001f600 \u65e5\u672c\u8a9e",
    ' "quoted", with, commas\nand lines ',
    "2020-01-01",
    "null",
    "",
] + [" ".join(random.Random(number).choices(["self", "def", "json", "x", "="], k=50)) for number in range(40)]

Prepare = Callable[..., PrepareResult]


def chosen(kind: type[HfEncoder]) -> Any:
    """Return what stands in for the choice of an encoder."""
    return lambda tokenizer, _: nullcontext(lambda: kind(tokenizer))


def records_of(texts: list[str]) -> list[dict[str, Any]]:
    """Return records that hold some texts."""
    return [{"id": number, "text": text, "score": 0.5} for number, text in enumerate(texts)]


def parquet(path: Path) -> list[str]:
    """Write row groups of seven records."""
    pq.write_table(pa.Table.from_pylist(records_of(TEXTS)), path, row_group_size=7)
    return TEXTS


def dictionary_parquet(path: Path) -> list[str]:
    """Write texts as a dictionary and indices."""
    column = pa.array(TEXTS).dictionary_encode()
    pq.write_table(pa.table({"text": column, "id": range(len(TEXTS))}), path)
    return TEXTS


def jsonl(path: Path) -> list[str]:
    """Write one record per line."""
    write_jsonl(path, records_of(TEXTS))
    return TEXTS


def json_array(path: Path) -> list[str]:
    """Write one array of records."""
    path.write_text(json.dumps(records_of(TEXTS)))
    return TEXTS


def jsonl_gz(path: Path) -> list[str]:
    """Write two members, as a parallel gzip does."""
    half = len(TEXTS) // 2
    members = (TEXTS[:half], TEXTS[half:])
    path.write_bytes(
        b"".join(
            gzip.compress("".join(json.dumps({"text": t}) + "\n" for t in part).encode()) for part in members
        )
    )
    return TEXTS


def jsonl_zst(path: Path) -> list[str]:
    """Write two frames, as a parallel zstd does."""
    half = len(TEXTS) // 2
    members = (TEXTS[:half], TEXTS[half:])
    pack = zstandard.ZstdCompressor().compress
    path.write_bytes(
        b"".join(pack("".join(json.dumps({"text": t}) + "\n" for t in part).encode()) for part in members)
    )
    return TEXTS


def comma_separated(path: Path) -> list[str]:
    """Write a CSV file; the format has no NUL."""
    texts = [text for text in TEXTS if "\0" not in text]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["id", "text", "score"])
        writer.writeheader()
        writer.writerows(records_of(texts))
    return texts


def tab_separated(path: Path) -> list[str]:
    """Write tabs, and texts that look like numbers or like nothing."""
    path.write_text("text\tid\n007\t1\n\t2\n1e5\t3\n")
    return ["007", "", "1e5"]


def csv_of_numbers(path: Path) -> list[str]:
    """Write only texts that look like numbers."""
    path.write_text("id,text\n1,007\n2,1.50\n")
    return ["007", "1.50"]


def text(path: Path) -> list[str]:
    """Write several lines with all kinds of ends behind a byte order mark, which is no part of the text."""
    path.write_bytes(b"\xef\xbb\xbffirst line\r\nsecond line\n\rlast\n")
    return ["first line\r\nsecond line\n\rlast\n"]


def text_gz(path: Path) -> list[str]:
    """Write a compressed text file."""
    path.write_bytes(gzip.compress(b"first line\nsecond line\n"))
    return ["first line\nsecond line\n"]


SOURCES: dict[str, Callable[[Path], list[str]]] = {
    "a.parquet": parquet,
    "dictionary.parquet": dictionary_parquet,
    "a.jsonl": jsonl,
    "a.ndjson": jsonl,
    "a.json": json_array,
    "A.JSONL.gz": jsonl_gz,
    "a.jsonl.zst": jsonl_zst,
    "a.csv": comma_separated,
    "a.tsv": tab_separated,
    "numbers.csv": csv_of_numbers,
    "a.txt": text,
    "a.txt.gz": text_gz,
    "odd [1] name*.jsonl": jsonl,
}


@pytest.fixture
def prepare(tokenizer_dir: Path, tmp_path: Path) -> Prepare:
    """Return a function that prepares a dataset with the tokenizer of this folder into tmp_path/out."""

    def run(dataset: Path | str, observer: Any = None, **named: Any) -> PrepareResult:
        given = {"tokenizer": str(tokenizer_dir), "output_path": tmp_path / "out", **named}
        return prepare_corpus(PrepareOptions.of(dataset=str(dataset), **given), observer)

    return run


class TestBytes:
    """What stands in the shards."""

    @pytest.mark.parametrize("name", SOURCES)
    def test_every_format(self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare, name: str) -> None:
        """The shards joined are every text's tokens, each followed by end-of-text, cut at 100 tokens."""
        texts = SOURCES[name](tmp_path / name)

        result = prepare(tmp_path / name, tokens_per_chunk=100, batch_size=4)

        expected = expected_tokens(tokenizer_dir, texts, "<u2")
        assert corpus_bytes(tmp_path / "out") == expected.tobytes()
        sizes = [chunk.tokens for chunk in result.meta.chunks]
        full, rest = divmod(len(expected), 100)
        assert sizes == [100] * full + [rest] * (rest > 0)
        assert result.counts.documents == result.meta.num_documents == len(texts)

    @pytest.mark.parametrize("batch_size", [1, 3, 1000])
    def test_batch_size_does_not_matter(
        self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare, batch_size: int
    ) -> None:
        """However many documents are tokenized together, the bytes are the same."""
        prepare(write_jsonl(tmp_path / "a.jsonl", records_of(TEXTS)), batch_size=batch_size)
        assert corpus_bytes(tmp_path / "out") == expected_tokens(tokenizer_dir, TEXTS, "<u2").tobytes()

    @pytest.mark.parametrize("extra", [-1, 0, 1])
    def test_ends_of_shards(self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare, extra: int) -> None:
        """A corpus that ends before, at, or behind a shard's border by one token has no empty shard."""
        expected = expected_tokens(tokenizer_dir, TEXTS, "<u2")
        result = prepare(
            write_jsonl(tmp_path / "a.jsonl", records_of(TEXTS)), tokens_per_chunk=len(expected) - extra
        )
        assert [chunk.tokens for chunk in result.meta.chunks] == [len(expected) - extra] * (extra >= 0) + (
            [1] if extra == 1 else [] if extra == 0 else [len(expected)]
        )
        assert corpus_bytes(tmp_path / "out") == expected.tobytes()

    def test_wide_ids(self, tmp_path: Path, prepare: Prepare) -> None:
        """A vocabulary of 65,537 is stored in 32 bits, so that its last id survives."""
        ids = {"<unk>": 0, "<eos>": 1, **{f"w{number}": number for number in range(2, 65_537)}}
        prepare(
            write_jsonl(tmp_path / "a.jsonl", [{"text": "w65536 w2"}]),
            tokenizer=str(numbers_tokenizer(tmp_path / "wide", ids)),
        )
        assert np.fromfile(tmp_path / "out" / "chunk_000000.bin", "<u4").tolist() == [65_536, 2, 1]

    def test_an_id_that_does_not_fit(self, tmp_path: Path, prepare: Prepare) -> None:
        """An id beyond the tokenizer's vocabulary is refused instead of being stored modulo 65,536."""
        tokenizer = CharTokenizer()
        tokenizer._convert_token_to_id = lambda token: 65_536  # type: ignore[method-assign]
        data = write_jsonl(tmp_path / "a.jsonl", [{"text": "far"}])
        with pytest.raises(CorpusError, match=r"Token id 65,536 does not fit uint16 .*vocabulary of 301"):
            prepare(data, given_tokenizer=tokenizer)
        assert not (tmp_path / "out").exists()

    def test_lines_of_text(self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare) -> None:
        """With lines, a text file's every line is a document, empty ones too."""
        (tmp_path / "a.txt").write_text("one\n\nthree\n")
        prepare(tmp_path / "a.txt", lines=True)
        expected = expected_tokens(tokenizer_dir, ["one", "", "three"], "<u2")
        assert corpus_bytes(tmp_path / "out") == expected.tobytes()

    def test_another_field(self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare) -> None:
        """text_field chooses which field of a record is its text."""
        prepare(write_jsonl(tmp_path / "a.jsonl", [{"text": "no", "body": "yes"}]), text_field="body")
        assert corpus_bytes(tmp_path / "out") == expected_tokens(tokenizer_dir, ["yes"], "<u2").tobytes()

    def test_overwrite(self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare) -> None:
        """With overwrite the new corpus takes the place of the old one."""
        prepare(write_jsonl(tmp_path / "a.jsonl", records_of(TEXTS)), tokens_per_chunk=400)
        prepare(write_jsonl(tmp_path / "b.jsonl", [{"text": "new"}]), overwrite=True)
        assert corpus_bytes(tmp_path / "out") == expected_tokens(tokenizer_dir, ["new"], "<u2").tobytes()


class TestSelection:
    """Which records are read."""

    @pytest.mark.parametrize("max_samples", [1, 4, 5, 1000])
    def test_max_samples(
        self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare, max_samples: int
    ) -> None:
        """No more than max_samples records are read, in the middle of a batch or not."""
        parquet(tmp_path / "a.parquet")
        result = prepare(tmp_path / "a.parquet", max_samples=max_samples, batch_size=4)
        expected = expected_tokens(tokenizer_dir, TEXTS[:max_samples], "<u2")
        assert corpus_bytes(tmp_path / "out") == expected.tobytes()
        assert result.counts.documents == min(max_samples, len(TEXTS))

    def test_nothing_of_a_stream_that_was_left_early_remains(self, tmp_path: Path, prepare: Prepare) -> None:
        """No reader lives on: one that does when the interpreter ends can abort it."""
        pq.write_table(pa.table({"text": ["a"] * 5000}), tmp_path / "a.parquet", row_group_size=100)
        gc.disable()  # What goes now goes because the source is closed, not by chance.
        try:
            prepare(tmp_path / "a.parquet", max_samples=5)
        finally:
            gc.enable()
        # By type first: asking any object for an attribute makes torch's lazy modules import theirs.
        generators = [item for item in gc.get_objects() if type(item) is types.GeneratorType]
        assert [reader for reader in generators if reader.__name__ == "_generate_tables"] == []

    def test_directory(self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare) -> None:
        """A directory is read file by file in the order of the names; text files are one document each."""
        data = tmp_path / "data"
        data.mkdir()
        for name in ("b", "a", "c"):
            (data / f"{name}.txt").write_text(f"file\n{name}\n")
        prepare(data)
        expected = expected_tokens(tokenizer_dir, ["file\na\n", "file\nb\n", "file\nc\n"], "<u2")
        assert corpus_bytes(tmp_path / "out") == expected.tobytes()

    def test_split(self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare) -> None:
        """The split chooses among the splits that a directory's file names tell."""
        data = tmp_path / "data"
        data.mkdir()
        write_jsonl(data / "train.jsonl", [{"text": "train"}])
        write_jsonl(data / "test.jsonl", [{"text": "test"}])
        prepare(data, split="test")
        assert corpus_bytes(tmp_path / "out") == expected_tokens(tokenizer_dir, ["test"], "<u2").tobytes()

    @pytest.mark.parametrize("by_format", [False, True])
    def test_data_files(self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare, by_format: bool) -> None:
        """data_files chooses files of a directory, or stands beside the name of a format."""
        data = tmp_path / "data"
        data.mkdir()
        for name in ("a", "b", "c"):
            write_jsonl(data / f"{name}.jsonl", [{"text": name}])
        prefix = f"{data}/" if by_format else ""
        prepare("json" if by_format else data, data_files=(f"{prefix}c.jsonl", f"{prefix}a.jsonl"))
        assert corpus_bytes(tmp_path / "out") == expected_tokens(tokenizer_dir, ["c", "a"], "<u2").tobytes()


class TestMeta:
    """What meta.json says beside the shards."""

    def test_every_key(self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare) -> None:
        """Each key has the value that the tokenizer and the input give it."""
        prepare(write_jsonl(tmp_path / "a.jsonl", records_of(TEXTS)), tokens_per_chunk=500, encoder="hf")

        meta = json.loads((tmp_path / "out" / "meta.json").read_text())
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
        backend = hashlib.sha256(tokenizer._tokenizer.to_str().encode()).hexdigest()
        assert meta.pop("created_at_unix") > 1_700_000_000
        checksums = meta.pop("chunk_checksums")
        ends, documents = meta.pop("doc_index_checksums"), meta.pop("chunk_documents")
        assert sum(documents.values()) == len(TEXTS)
        files = {chunk["file"] for chunk in meta.pop("chunks")}
        assert meta.pop("made_from").keys() == {"dataset", "split", "text_field", "files"}
        (record,) = meta.pop("input_files")
        size, mtime_ns, *hashes = record.split(":")
        stat = (tmp_path / "a.jsonl").stat()
        assert (int(size), int(mtime_ns)) == (stat.st_size, stat.st_mtime_ns)
        content = (tmp_path / "a.jsonl").read_bytes()
        assert stat.st_size < 1 << 16
        assert hashes[0] == hashlib.sha256(content[:256]).hexdigest()[:8]
        assert hashes[1] == hashlib.sha256(content).hexdigest()[:16]
        assert checksums.keys() == ends.keys() == documents.keys() == files
        assert meta == {
            "tokenizer_name_or_path": str(tokenizer_dir),
            "is_fast": True,
            "dtype": "uint16",
            "eos_token_id": 0,
            "tokens_per_chunk": 500,
            "total_tokens": len(expected_tokens(tokenizer_dir, TEXTS, "<u2")),
            "format_version": 1,
            "tokenizer_fingerprint": f"sha256:{backend}",
            "vocab_size": 400,
            "encoder": "hf",
            "num_documents": len(TEXTS),
            "doc_index": {"version": 1, "suffix": ".ends", "dtype": "int64"},
        }

    def test_another_encoder_had_to_go_on(
        self, tmp_path: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where the tokenizer itself took over, meta.json says so, whichever run it was."""

        class Failing(HfEncoder):
            name = "fake"

            def encode(self, texts: list[str]) -> Encoded:
                self.name = "fake+hf" if any("007" in text for text in texts) else self.name
                return super().encode(texts)

        monkeypatch.setattr(engine, "choose_in_background", chosen(Failing))
        path = write_jsonl(tmp_path / "a.jsonl", records_of(TEXTS))
        result = prepare(path, batch_size=2, tokens_per_chunk=50, val_fraction=0.3)
        assert result.meta is not None
        assert result.meta.encoder == "fake+hf"
        assert json.loads((tmp_path / "out/val/meta.json").read_text())["encoder"] == "fake+hf"
        assert prepare(path, overwrite=True, batch_size=2, max_samples=2).meta.encoder == "fake"

        real = Journal.add

        def stopping(self: Journal, entry: JournalEntry) -> None:
            real(self, entry)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:  # One block, and a shard that ends inside it.
            patch.setattr(Journal, "add", stopping)
            with pytest.raises(KeyboardInterrupt):
                prepare(path, tokens_per_chunk=9, max_samples=3, output_path=tmp_path / "other")
        monkeypatch.setattr(engine, "choose_in_background", chosen(HfEncoder))
        stopped = prepare(
            path, tokens_per_chunk=9, max_samples=3, output_path=tmp_path / "other", resume=True
        )
        assert stopped.meta.encoder == "fake+hf"
        monkeypatch.setattr(engine, "choose_in_background", chosen(Failing))

        write_jsonl(tmp_path / "b.jsonl", records_of(["007"]))
        prepare(tmp_path / "b.jsonl", append=True)
        assert json.loads((tmp_path / "out/meta.json").read_text())["encoder"] == "fake+hf"

    def test_counts(self, tmp_path: Path, prepare: Prepare, caplog: pytest.LogCaptureFixture) -> None:
        """Empty documents and documents that hold the end-of-text token are counted, the latter said once."""
        with caplog.at_level(logging.WARNING, logger="tdstream"):
            result = prepare(write_jsonl(tmp_path / "a.jsonl", records_of(TEXTS)), batch_size=2)
        assert (result.counts.empty, result.counts.with_eos, result.counts.skipped) == (2, 1, 0)
        assert [message[:40] for message in caplog.messages] == ["1 of 51 documents hold the end-of-text t"]


class Watcher(Observer):
    """An observer that remembers what it was told."""

    def __init__(self) -> None:
        self.total: int | None = -1
        self.num_records = 0
        self.counts = Counts()
        self.ended = False

    def begin(self, total: int | None, done: Counts, total_bytes: int | None = None) -> None:
        self.total = total

    def advance(self, num_records: int, counts: Counts, bytes_read: int | None = None) -> None:
        self.num_records += num_records
        self.counts = counts

    def end(self) -> None:
        self.ended = True


class TestObserver:
    """What a progress bar is told."""

    @pytest.mark.parametrize(
        ("name", "max_samples", "total"),
        [
            ("a.parquet", None, 51),
            ("a.parquet", 20, 20),
            ("a.parquet", 90, 51),
            ("a.jsonl", None, None),
            ("a.jsonl", 9, 9),
        ],
    )
    def test_total(
        self, tmp_path: Path, prepare: Prepare, name: str, max_samples: int | None, total: int | None
    ) -> None:
        """The total is known from max_samples or from parquet's own count, and all records are told."""
        SOURCES[name](tmp_path / name)
        watcher = Watcher()
        result = prepare(tmp_path / name, watcher, max_samples=max_samples, batch_size=7)
        assert watcher.total == total
        assert watcher.num_records == min(51, max_samples or 51)
        assert watcher.counts == result.counts
        assert watcher.ended

    def test_total_of_the_dataset_card(self, tmp_path: Path, prepare: Prepare) -> None:
        """The number of examples that a dataset states is the total."""
        (tmp_path / "data").mkdir()
        write_jsonl(tmp_path / "data" / "a.jsonl", [{"text": "a"}, {"text": "b"}])
        (tmp_path / "data" / "README.md").write_text(
            "---\ndataset_info:\n  features:\n  - name: text\n    dtype: string\n"
            "  splits:\n  - name: train\n    num_examples: 2\n---\n"
        )
        watcher = Watcher()
        prepare(tmp_path / "data", watcher)
        assert watcher.total == 2


class TestRefusals:
    """Input that cannot be prepared."""

    @pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.json", "a.csv"])
    def test_missing_field(self, tmp_path: Path, prepare: Prepare, name: str) -> None:
        """A dataset without the text field is refused, naming its fields, before anything is written."""
        SOURCES[name](tmp_path / name)
        with pytest.raises(
            SourceError, match=r"no field 'body'; their fields are: id, text, score. Name one with"
        ):
            prepare(tmp_path / name, text_field="body")
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(
        ("value", "fault"),
        [
            (None, "it is None or absent"),
            (5, "it holds int"),
            (["x"], "it holds list"),
            (True, "it holds bool"),
        ],
    )
    @pytest.mark.parametrize("text_type", ["jsonl", "json"])
    def test_bad_record(
        self, tmp_path: Path, prepare: Prepare, value: Any, fault: str, text_type: str
    ) -> None:
        """A record whose text is none is refused by its number, and skip_bad counts it and goes on."""
        rows = [
            {"id": 0, "text": "a"},
            {"id": 1, "text": "b"},
            {"id": 2, "text": value},
            {"id": 3, "text": "c"},
        ]
        path = tmp_path / f"a.{text_type}"
        path.write_text("\n".join(map(json.dumps, rows)) if text_type == "jsonl" else json.dumps(rows))
        with pytest.raises(
            SourceError,
            match=rf"^Record 2 .*has no text in 'text': {fault}. Its other fields: id\. .*skip_bad=True",
        ):
            prepare(path, batch_size=2)
        assert not (tmp_path / "out").exists()

        result = prepare(path, batch_size=2, skip_bad=True)

        assert (result.counts.documents, result.counts.skipped, result.meta.num_documents) == (3, 1, 3)

    def test_skipping_keeps_the_others_as_they_are(
        self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare
    ) -> None:
        """A number among texts leaves the texts around it without the quotes of their encoding."""
        path = write_jsonl(tmp_path / "a.jsonl", [{"text": 'say "hi"'}, {"text": 5}, {"text": "c"}])
        prepare(path, skip_bad=True)
        assert (
            corpus_bytes(tmp_path / "out")
            == expected_tokens(tokenizer_dir, ['say "hi"', "c"], "<u2").tobytes()
        )

    def test_bad_record_in_parquet(self, tmp_path: Path, prepare: Prepare) -> None:
        """Its other fields are named although only the text is read."""
        pq.write_table(
            pa.table({"id": [1, 2], "text": ["a", None], "url": ["u", "v"]}), tmp_path / "a.parquet"
        )
        with pytest.raises(SourceError, match=r"Record 1 .*None or absent. Its other fields: id, url\."):
            prepare(tmp_path / "a.parquet")

    def test_a_column_of_numbers(self, tmp_path: Path, prepare: Prepare) -> None:
        """A column that holds no text at all is refused at its first record."""
        pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "a.parquet")
        with pytest.raises(SourceError, match=r"Record 0 .*it holds int. Its other fields: none"):
            prepare(tmp_path / "a.parquet")

    def test_nothing_left(self, tmp_path: Path, prepare: Prepare) -> None:
        """If every record is bad there is no corpus, and the sentence says why."""
        path = write_jsonl(tmp_path / "a.jsonl", [{"text": None, "id": 1}, {"text": None, "id": 2}])
        with pytest.raises(SourceError, match=r"has no documents: all of its 2 records were skipped"):
            prepare(path, skip_bad=True)
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
    def test_no_record(self, tmp_path: Path, prepare: Prepare, name: str) -> None:
        """A dataset without records is refused."""
        if name == "a.parquet":
            pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / name)
        else:
            (tmp_path / name).touch()
        with pytest.raises(
            SourceError, match=r"has no documents: it(s first file is empty| holds no record)"
        ):
            prepare(tmp_path / name)
        assert not (tmp_path / "out").exists()

    def test_an_empty_file_among_others(self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare) -> None:
        """A file without records is passed over."""
        (tmp_path / "data").mkdir()
        for name, texts in {"a": [], "b": ["b"], "c": []}.items():
            pq.write_table(
                pa.table({"text": pa.array(texts, pa.string())}), tmp_path / "data" / f"{name}.parquet"
            )
        prepare(tmp_path / "data")
        assert corpus_bytes(tmp_path / "out") == expected_tokens(tokenizer_dir, ["b"], "<u2").tobytes()

    def test_broken_json(self, tmp_path: Path, prepare: Prepare) -> None:
        """A line that is no JSON is one bad record, with its number and place, and the others are read."""
        tokenizer = numbers_tokenizer(tmp_path / "words", {"<unk>": 0, "<eos>": 1})
        good = json.dumps({"text": "x" * 1000})
        lines = [good] * 12_000 + ['{"text": "cut'] + [good] * 5
        (tmp_path / "a.jsonl").write_text("\n".join(lines))
        with pytest.raises(
            SourceError,
            match=r"^Record 12,000 .*, line 12,001 of .*a\.jsonl, has no text in 'text': it is not JSON: "
            r"Unterminated string starting, in column 10\. .*skip_bad=True",
        ):
            prepare(tmp_path / "a.jsonl", tokenizer=str(tokenizer))
        assert not (tmp_path / "out").exists()
        counts = prepare(tmp_path / "a.jsonl", skip_bad=True, tokenizer=str(tokenizer)).counts
        assert (counts.documents, counts.skipped) == (12_005, 1)

    @pytest.mark.parametrize(
        ("content", "fault"),
        [
            (b'{"text": "a"}\n{"text": \n', "Record 1 .*it is not JSON"),
            (b'{"text": "a"}\n{"text": "\\ud800"}\n', "Record 1 .*half of a surrogate pair"),
            (b"\x00\x01", "Record 0 .*it is not JSON"),
            (b"\xff\xfe{\x00}\x00", "is in UTF-16"),
        ],
    )
    def test_broken_from_the_start(
        self, tmp_path: Path, prepare: Prepare, content: bytes, fault: str
    ) -> None:
        """A file that cannot be read at all is refused in one sentence."""
        (tmp_path / "a.jsonl").write_bytes(content)
        with pytest.raises(SourceError, match=fault) as caught:
            prepare(tmp_path / "a.jsonl")
        assert "\n" not in str(caught.value)

    def test_half_a_surrogate_pair(self, tmp_path: Path, prepare: Prepare) -> None:
        """Half of a surrogate pair, which no tokenizer takes, is a bad record."""
        (tmp_path / "a.json").write_text('[{"text": 5}, {"text": "ok \\ud83d\\ude00"}, {"text": "x\\ud800"}]')
        with pytest.raises(SourceError, match=r"Record 0 .*it holds int"):
            prepare(tmp_path / "a.json")
        assert (
            fields.find_fault("x\ud800") == "it holds half of a surrogate pair, which stands for no character"
        )
        assert fields.measure_texts(["a", "x\udc00"]) is None

    def test_bytes_that_are_no_utf8(self, tmp_path: Path, prepare: Prepare) -> None:
        """A text column with other bytes than UTF-8 is refused by the record, and can be skipped."""
        column = pa.Array.from_buffers(
            pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 2], "<i4")), pa.py_buffer(b"a\xff")]
        )
        pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
        with pytest.raises(SourceError, match=r"Record 1 .*it holds bytes"):
            prepare(tmp_path / "a.parquet")
        assert prepare(tmp_path / "a.parquet", skip_bad=True).counts.skipped == 1

    @pytest.mark.parametrize("name", ["./nowhere", "/no/where.parquet", "a/b/c"])
    def test_no_such_file(self, prepare: Prepare, name: str) -> None:
        """A path that does not exist is not looked for on the hub."""
        with pytest.raises(
            SourceError, match=rf"^Dataset '{name}' not found: there is no such file or directory"
        ):
            prepare(name)

    def test_unreachable_hub(self, prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
        """A dataset on a hub that does not answer is refused at once."""
        monkeypatch.setattr(source, "hub_is_unreachable", lambda: True)
        with pytest.raises(
            SourceError, match=r"'some/data' is no local file or directory, and the hub cannot be reached"
        ):
            prepare("some/data")

    def test_unknown_kind(self, tmp_path: Path, prepare: Prepare) -> None:
        """A file of no known kind is refused, naming those that are known."""
        (tmp_path / "a.docx").write_text("x")
        with pytest.raises(
            SourceError, match=r"is of no known kind; expected one of .parquet, .json, .jsonl"
        ):
            prepare(tmp_path / "a.docx")

    def test_empty_directory(self, tmp_path: Path, prepare: Prepare) -> None:
        """A directory without data is refused."""
        (tmp_path / "data").mkdir()
        with pytest.raises(SourceError, match=r"data doesn't contain any data files: it holds no file"):
            prepare(tmp_path / "data")

    def test_unknown_split(self, tmp_path: Path, prepare: Prepare) -> None:
        """A split that does not exist is refused, naming those that do."""
        path = write_jsonl(tmp_path / "a.jsonl", [{"text": "a"}])
        with pytest.raises(SourceError, match=r"split='nope' .* they are the split train\. Leave it out"):
            prepare(path, split="nope")

    def test_unknown_data_name(self, tmp_path: Path, prepare: Prepare) -> None:
        """A configuration that a local dataset does not have is refused when it was asked for."""
        (tmp_path / "data").mkdir()
        write_jsonl(tmp_path / "data" / "a.jsonl", [{"text": "a"}])
        with pytest.raises(SourceError, match=r"no configuration 'sample-10BT'; it has no card"):
            prepare(tmp_path / "data", data_name="sample-10BT")
        prepare(tmp_path / "data")

    def test_flags_that_do_not_go_together(self, tmp_path: Path, prepare: Prepare) -> None:
        """Lines need text files, data_files need several files, and a format needs data_files."""
        path = write_jsonl(tmp_path / "a.jsonl", [{"text": "a"}])
        with pytest.raises(ValueError, match=r"lines is for text files, but dataset .* is json"):
            prepare(path, lines=True)
        with pytest.raises(ValueError, match=r"data_files chooses among the files of a dataset"):
            prepare(path, data_files=("b.jsonl",))
        with pytest.raises(
            ValueError, match=r"'json' is a format, and there is no such directory. Name its data_files"
        ):
            prepare("json")

    def test_zstd_is_an_extra(
        self, tmp_path: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without zstandard, a .zst file is refused with what to install."""
        jsonl_zst(tmp_path / "a.jsonl.zst")
        monkeypatch.setattr(source.importlib.util, "find_spec", lambda _: None)
        with pytest.raises(SourceError, match=r"is compressed with zstd: pip install 'tdstream\[zstd\]'"):
            prepare(tmp_path / "a.jsonl.zst")

    def test_an_error_in_the_middle(self, tmp_path: Path, prepare: Prepare) -> None:
        """A bad record behind good batches is refused by its number; what is safe remains."""
        rows: list[dict[str, Any]] = [{"text": "fine"}] * 50 + [{"text": None}]
        path = write_jsonl(tmp_path / "a.jsonl", rows)
        with pytest.raises(SourceError, match=r"Record 50 .* to leave such records out\.$"):
            prepare(path, batch_size=8)
        assert not (tmp_path / "out").exists()
        with pytest.raises(
            SourceError, match=r"Record 50 .* 48 documents, [\d,]+ tokens are safe: start again"
        ):
            prepare(path, batch_size=8, tokens_per_chunk=1)
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [".preparing"]
