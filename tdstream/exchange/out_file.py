"""A file to be made of parts of others: linked where it is the same file, else copied; and made durable."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tdstream.core.errors import CorpusError
from tdstream.formats.description import Description

_PIECE = 1 << 24  # bytes copied at a time


class FileRange(NamedTuple):
    """Bytes of a file."""

    path: str
    first: int
    num_bytes: int


Made = Callable[[], Iterable[bytes]]
"""Returns new content, in parts."""


@dataclass(frozen=True, slots=True)
class OutFile:
    """A file to be made: its name, and what it consists of, in order."""

    name: str
    parts: tuple[FileRange | Made, ...]
    whole: bool = False
    """Whether its one part is a whole file."""

    @property
    def copied(self) -> int:
        """Bytes that are taken from other files."""
        return sum(part.num_bytes for part in self.parts if isinstance(part, FileRange))

    def link(self, directory: Path) -> bool:
        """Make the file a hard link; return False if that is not possible."""
        source = self.parts[0]
        if not self.whole or not isinstance(source, FileRange):
            return False
        try:
            # The real file: a hard link to a symbolic link would be another symbolic link.
            os.link(os.path.realpath(source.path), directory / self.name)
        except FileExistsError:
            raise
        except OSError:
            return False
        return True

    def is_linked(self, directory: Path) -> bool:
        """Return whether it is a hard link in a directory."""
        source = self.parts[0]
        return self.whole and isinstance(source, FileRange) and _is_same(source.path, directory / self.name)

    def write(self, directory: Path, advance: Callable[[int], object]) -> None:
        """Write the file; it gets its name when it is complete and durable.

        `advance` is called with the bytes of each part that was copied.
        """
        path, temporary = directory / self.name, directory / f"{self.name}.tmp"
        with temporary.open("wb", buffering=0) as file:
            for part in self.parts:
                if isinstance(part, FileRange):
                    for content in _read(part):
                        _write_all(file.fileno(), content)
                        advance(len(content))
                else:
                    for content in part():
                        _write_all(file.fileno(), content)
            os.fsync(file.fileno())
        os.replace(temporary, path)


def link_or_copy(name: str, path: str, size: int) -> OutFile:
    """Return a file that is the same as another."""
    return OutFile(name, (FileRange(path, 0, size),), whole=True)


def made(name: str, make: Made) -> OutFile:
    """Return a file of new content."""
    return OutFile(name, (make,))


def slice_tokens(description: Description, first: int, last: int) -> Iterator[FileRange]:
    """Yield where tokens first .. last - 1 of the stream lie.

    With pieces of 10 and 5 tokens of uint16, tokens 8 .. 11 are the last 4 bytes of one, and the first 4 of
    the next.
    """
    itemsize, begin = description.dtype.itemsize, 0
    for piece in description.pieces:
        low, high = max(first, begin), min(last, begin + piece.tokens)
        if low < high:
            place = piece.offset + (low - begin) * itemsize
            yield FileRange(piece.path, place, (high - low) * itemsize)
        begin += piece.tokens


def _is_same(path: str, other: Path) -> bool:
    try:
        return os.path.samefile(path, other)
    except FileNotFoundError:
        return False


def _read(part: FileRange) -> Iterator[bytes]:
    with open(part.path, "rb", buffering=0) as file:
        file.seek(part.first)
        left = part.num_bytes
        while left:
            content = file.read(min(left, _PIECE))
            if not content:
                raise CorpusError(f"{part.path} has become shorter since it was opened.")
            yield content
            left -= len(content)


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
