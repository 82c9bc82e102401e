"""Reader of parquet: only the columns of the text, a part of a row group at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from tdstream.core.errors import SourceError
from tdstream.text.arrow_table import Types, find_steps, get_types
from tdstream.text.network import in_one_line
from tdstream.text.readers.file_table import FileColumns, FileTable

_TABLE_BYTES = 8 << 20  # of text in a table
_MOST_ROWS = 10_000  # of a table
_BUFFER_BYTES = 1 << 20  # of a column that are read at once


class ParquetReader:
    """Reads the parts of a text out of the rows of parquet files."""

    def __init__(self, parts: Sequence[str]) -> None:
        self._parts = parts

    def read(self, path: str, first_row: int = 0) -> Iterator[FileTable]:
        """Yield the rows of a file after the first ones; row groups before them are not read."""
        file = open_parquet(path)
        if file is None:
            return
        with file:
            types = get_types(file.schema_arrow)
            columns = _find_leaves(self._parts, types)
            row = 0
            for group in range(file.num_row_groups):
                num_rows = file.metadata.row_group(group).num_rows
                if row + num_rows <= first_row:
                    row += num_rows
                    continue
                yield from self._read_group(file, path, group, columns, row, first_row)
                row += num_rows

    def _read_group(
        self, file: Any, path: str, group: int, columns: list[str], row: int, first_row: int
    ) -> Iterator[FileTable]:
        """Yield the rows of a row group, of which the first one is row `row` of the file."""
        metadata = file.metadata.row_group(group)
        if not columns:  # no part of the text is in this file
            empty = pa.table({part: pa.nulls(metadata.num_rows) for part in self._parts})
            yield FileColumns(empty, partial(_locate, path, row)).slice(max(first_row - row, 0), None)
            return
        try:
            batches = file.iter_batches(
                _choose_rows(metadata, columns), row_groups=[group], columns=columns, use_threads=False
            )
            for batch in batches:
                table = FileColumns(pa.Table.from_batches([batch]), partial(_locate, path, row))
                skipped, row = max(first_row - row, 0), row + batch.num_rows
                if skipped < batch.num_rows:
                    yield table.slice(skipped, None) if skipped else table
                del table, batch
        except (pa.ArrowException, OSError) as error:
            raise SourceError(
                f"{path} is damaged: row group {group:,} cannot be read ({in_one_line(error)}). Make "
                f"it again."
            ) from error

    def count_rows(self, path: str) -> int:
        """Return how many rows a file has."""
        file = open_parquet(path)
        if file is None:
            return 0
        with file:
            return int(file.metadata.num_rows)


def open_parquet(path: str) -> Any:
    """Return an opened file; None if it is empty.

    Raises:
        SourceError: If it is no parquet file, or was cut.
    """
    if os.path.getsize(path) == 0:
        return None
    try:
        # Not pre_buffer, which keeps all that was read until the end of the file.
        return pyarrow.parquet.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, (FileNotFoundError, PermissionError)):
            raise
        raise SourceError(
            f"{path} is no parquet file, or was cut ({in_one_line(error)}). Make it again."
        ) from error


def _find_leaves(parts: Sequence[str], types: Types) -> list[str]:
    """Return the columns that hold the parts, down to the field of a struct."""
    steps = [find_steps(part, types) for part in parts]
    return list(dict.fromkeys(_name_leaf(path, types) for path in steps if path))


def _name_leaf(steps: Sequence[str], types: Types) -> str:
    """Return the name of the column at some steps, of which the last may go on inside a column of JSON."""
    names = []
    for step in steps:
        names.append(step)
        if not pa.types.is_struct(types[step]):
            break
        types = get_types(types[step])
    return ".".join(names)


def _choose_rows(metadata: Any, columns: list[str]) -> int:
    """Return how many rows of a row group hold about as much text as a table should."""
    chunks = (metadata.column(number) for number in range(metadata.num_columns))
    size = sum(
        chunk.total_uncompressed_size
        for chunk in chunks
        if any(
            chunk.path_in_schema == name or chunk.path_in_schema.startswith(f"{name}.") for name in columns
        )
    )
    rows = _TABLE_BYTES * metadata.num_rows // max(size, 1)
    return int(min(max(rows, 1), _MOST_ROWS))


def _locate(path: str, first_row: int, row: int) -> str:
    return f"row {first_row + row:,} of {path}"
