"""Reader of comma- and tab-separated text.

Comma-separated fields may stand in quotation marks, with commas and line ends in them. In tab-separated text
a quotation mark is a character like others, and every line is a record.
"""

from __future__ import annotations

import csv
import io
import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from tdstream.core.errors import SourceError
from tdstream.text.fields import Unreadable
from tdstream.text.readers.compression import open_bytes
from tdstream.text.readers.file_table import FileRows, FileTable
from tdstream.text.readers.line_blocks import LineBlock, divide, read_head

logger = logging.getLogger(__name__)

_TABLE_ROWS = 1000
_TABLE_CHARACTERS = 4 << 20
_MOST_LINES = 1000  # in one field, after which it looks as if a quotation mark were never closed

Row = tuple[Any, int, int]
"""The fields of a row, a list of texts, or why it cannot be read; and its first and last line, from 1."""


class DelimitedReader:
    """Reads the parts of a text out of the columns of such files."""

    def __init__(self, parts: Sequence[str], delimiter: str) -> None:
        self._parts, self._delimiter = parts, delimiter

    def read(self, path: str, first_row: int = 0) -> Iterator[FileTable]:
        """Yield the rows of a file after the first ones."""
        rows = self._rows(path)
        header: Any = next(rows, None)
        if header is None:
            return
        names = header[0] if isinstance(header[0], list) else []
        adviser = _Adviser(path, self._delimiter)
        places = {part: names.index(part) for part in self._parts if part in names}
        records: list[Any] = []
        lines: list[int] = []
        size = 0
        for number, (fields, line, last) in enumerate(rows):
            if number < first_row:
                continue
            record = self._make_record(fields, len(names), places)
            if isinstance(record, dict):
                adviser.look_at(record.values(), line, last)
            size += sum(map(len, fields)) if isinstance(fields, list) else 0
            records.append(record)
            lines.append(line)
            if len(records) == _TABLE_ROWS or size >= _TABLE_CHARACTERS:
                yield FileRows(records, self._parts, partial(_locate, path, lines), size)
                records, lines, size = [], [], 0
        if records:
            yield FileRows(records, self._parts, partial(_locate, path, lines), size)

    def count_rows(self, path: str) -> int:
        """Return how many rows a file has."""
        return max(sum(1 for _ in self._rows(path)) - 1, 0)

    def read_names(self, path: str) -> list[str]:
        """Return the names of the columns; none of an empty file."""
        rows = self._rows(path)
        header: Any = next(rows, ([], 0, 0))[0]
        rows.close()
        return header if isinstance(header, list) else []

    def _rows(self, path: str) -> Any:
        return _read_tabbed(path) if self._delimiter == "\t" else _read_quoted(path, self._delimiter)

    def _make_record(self, fields: list[str] | Unreadable, width: int, places: dict[str, int]) -> Any:
        """Return the parts of a row; empty fields after the last column do no harm."""
        if isinstance(fields, Unreadable):
            return fields
        if len(fields) > width and any(fields[width:]):
            hint = ""
            if self._delimiter == "\t" and any(field.startswith('"') for field in fields):
                hint = " (quotation marks do not group fields in .tsv; if they do in this file, convert it)"
            return Unreadable(f"it has {len(fields):,} fields, and the header {width:,}{hint}")
        return {part: _mark(fields[place]) for part, place in places.items() if place < len(fields)}


def _mark(text: str) -> str | bytes:
    """Return a text; what was no UTF-8 as bytes."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")
    return text


def _read_tabbed(path: str) -> Iterator[Row]:
    """Yield the lines of a file that are not blank, header first."""
    with open_bytes(path) as file:
        for block in divide(file, read_head(file, path)):
            for number, line in enumerate(block.content.split(b"\n")):
                if line.strip(b" \r"):
                    text = line.removesuffix(b"\r").decode("utf-8", "surrogateescape")
                    yield text.split("\t"), block.first_line + number, block.first_line + number


def _read_quoted(path: str, delimiter: str) -> Iterator[Row]:
    """Yield the rows of a file that are not blank, header first."""
    if csv.field_size_limit() < sys.maxsize:
        csv.field_size_limit(sys.maxsize)  # a document may be longer than 128 KiB
    with open_bytes(path) as file:
        lines = _Lines(divide(file, read_head(file, path)))
        rows = csv.reader(lines, delimiter=delimiter)
        while True:
            first = lines.begin_row()
            fields: list[str] | Unreadable | None
            try:
                fields = next(rows, None)
            except csv.Error as error:
                fields = Unreadable(f"its row cannot be read ({error})")
            if fields is None:
                return
            if lines.ended:
                raise SourceError(
                    f"{path} has a quotation mark on line {first:,} that is never closed: the rest of the "
                    f"file would be one field. Repair it."
                )
            if not lines.is_blank:
                yield fields, first, lines.line


class _Lines:
    """The lines of a file, with their ends, which are LF, CR LF or CR; remembers those of the last row."""

    def __init__(self, blocks: Iterator[LineBlock]) -> None:
        self._lines = (
            line
            for block in blocks
            for line in io.StringIO(block.content.decode("utf-8", "surrogateescape"), newline="")
        )
        self.line = 0
        """Number of the last line, counted from 1."""
        self.ended = False
        """Whether the file ended before the row did."""
        self.is_blank = True
        """Whether the row is white space."""

    def begin_row(self) -> int:
        """Return the number of the line on which the next row begins."""
        self.is_blank = True
        return self.line + 1

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = next(self._lines, None)
        if line is None:
            self.ended = True
            raise StopIteration
        self.line += 1
        self.is_blank = self.is_blank and not line.strip(" \r\n")
        return line


class _Adviser:
    """Says once for each file what looks as if its quotation marks were meant otherwise."""

    def __init__(self, path: str, delimiter: str) -> None:
        self._path, self._is_tabbed, self._said = path, delimiter == "\t", False

    def look_at(self, texts: Iterable[Any], first: int, last: int) -> None:
        """Look at the texts of a row, and at its lines."""
        if self._said:
            return
        if last - first >= _MOST_LINES:
            self._said = True
            logger.warning(
                "One row of %s goes from line %s to line %s. If that is no long document, a quotation mark "
                "on line %s is not closed, and its text has swallowed other rows.",
                self._path, f"{first:,}", f"{last:,}", f"{first:,}",
            )  # fmt: skip
        elif self._is_tabbed and any(_is_quoted(text) for text in texts):
            self._said = True
            logger.warning(
                "%s has texts in quotation marks, such as on line %s: in .tsv files these are part of the "
                "text. If they are not in this file, convert it to parquet, jsonl or csv.",
                self._path, f"{first:,}",
            )  # fmt: skip


def _is_quoted(text: Any) -> bool:
    """Return whether a text looks as if quoted by a program: in quotation marks, those inside doubled."""
    if not (isinstance(text, str) and len(text) > 2 and text[0] == text[-1] == '"'):
        return False
    inside = text[1:-1]
    return '""' in inside and '"' not in inside.replace('""', "")


def _locate(path: str, lines: list[int], row: int) -> str:
    return f"line {lines[row]:,} of {path}"
