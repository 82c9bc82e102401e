"""Reader of plain text: a document per file, with its bytes as they are, or one per line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from tdstream.text.fields import is_utf8
from tdstream.text.readers.compression import open_bytes
from tdstream.text.readers.file_table import FileRows, FileTable
from tdstream.text.readers.line_blocks import divide, read_head


class TextReader:
    """Reads text files; every part of a text is the whole of it."""

    def __init__(self, parts: Sequence[str], *, lines: bool) -> None:
        self._parts, self._lines = parts, lines

    def read(self, path: str, first_row: int = 0) -> Iterator[FileTable]:
        """Yield the documents of a file after the first ones."""
        if self._lines:
            yield from self._read_lines(path, first_row)
        elif first_row == 0:
            with open_bytes(path) as file:
                content = read_head(file, path) + file.read()
            yield FileRows([_decode(content)], self._parts, partial(_locate_file, path), len(content))

    def count_rows(self, path: str) -> int:
        """Return how many documents a file has."""
        return sum(len(lines) for lines in _read_line_blocks(path)) if self._lines else 1

    def _read_lines(self, path: str, first_row: int) -> Iterator[FileTable]:
        row = 0
        for lines in _read_line_blocks(path):
            if row + len(lines) > first_row:
                texts = [_decode(line) for line in lines]
                table = FileRows(texts, self._parts, partial(_locate_line, path, row), sum(map(len, lines)))
                yield table.slice(first_row - row, None) if row < first_row else table
                del table, texts
            row += len(lines)


def _read_line_blocks(path: str) -> Iterator[list[bytes]]:
    """Yield the lines of a file without their ends, which are LF, CR LF or CR."""
    with open_bytes(path) as file:
        for block in divide(file, read_head(file, path)):
            content = block.content
            if b"\r" in content:
                content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            lines = content.split(b"\n")
            if not lines[-1]:
                lines.pop()
            yield lines


def _decode(content: bytes) -> str | bytes:
    """Return a text; what is no UTF-8 as bytes."""
    return content.decode() if is_utf8(content) else content


def _locate_line(path: str, first: int, row: int) -> str:
    return f"line {first + row + 1:,} of {path}"


def _locate_file(path: str, row: int) -> str:  # noqa: ARG001 - there is one
    return path
