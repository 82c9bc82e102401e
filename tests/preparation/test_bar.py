"""The bar of a preparation and of a count: how far it is, whatever is read."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import tdstream
from helpers_text import write_jsonl
from tdstream.preparation.engine import prepare_corpus
from tdstream.preparation.options import PrepareOptions
from tdstream.preparation.result import Counts, Observer
from tdstream.text.batches import TextBatches
from tdstream.text.open import open_text
from tdstream.text.options import TextOptions

RECORDS = [{"text": "some text " * 100} for _ in range(20_000)]  # 20 MB: more than is read at once


def write_text(path: Path) -> None:
    """Write a document per line."""
    path.write_text("".join(record["text"] + "\n" for record in RECORDS))


def write_parquet(path: Path) -> None:
    """Write a column of text."""
    pa.parquet.write_table(pa.table({"text": [record["text"] for record in RECORDS[:100]]}), path)


def places(batches: TextBatches) -> list[int]:
    """Return the bytes read after each batch."""
    with batches:
        return [batch.bytes_read or 0 for batch in batches.batches()]


class TestBytes:
    """How many bytes of the files are read."""

    @pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.txt"])
    def test_grow_to_the_size(self, name: str, tmp_path: Path) -> None:
        """They count compressed files as they are, in order, up to all."""
        path = tmp_path / name
        if name.endswith("txt"):
            write_text(path)
        else:
            write_jsonl(path, RECORDS)
        if name.endswith("gz"):
            path.write_bytes(gzip.compress(path.read_bytes(), 0))
        text = open_text(TextOptions(dataset=str(path), lines=name.endswith("txt")))
        size = path.stat().st_size
        assert text.total_bytes == size
        found = places(text)
        assert found == sorted(found)
        assert any(size * 0.2 < place < size * 0.8 for place in found)
        assert found[-1] == size

    def test_of_a_share(self, tmp_path: Path) -> None:
        """A task counts its own files."""
        for number in range(4):
            write_jsonl(tmp_path / f"{number}.jsonl", [{"text": "x" * 10 * (1 + number)}])
        sizes = [(tmp_path / f"{number}.jsonl").stat().st_size for number in range(4)]
        text = open_text(TextOptions(dataset=str(tmp_path)), (1, 2))
        assert text.total_bytes == sizes[2] + sizes[3]
        assert places(text)[0] <= sizes[2]

    def test_of_a_part(self, tmp_path: Path) -> None:
        """Of so many records nobody knows the bytes."""
        write_jsonl(tmp_path / "a.jsonl", RECORDS[:5])
        assert open_text(TextOptions(dataset=str(tmp_path), max_samples=3)).total_bytes is None


class TestBar:
    """What stands in a log file."""

    @pytest.mark.parametrize("name", ["a.jsonl", "a.txt", "a.parquet", "list"])
    @pytest.mark.parametrize("what", ["prepare", "count"])
    def test_first_and_last_line(
        self, what: str, name: str, tmp_path: Path, tokenizer_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Both are there, with a percentage, and no carriage return."""
        source: Any = tmp_path / name
        if name == "list":
            source = [record["text"] for record in RECORDS[:5]]
        elif name == "a.parquet":
            write_parquet(source)
        else:
            write_jsonl(source, RECORDS[:50])
        if what == "prepare":
            tdstream.prepare(source, str(tokenizer_dir), tmp_path / "out", progress=True, encoder="hf")
        else:
            tdstream.count(source, str(tokenizer_dir), cache_dir=tmp_path / "counts", encoder="hf")
        drawn = capsys.readouterr().err
        lines = drawn.splitlines()
        label = {"prepare": "Preparing", "count": "Counting"}[what]
        assert [re.match(rf"{label}: +(\d+)%", line)[1] for line in lines] == ["0", "100"]  # type: ignore[index]
        assert "tok/s" in lines[-1]
        assert "\r" not in drawn

    def test_fewer_records_than_asked_for(
        self, tmp_path: Path, tokenizer_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The last line says that all there are were read."""
        write_jsonl(tmp_path / "a.jsonl", RECORDS[:5])
        tdstream.prepare(
            tmp_path / "a.jsonl",
            str(tokenizer_dir),
            tmp_path / "out",
            progress=True,
            max_samples=9,
            encoder="hf",
        )
        assert "| 5.00/5.00 [" in capsys.readouterr().err.splitlines()[-1]

    def test_what_stops_does_not_look_complete(
        self, tmp_path: Path, tokenizer_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A bad record ends the preparation, and the last line is no 100 %."""
        write_jsonl(tmp_path / "a.jsonl", [*RECORDS, {"text": 7}, *RECORDS])
        with pytest.raises(tdstream.SourceError):
            tdstream.prepare(
                tmp_path / "a.jsonl", str(tokenizer_dir), tmp_path / "out", progress=True, encoder="auto"
            )
        assert "100%" not in capsys.readouterr().err


def test_an_observer_is_told_the_bytes(tmp_path: Path, tokenizer_dir: Path) -> None:
    """With worker processes too."""
    write_jsonl(tmp_path / "a.jsonl", RECORDS[:50])
    told: list[Any] = []

    class Watcher(Observer):
        def begin(self, total: int | None, done: Counts, total_bytes: int | None = None) -> None:
            told.append((total, total_bytes))

        def advance(self, num_records: int, counts: Counts, bytes_read: int | None = None) -> None:
            told.append(bytes_read)

    options = PrepareOptions.of(
        dataset=str(tmp_path / "a.jsonl"),
        tokenizer=str(tokenizer_dir),
        output_path=tmp_path / "out",
        num_proc=2,
    )
    prepare_corpus(options, Watcher())
    size = (tmp_path / "a.jsonl").stat().st_size
    assert (told[0], told[-1]) == ((None, size), size)
