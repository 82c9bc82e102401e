"""Where records come from, and how a stream of them is opened, left and opened again at the same place."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from tdstream.core.checks import check_new_iterator
from tdstream.core.errors import SourceError

logger = logging.getLogger(__name__)

_WORTH_A_LINE = 10_000  # records passed over, from which on somebody may wonder what takes so long

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


class CountedRecords:
    """What an iterable, or a function that makes iterators, gives; every stream reads all and keeps its own.

    Args:
        source: The iterable, or a function without arguments.
        index: Which share this is.
        count: How many shares there are; record r is in share r % count.
    """

    num_rows: int | None = None

    def __init__(
        self, source: Iterable[Any] | Callable[[], Iterable[Any]], index: int = 0, count: int = 1
    ) -> None:
        self._source, self._index, self._count = source, index, count

    def share(self, index: int, count: int) -> CountedRecords:
        """Return every count-th record, from record `index` on."""
        return CountedRecords(self._source, index, count)

    def open(self, epoch: int, place: Place, block_records: int) -> OpenedRecords:  # noqa: ARG002 - all epochs are alike
        """Begin to read behind so many records of this share; those before are read, and left."""
        passed = self._index + place.records * self._count
        if place.records >= _WORTH_A_LINE:
            logger.info("Going through %s records to where the stream goes on.", f"{passed:,}")
        return OpenedRecords(islice(self._begin(), passed, None, self._count), place.records, block_records)

    def describe(self) -> dict[str, Any]:
        """Return the kind of source; nothing more is known of it."""
        return {"records": self._name()}

    def _name(self) -> str:
        return getattr(self._source, "__name__", type(self._source).__name__)

    def _begin(self) -> Iterator[Any]:
        made = self._source() if callable(self._source) else self._source
        if not hasattr(made, "__iter__"):
            raise SourceError(
                f"the source, {self._name()}, returned a {type(made).__name__}; expected an iterator "
                f"over texts or records."
            )
        iterator = iter(made)
        if callable(self._source):
            check_new_iterator(self._source, iterator)
        if iterator is self._source:
            raise SourceError(
                f"a {type(self._source).__name__} can be read only once, so no second epoch and no resume is "
                f"possible. Pass the function that makes it, or an object whose __iter__ begins anew."
            )
        return iterator


class OpenedRecords:
    """An iterator whose records are counted, in blocks."""

    def __init__(self, records: Iterator[Any], done: int, block_records: int) -> None:
        self._records, self._done, self._block_records = records, done, block_records

    def __iter__(self) -> OpenedRecords:
        return self

    def __next__(self) -> list[Any]:
        """Return the next block."""
        block = list(islice(self._records, self._block_records))
        if not block:
            raise StopIteration
        self._done += len(block)
        return block

    def place(self) -> Place:
        """Return the place behind the last block."""
        return Place(self._done)


class IndexedRecords:
    """The records of a sequence; share i of n has i, i + n, i + 2 n, ...

    Args:
        source: Anything with `len()` and `[]`.
        index: Which share this is.
        count: How many shares there are.
    """

    def __init__(self, source: Sequence[Any], index: int = 0, count: int = 1) -> None:
        self._source, self._index, self._count = source, index, count

    @property
    def num_rows(self) -> int:
        """Records of this share."""
        return len(range(self._index, len(self._source), self._count))

    def share(self, index: int, count: int) -> IndexedRecords:
        """Return every count-th record, from record `index` on."""
        return IndexedRecords(self._source, index, count)

    def open(self, epoch: int, place: Place, block_records: int) -> OpenedRecords:  # noqa: ARG002 - all epochs are alike
        """Begin to read at a place."""
        places = range(self._index, len(self._source), self._count)
        rest = (self._source[i] for i in islice(places, place.records, None))
        return OpenedRecords(rest, place.records, block_records)

    def describe(self) -> dict[str, Any]:
        """Return the kind of source, and its size."""
        return {"records": type(self._source).__name__, "num_rows": len(self._source)}
