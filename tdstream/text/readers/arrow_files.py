"""Reader of Arrow files and streams, which are mapped into memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa

from tdstream.core.errors import SourceError
from tdstream.text.arrow_table import Types, find_columns, get_types
from tdstream.text.network import in_one_line
from tdstream.text.readers.file_table import FileColumns, FileTable

_FILE_MAGIC = b"ARROW1"
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class ArrowReader:
    """Reads the parts of a text out of the rows of Arrow files."""

    def __init__(self, parts: Sequence[str]) -> None:
        self._parts = parts

    def read(self, path: str, first_row: int = 0) -> Iterator[FileTable]:
        """Yield the rows of a file after the first ones."""
        row = 0
        for batch in _read_batches(path):
            skipped, begin = max(first_row - row, 0), row
            row += batch.num_rows
            if skipped < batch.num_rows:
                table = FileColumns(self._choose(batch), partial(_locate, path, begin))
                yield table.slice(skipped, None) if skipped else table
                del table
            del batch

    def count_rows(self, path: str) -> int:
        """Return how many rows a file has."""
        return sum(batch.num_rows for batch in _read_batches(path))

    def _choose(self, batch: Any) -> pa.Table:
        """Return the columns of the text; without any, one that holds nothing for each part."""
        types = get_types(batch.schema)
        columns = list(dict.fromkeys(name for part in self._parts for name in find_columns(part, types)))
        if not columns:
            return pa.table({part: pa.nulls(batch.num_rows) for part in self._parts})
        return pa.Table.from_batches([batch]).select(columns)


def read_types(path: str) -> Types | None:
    """Return the types of the fields of a file; None if it is empty."""
    with _open_arrow(path) as reader:
        return None if reader is None else get_types(reader.schema)


def _read_batches(path: str) -> Iterator[Any]:
    with _open_arrow(path) as reader:
        if reader is None:
            return
        if isinstance(reader, pa.ipc.RecordBatchFileReader):
            yield from map(reader.get_batch, range(reader.num_record_batches))
        else:
            yield from reader


@contextmanager
def _open_arrow(path: str) -> Iterator[Any]:
    """Open a file or a stream; None if the file is empty."""
    if os.path.getsize(path) == 0:
        yield None
        return
    try:
        with pa.memory_map(path) as source:
            is_file = source.read(len(_FILE_MAGIC)) == _FILE_MAGIC
            if not is_file:
                _check_end(source)
            source.seek(0)
            with pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source) as reader:
                yield reader
    except (FileNotFoundError, PermissionError):
        raise
    except (pa.ArrowException, OSError) as error:
        raise SourceError(
            f"{path} is no Arrow file, or was cut ({in_one_line(error)}). Make it again."
        ) from error


def _check_end(source: Any) -> None:
    """Raise ArrowInvalid for a stream that was cut between two batches, which reading does not notice."""
    source.seek(0)
    begins = source.read(4)
    source.seek(max(source.size() - len(_END_OF_STREAM), 0))
    if begins == _END_OF_STREAM[:4] and source.read() != _END_OF_STREAM:  # else of a format before 0.15
        raise pa.ArrowInvalid("the end of the stream is missing")


def _locate(path: str, first_row: int, row: int) -> str:
    return f"row {first_row + row:,} of {path}"
