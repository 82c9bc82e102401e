"""Records of a local file as tables, each record with the place in its file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from tdstream.text.arrow_table import ArrowTable
from tdstream.text.fields import Rows, Table, join_columns, split_path

Locate = Callable[[int], str]
"""Names the place of a record of a table: "line 7 of a.jsonl"."""


_SMALL_BYTES = 4 << 20  # of text, up to which tables are joined


class FileTable(Table, Protocol):
    """Consecutive records of one file."""

    @property
    def num_bytes(self) -> int:
        """About how large their texts are."""
        ...

    def slice(self, first: int, count: int | None) -> FileTable:
        """Return some of them; a count of None means all that follow."""
        ...


class FileColumns(ArrowTable):
    """Records of which only the parts of the text were read: a column for each part."""

    def __init__(self, table: pa.Table, locate: Locate, first: int = 0) -> None:
        super().__init__(table)
        self._locate, self._first = locate, first

    def texts(self, text_field: str) -> tuple[list[Any], list[str]]:
        """Return the value in the place of each text; a part that this file does not have is None."""
        return super().texts(text_field)[0], []

    @property
    def num_bytes(self) -> int:
        """About how large their texts are."""
        return int(self._table.nbytes)

    def slice(self, first: int, count: int | None) -> FileColumns:
        """Return some of them; a count of None means all that follow."""
        return FileColumns(self._table.slice(first, count), self._locate, self._first + first)

    def locate(self, row: int) -> str:
        """Return the place of a record."""
        return self._locate(self._first + row)


class FileRows(Rows):
    """Records as Python objects; a part that a record does not have is None."""

    def __init__(
        self,
        records: Sequence[Any],
        parts: Sequence[str],
        locate: Locate,
        num_bytes: int,
        first: int = 0,
    ) -> None:
        super().__init__(records)
        self._parts, self._locate, self._first = parts, locate, first
        self._bytes_each = num_bytes / max(len(records), 1)

    @property
    def num_bytes(self) -> int:
        """About how large their texts are."""
        return int(self._bytes_each * len(self._records))

    def slice(self, first: int, count: int | None) -> FileRows:
        """Return some of them; a count of None means all that follow."""
        records = self._records[first : None if count is None else first + count]
        num_bytes = int(self._bytes_each * len(records))
        return FileRows(records, self._parts, self._locate, num_bytes, self._first + first)

    def texts(self, text_field: str) -> tuple[list[Any], list[str]]:  # noqa: ARG002 - its parts are known
        """Return the value in the place of each text."""
        columns = [[_find_part(record, part) for record in self._records] for part in self._parts]
        return join_columns(columns), []

    def locate(self, row: int) -> str:
        """Return the place of a record."""
        return self._locate(self._first + row)


def _find_part(record: Any, part: str) -> Any:
    """Return a part of a record; a record that is no object is its own text, or is no text."""
    return _find_first(record, part) if isinstance(record, Mapping) else record


def _find_first(record: Any, path: str) -> Any:
    """Return the first value at a path with dots, of the ways to read it; None if there is none."""
    if not isinstance(record, Mapping):
        return None
    found = record.get(path)
    if found is None and "." in path:
        inner = (_find_first(record.get(head), rest) for head, rest in split_path(path) if rest)
        found = next((value for value in inner if value is not None), None)
    return found


class JoinedTables:
    """Several tables as one."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = tables

    @property
    def num_rows(self) -> int:
        """How many."""
        return sum(table.num_rows for table in self._tables)

    def slice(self, first: int, count: int | None) -> Table:
        """Return some of them; a count of None means all that follow."""
        left = self.num_rows - first if count is None else count
        found: list[Table] = []
        for table in self._tables:
            if left > 0 and first < table.num_rows:
                found.append(table.slice(first, left))
                left -= found[-1].num_rows
            first = max(first - table.num_rows, 0)
        return found[0] if len(found) == 1 else JoinedTables(found)

    def texts(self, text_field: str) -> tuple[list[Any], list[str]]:
        """Return the value in the place of each text, and the parts of the field that no record has."""
        found = [table.texts(text_field) for table in self._tables]
        missing = [set(names) for _, names in found]
        return [text for texts, _ in found for text in texts], sorted(set.intersection(*missing))

    def list_fields(self) -> list[str]:
        """Return the paths of all fields."""
        return list(dict.fromkeys(path for table in self._tables for path in table.list_fields()))

    def list_filled(self) -> list[str]:
        """Return the names of the first record's fields that have a value."""
        return self._tables[0].list_filled()

    def locate(self, row: int) -> str:
        """Return the place of a record."""
        for table in self._tables:
            if row < table.num_rows:
                return table.locate(row)
            row -= table.num_rows
        return ""


def join_small(tables: Iterator[FileTable], batch_size: int) -> Iterator[Table]:
    """Yield tables of `batch_size` records, or fewer if they hold much text, across the ends of tables.

    So a batch does not end with each small file: tables with 2, 5, 9 and 1 records become batches of 8, 8
    and 1.
    """
    waiting: list[FileTable] = []
    records = size = 0
    try:
        for table in tables:
            first = 0
            while first < table.num_rows:
                piece = table.slice(first, batch_size - records)
                waiting.append(piece)
                first, records, size = (
                    first + piece.num_rows,
                    records + piece.num_rows,
                    size + piece.num_bytes,
                )
                del piece
                if records == batch_size or size >= _SMALL_BYTES:
                    joined, waiting, records, size = _join(waiting), [], 0, 0
                    yield joined
                    del joined
            del table
    except Exception:  # what was read before it is good
        if waiting:
            yield _join(waiting)
        raise
    if waiting:
        yield _join(waiting)


def _join(tables: list[FileTable]) -> Table:
    return tables[0] if len(tables) == 1 else JoinedTables(tables)
