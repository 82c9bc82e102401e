"""Of parquet and Arrow files, the columns of the text are read, a piece at a time, from any row on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tdstream.core.errors import SourceError
from tdstream.text.readers import parquet
from tdstream.text.readers.arrow_files import ArrowReader
from tdstream.text.readers.parquet import ParquetReader

TEXTS = [f"text {number} " + "x" * (number % 40) for number in range(300)]


def read(path: Path, first_row: int = 0, *parts: str) -> list[Any]:
    """Return the values in the place of the texts of a file, after the first rows."""
    parts = parts or ("text",)
    reader = ArrowReader(parts) if path.suffix == ".arrow" else ParquetReader(parts)
    return [value for table in reader.read(str(path), first_row) for value in table.texts(",".join(parts))[0]]


def write(path: Path, table: pa.Table, rows: int = 70) -> Path:
    """Write a table in row groups of so many rows."""
    if path.suffix == ".arrow":
        make = pa.ipc.new_stream if "stream" in path.name else pa.ipc.new_file
        with make(str(path), table.schema) as writer:
            for batch in table.to_batches(max_chunksize=rows):
                writer.write_batch(batch)
    else:
        pq.write_table(table, path, row_group_size=rows)
    return path


@pytest.mark.parametrize("name", ["a.parquet", "file.arrow", "stream.arrow"])
@pytest.mark.parametrize(
    "text_type", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.string_view()]
)
def test_types(tmp_path: Path, name: str, text_type: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every type of text, from any row on, in tables of a few rows."""
    monkeypatch.setattr(parquet, "_TABLE_BYTES", 500)
    table = pa.table({"n": range(300), "text": pa.array(TEXTS).cast(text_type)})
    path = write(tmp_path / name, table)
    for row in (0, 1, 69, 70, 71, 299, 300):
        assert read(path, row) == TEXTS[row:]


@pytest.mark.parametrize("name", ["a.parquet", "file.arrow", "stream.arrow"])
def test_columns_that_are_not_there(tmp_path: Path, name: str) -> None:
    """A file without the text, or with a column of type null, has rows without text."""
    path = write(tmp_path / name, pa.table({"n": range(100), "title": pa.nulls(100), "text": TEXTS[:100]}))
    assert read(path, 90, "other") == [None] * 10
    assert read(path, 0, "title") == [None] * 100
    assert read(path, 98, "title", "text", "other") == TEXTS[98:100]


def test_nested(tmp_path: Path) -> None:
    """One field of a struct is read, or a column whose name has a dot, and no others."""
    rows = [{"meta": {"title": f"t{n}", "big": "x" * 50}} if n % 3 else {"meta": None} for n in range(90)]
    path = write(tmp_path / "a.parquet", pa.Table.from_pylist(rows[1:] + rows[:1]), 20)
    assert read(path, 5, "meta.title") == [f"t{n}" if n % 3 else None for n in [*range(6, 90), 0]]
    (table, *_) = ParquetReader(["meta.title"]).read(str(path))
    assert table.list_fields() == ["meta.title"]
    dotted = write(tmp_path / "b.parquet", pa.table({"meta.title": ["a"], "meta": [{"title": "b"}]}))
    assert read(dotted, 0, "meta.title") == ["a"]


def test_place(tmp_path: Path) -> None:
    """A row is counted from 0 in its file."""
    path = write(tmp_path / "a.parquet", pa.table({"text": TEXTS}))
    tables = list(ParquetReader(["text"]).read(str(path), 150))
    assert tables[0].slice(5, None).locate(1) == f"row 156 of {path}"


@pytest.mark.parametrize("name", ["a.parquet", "file.arrow", "stream.arrow"])
def test_nothing_and_broken(tmp_path: Path, name: str) -> None:
    """An empty file holds nothing; one that was cut is refused."""
    path = tmp_path / name
    reader: Any = ArrowReader(["text"]) if path.suffix == ".arrow" else ParquetReader(["text"])
    path.touch()
    assert (read(path), reader.count_rows(str(path))) == ([], 0)
    whole = write(path, pa.table({"text": TEXTS})).read_bytes()
    assert reader.count_rows(str(path)) == 300
    empty = write(tmp_path / f"none_{name}", pa.table({"text": pa.array([], pa.string())}))
    assert read(empty) == []
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError, match=r"(is no parquet file|is no Arrow file), or was cut"):
        read(path)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """What was read is not kept until the end of the file."""
    with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema({"text": pa.string()}), compression="none",
                          use_dictionary=False) as writer:  # fmt: skip
        for group in range(20):
            texts = [f"{group} {row} " + "ab" * 5000 for row in range(100)]
            writer.write_table(pa.table({"text": texts}))
    before, most = pa.total_allocated_bytes(), 0
    for table in ParquetReader(["text"]).read(str(tmp_path / "a.parquet")):
        most = max(most, pa.total_allocated_bytes() - before)
        assert table.num_rows
        del table
    assert most < 6 << 20  # of 20 MB
