"""Blocks of whole lines of a file."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from tdstream.core.errors import SourceError
from tdstream.text.readers.compression import open_bytes

BLOCK_BYTES = 8 << 20
"""Size of a block; a longer line makes a longer one."""
HEAD_BYTES = 1 << 20
"""Bytes at the head of a file that tell how it is laid out."""
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Consecutive whole lines of a file."""

    content: bytes
    """The lines with their ends; only the last line of a file may have none."""
    first_line: int
    """Number of the first line, counted from 1."""


def read_blocks(path: str, block_bytes: int = BLOCK_BYTES) -> Iterator[LineBlock]:
    """Yield the lines of a file, in blocks, without the byte order mark at its head.

    Only LF ends a line here; a block may end in the middle of a line that is ended by CR.
    """
    with open_bytes(path) as file:
        yield from divide(file, read_head(file, path), block_bytes)


def read_head(file: BinaryIO, path: str) -> bytes:
    """Return the first bytes of a file without a byte order mark; raise SourceError for UTF-16."""
    head = file.read(HEAD_BYTES)
    if head.startswith(_UTF16):
        raise SourceError(f"{path} is in UTF-16, and text has to be in UTF-8. Convert it.")
    return head.removeprefix(codecs.BOM_UTF8)


def divide(file: BinaryIO, head: bytes, block_bytes: int = BLOCK_BYTES) -> Iterator[LineBlock]:
    """Yield a file of which the head was read in blocks of whole lines."""
    parts = [head]
    line = 1
    while piece := file.read(block_bytes):
        end = piece.rfind(b"\n") + 1
        if not end:
            parts.append(piece)
            continue
        rest, piece = piece[end:], piece[:end]
        content = b"".join([*parts, piece])
        parts = [rest] if rest else []
        del piece, rest
        yield LineBlock(content, line)
        line += content.count(b"\n")
        del content
    rest = b"".join(parts)
    if rest:
        yield LineBlock(rest, line)
