"""Where records come from, and how a stream of them is opened, left and opened again at the same place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

MOST_RECORDS = 64
"""Records that are read, and tokenized, together at most; places lie between two such blocks."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place between two blocks of one stream's records."""

    records: int = 0
    """Records of this stream that lie before."""
    state: dict[str, Any] = field(default_factory=dict)
    """What the source itself calls this place; empty where records are counted."""


class Opened(Protocol):
    """Records that are being read, a block at a time."""

    def __iter__(self) -> Iterator[list[Any]]: ...

    def __next__(self) -> list[Any]:
        """Return the next block: at least one record."""
        ...

    def place(self) -> Place:
        """Return the place behind the last block."""
        ...


class Records(Protocol):
    """Records that can be read again and again, in the same order within an epoch."""

    @property
    def num_rows(self) -> int | None:
        """How many there are, if that is known without reading them."""
        ...

    def share(self, index: int, count: int) -> Records:
        """Return the records that stream `index` of `count` reads: each record is in exactly one share."""
        ...

    def open(self, epoch: int, place: Place, block_records: int) -> Opened:
        """Begin to read at a place, so many records at a time; places are of use only for as many."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return what is known of these records that tells them from others; JSON types."""
        ...
