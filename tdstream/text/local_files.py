"""Local files of one format, for a preparation: their records, their fields, and how many there are."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, islice
from typing import Any, Protocol

import pyarrow as pa

from tdstream.core.errors import ConfigError
from tdstream.text.arrow_table import Types, find_missing, get_types, list_fields
from tdstream.text.batches import Facts, Task
from tdstream.text.fields import Rows, Table, missing_field_error, split_text_field
from tdstream.text.files import FileList
from tdstream.text.options import TextOptions
from tdstream.text.readers.arrow_files import ArrowReader, read_types
from tdstream.text.readers.compression import bytes_read
from tdstream.text.readers.delimited import DelimitedReader
from tdstream.text.readers.file_table import FileTable, join_small
from tdstream.text.readers.json_records import JsonReader
from tdstream.text.readers.parquet import ParquetReader, open_parquet
from tdstream.text.readers.plain_text import TextReader
from tdstream.text.records import MOST_SEGMENTS

_COUNTED = ("parquet", "arrow")  # formats that tell how many records a file has
_MOST_HEADS = 256  # files that are looked into for a field that the first ones do not have


class Reader(Protocol):
    """Reads the parts of a text out of the files of one format."""

    def read(self, path: str, first_row: int = 0) -> Iterator[FileTable]:
        """Yield the records of a file after the first ones."""
        ...

    def count_rows(self, path: str) -> int:
        """Return how many records a file has."""
        ...


class LocalFiles:
    """The records of local files, in segments: runs of neighboring files.

    There are as many segments as files, but at most 256, or one for each of `at_least` tasks.
    """

    def __init__(self, files: Sequence[str], reader: Reader, at_least: int = 1) -> None:
        self._files, self._reader = files, reader
        self.num_segments = min(len(files), max(MOST_SEGMENTS, at_least))
        self._rows: dict[str, int] = {}
        self._file = 0  # the one being read

    @cached_property
    def _starts(self) -> list[int]:
        """Bytes before each file, as they are on disk, and of all."""
        return [0, *accumulate(map(os.path.getsize, self._files))]

    @property
    def bytes_read(self) -> int:
        """Bytes of all files, as they are on disk, up to about where the last table ends."""
        in_file = bytes_read(self._files[self._file]) if self._file < len(self._files) else 0
        return self._starts[self._file] + in_file

    def count_bytes(self, segments: int) -> int:
        """Return the bytes of the files of the first segments, as they are on disk."""
        return self._starts[self.find_file(segments)]

    def find_file(self, segment: int) -> int:
        """Return the number of a segment's first file; that of all files after the last segment."""
        return self._find_files(segment)[0]

    def read(self, segment: int, batch_size: int, first_row: int = 0) -> Iterator[Table]:
        """Read the records of a segment after the first ones."""
        return join_small(self._read_files(segment, first_row), batch_size)

    def count_rows(self, segment: int) -> int:
        """Return how many records a segment has."""
        return sum(map(self.count_file, self._list_files(segment)))

    def count_file(self, file: str) -> int:
        """Return how many records a file has, after reading it once where nothing else tells."""
        if file not in self._rows:
            self._rows[file] = self._reader.count_rows(file)
        return self._rows[file]

    def count_all(self) -> int:
        """Return how many records there are."""
        return sum(map(self.count_file, self._files))

    def leave(self, tables: Any) -> None:
        """Stop reading a segment before its end."""
        tables.close()

    def _list_files(self, segment: int) -> Sequence[str]:
        first, stop = self._find_files(segment)
        return self._files[first:stop]

    def _find_files(self, segment: int) -> tuple[int, int]:
        """Return a segment's first file and the one after its last: 7 files in 3 segments are 3, 2 and 2."""
        size, longer = divmod(len(self._files), self.num_segments)
        first = segment * size + min(segment, longer)
        return first, first + size + (segment < longer)

    def _read_files(self, segment: int, first_row: int) -> Iterator[FileTable]:
        files = self._list_files(segment)
        for number, file in enumerate(files, self._find_files(segment)[0]):
            self._file = number
            if first_row and len(files) > 1:
                rows = self.count_file(file)
                if rows <= first_row:
                    first_row -= rows
                    continue
            yield from self._reader.read(file, first_row)
            self._file, first_row = number + 1, 0


