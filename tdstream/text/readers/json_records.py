"""Reader of JSON: one record per line, an array, or objects one after another.

Arrow parses blocks of lines; it takes only the fields of the text and ignores all others, whatever they hold.
A block in which it finds anything unusual is decoded line by line instead. So one bad line is one bad record,
with its number, and the records around it are read as usual.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from tdstream.text.fields import split_path
from tdstream.text.readers.compression import open_bytes
from tdstream.text.readers.file_table import FileColumns, FileRows, FileTable
from tdstream.text.readers.json_decoding import ValueStream, decode_line, decode_value, is_unfinished
from tdstream.text.readers.line_blocks import HEAD_BYTES, LineBlock, divide, read_head

_HEAD_RECORDS = 100
_HEAD_BLOCKS = 8
_LARGEST_PARSED = 256 << 20  # bytes of a block; one of a single line may be larger


class JsonReader:
    """Reads the parts of a text out of the records of JSON files."""

    def __init__(self, parts: Sequence[str]) -> None:
        self._parts = parts
        self._paths = {part: list(_list_paths(part)) for part in parts}
        self._schema = _make_schema([path for paths in self._paths.values() for path in paths])

    def read(self, path: str, first_row: int = 0) -> Iterator[FileTable]:
        """Yield the records of a file after the first ones."""
        with open_bytes(path) as file:
            head = read_head(file, path)
            if has_lines(head):
                yield from self._read_lines(path, divide(file, head), first_row)
            else:
                yield from self._read_values(path, ValueStream(file, path, head), first_row)

    def count_rows(self, path: str) -> int:
        """Return how many records a file has."""
        with open_bytes(path) as file:
            head = read_head(file, path)
            if has_lines(head):
                return sum(self._parse(path, block).num_rows for block in divide(file, head))
            return sum(1 for _ in ValueStream(file, path, head))

    def read_heads(self, path: str) -> Generator[list[Any], None, None]:
        """Yield the first records of a file, some at a time, for the names of their fields."""
        with open_bytes(path) as file:
            head = read_head(file, path)
            if not has_lines(head):
                yield [record for record, _ in islice(ValueStream(file, path, head), _HEAD_RECORDS)]
                return
            for block in islice(divide(file, head, HEAD_BYTES), _HEAD_BLOCKS):
                lines = [line for line in block.content.split(b"\n") if line.strip()]
                for first in range(0, len(lines), _HEAD_RECORDS):
                    some = lines[first : first + _HEAD_RECORDS]
                    yield [record for line in some for record in decode_line(line)]

    def _read_lines(self, path: str, blocks: Iterator[LineBlock], first_row: int) -> Iterator[FileTable]:
        row = 0
        for block in blocks:
            table = self._parse(path, block)  # of rows that are skipped too: a line may hold several
            skipped, row = max(first_row - row, 0), row + table.num_rows
            if skipped < table.num_rows:
                yield table.slice(skipped, None) if skipped else table
            del table

    def _read_values(self, path: str, values: ValueStream, first_row: int) -> Iterator[FileTable]:
        """Yield the records of a file that has not one on each line."""
        rest = islice(values, first_row, None)
        while found := list(islice(rest, _HEAD_RECORDS)):
            records, numbers = [record for record, _ in found], [number for _, number in found]
            size = sum(len(str(record)) for record in records)
            yield FileRows(records, self._parts, partial(_locate_number, path, numbers), size)

    def _parse(self, path: str, block: LineBlock) -> FileTable:
        """Return the records of a block of lines."""
        table = self._parse_fast(block.content)
        if table is not None:
            return FileColumns(table, partial(_locate_line, path, block))
        lines = [(number, line) for number, line in enumerate(block.content.split(b"\n")) if line.strip()]
        found = [
            (record, block.first_line + number) for number, line in lines for record in decode_line(line)
        ]
        records, numbers = [record for record, _ in found], [number for _, number in found]
        return FileRows(records, self._parts, partial(_locate_number, path, numbers), len(block.content))

    def _parse_fast(self, content: bytes) -> pa.Table | None:
        """Return a column for each part; None where the lines are not all plain records."""
        # Arrow 26 crashes on a block that begins with null, and stops at an empty one.
        if content.lstrip()[:1] != b"{" or len(content) > _LARGEST_PARSED:
            return None
        try:
            table = pa.json.read_json(
                pa.BufferReader(content),
                read_options=pa.json.ReadOptions(use_threads=False, block_size=len(content) + 1),
                parse_options=pa.json.ParseOptions(
                    explicit_schema=self._schema, unexpected_field_behavior="ignore"
                ),
            )
            table.validate(full=True)  # texts are UTF-8
        except pa.ArrowException:
            return None
        if table.num_rows != _count_lines(content):
            return None
        return pa.table({part: _coalesce(table, paths) for part, paths in self._paths.items()})


def _list_paths(part: str) -> Iterator[tuple[str, ...]]:
    """Yield each way to read a path with dots, the longest names first, as in `fields`.

    "a.b.c" gives ("a.b.c",), ("a.b", "c"), ("a", "b.c") and ("a", "b", "c").
    """
    for head, rest in split_path(part):
        yield from ((head, *inner) for inner in _list_paths(rest)) if rest else ((head,),)


def _make_schema(paths: list[tuple[str, ...]]) -> pa.Schema:
    """Return the schema in which there are these fields, all of them strings."""
    tree: dict[str, Any] = {}
    for path in paths:
        place = tree
        for name in path:
            place = place.setdefault(name, {})
    return pa.schema(_make_fields(tree))


def _make_fields(tree: dict[str, Any]) -> list[tuple[str, pa.DataType]]:
    return [(name, pa.struct(_make_fields(inner)) if inner else pa.string()) for name, inner in tree.items()]


def _coalesce(table: pa.Table, paths: list[tuple[str, ...]]) -> Any:
    """Return the values at the first of some paths at which there is one."""
    found = [
        pc.struct_field(table.column(path[0]), list(path[1:])) if path[1:] else table.column(path[0])
        for path in paths
    ]
    return found[0] if len(found) == 1 else pc.coalesce(*found)


def _count_lines(content: bytes) -> int:
    """Return the number of lines that are not blank."""
    return sum(1 for line in content.split(b"\n") if line and not line.isspace())


def _locate_line(path: str, block: LineBlock, row: int) -> str:
    """Return the place of a record of a block that has one on each line that is not blank."""
    lines = (number for number, line in enumerate(block.content.split(b"\n")) if line.strip())
    return f"line {block.first_line + next(islice(lines, row, None)):,} of {path}"


def _locate_number(path: str, numbers: list[int], row: int) -> str:
    return f"line {numbers[row]:,} of {path}"


def has_lines(head: bytes) -> bool:
    """Return whether a file that begins with these bytes has one record on each line.

    It has not if an array begins there, or an object that does not end on its line, or one that is followed
    by another there.
    """
    begin = head.lstrip()
    if begin[:1] != b"{":
        return begin[:1] != b"["
    line, newline, _ = begin.partition(b"\n")
    text = line.decode("utf-8", "surrogateescape")
    try:
        _, end = decode_value(text, 0)
    except ValueError as error:
        return not (newline and is_unfinished(error, text))
    return not text[end:].lstrip().startswith("{")