def open_local(listed: FileList, options: TextOptions, task: Task) -> tuple[LocalFiles, Facts]:
    """Open the files of a list.

    Raises:
        ConfigError: If `lines` is given for another format than text.
        SourceError: If a file cannot be read, or the first records lack a part of the text field.
    """
    if options.lines and listed.format != "text":
        raise ConfigError(
            f"lines is for text files, but dataset {options.dataset!r} is {listed.format}. Leave it out."
        )
    known = _find_fields(_HEADS[listed.format](listed.files), options.text_field)
    reader = _make_reader(listed.format, known.parts, options)
    segments = LocalFiles(listed.files, reader, 1 if task is None else task[1])
    facts = Facts(
        files=list(listed.files),
        total=segments.count_all() if listed.format in _COUNTED else None,
        num_bytes=listed.num_bytes,
        columns=known.names or None,
    )
    return segments, facts


def _make_reader(file_format: str, parts: Sequence[str], options: TextOptions) -> Reader:
    if file_format == "parquet":
        return ParquetReader(parts)
    if file_format == "arrow":
        return ArrowReader(parts)
    if file_format == "json":
        return JsonReader(parts)
    if file_format == "text":
        return TextReader(parts, lines=options.lines)
    return DelimitedReader(parts, "\t" if file_format == "tsv" else ",")


@dataclass(frozen=True, slots=True)
class _Head:
    """The fields of some first records."""

    names: list[str]
    paths: list[str]
    """Those of nested fields too."""
    find_missing: Callable[[str], list[str]]
    """Returns the parts of a text field that none of them has."""


@dataclass(frozen=True, slots=True)
class _Fields:
    """What is known of the fields of all records."""

    parts: list[str]
    """The parts of the text field."""
    names: list[str]


def _find_fields(heads: Generator[_Head, None, None], text_field: str) -> _Fields:
    """Look into files until each part of the text field was found; raise SourceError if one was not."""
    names: dict[str, None] = {}
    paths: dict[str, None] = {}
    missing: list[str] | None = None
    with closing(heads):
        for head in heads:
            names |= dict.fromkeys(head.names)
            paths |= dict.fromkeys(head.paths)
            found = head.find_missing(text_field)
            missing = found if missing is None else [part for part in missing if part in found]
            if not missing:
                break
    if missing:
        raise missing_field_error(missing, paths)
    return _Fields(split_text_field(text_field, names), list(names))


def _head_of_types(types: Types) -> _Head:
    return _Head(list(types), list_fields(types), partial(find_missing, types=types))


def _read_parquet_heads(files: Sequence[str]) -> Generator[_Head, None, None]:
    for path in files[:_MOST_HEADS]:
        file = open_parquet(path)
        if file is not None:
            with file:
                types = get_types(file.schema_arrow)
            yield _head_of_types(types)


def _read_arrow_heads(files: Sequence[str]) -> Generator[_Head, None, None]:
    for path in files[:_MOST_HEADS]:
        types = read_types(path)
        if types is not None:
            yield _head_of_types(types)


def _read_json_heads(files: Sequence[str]) -> Generator[_Head, None, None]:
    for number, path in enumerate(files[:_MOST_HEADS]):
        with closing(JsonReader(()).read_heads(path)) as heads:
            for records in heads if number == 0 else islice(heads, 1):
                rows = Rows([record for record in records if isinstance(record, dict)])
                if rows.num_rows:
                    yield _Head(rows.list_names(), rows.list_fields(), partial(_find_missing, rows))


def _find_missing(rows: Rows, text_field: str) -> list[str]:
    return rows.texts(text_field)[1]


def _read_delimited_heads(delimiter: str, files: Sequence[str]) -> Generator[_Head, None, None]:
    for path in files[:_MOST_HEADS]:
        names = DelimitedReader((), delimiter).read_names(path)
        if names:
            yield _head_of_types(dict.fromkeys(names, pa.string()))


def _read_text_heads(files: Sequence[str]) -> Generator[_Head, None, None]:  # noqa: ARG001 - all are alike
    yield _head_of_types({"text": pa.string()})


_HEADS: dict[str, Callable[[Sequence[str]], Generator[_Head, None, None]]] = {
    "parquet": _read_parquet_heads,
    "arrow": _read_arrow_heads,
    "json": _read_json_heads,
    "csv": partial(_read_delimited_heads, ","),
    "tsv": partial(_read_delimited_heads, "\t"),
    "text": _read_text_heads,
}
