"""Records of sources in memory and of functions, readable from any place on, in shares.

Two readers share the classes of this file. A live stream takes an interleaved share, a block at a time, and
keeps a `Place`. A preparation takes segments one after the other, as tables, and keeps a `SegmentPlace`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Protocol

from tdstream.core.errors import SourceError
from tdstream.text.fields import Rows, Table
from tdstream.text.source import check_new_iterator, is_function

logger = logging.getLogger(__name__)

_LOGGED_RECORDS = 10_000  # skipping so many takes long enough to say so
_SEGMENT_RECORDS = 10_000  # of a sequence; a batch does not reach across two

MOST_SEGMENTS = 256
"""Segments of files; opening one takes milliseconds, and a batch does not reach across two."""

MOST_RECORDS = 64
"""Records that are read, and tokenized, together at most; places lie between two such blocks."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place between two blocks of one live stream's records."""

    records: int = 0
    """Records of this stream before it."""
    state: dict[str, Any] = field(default_factory=dict)
    """The source's own name for this place; empty where records are counted."""


@dataclass(frozen=True, order=True, slots=True)
class SegmentPlace:
    """A place between two records of a text that is prepared."""

    segment: int
    row: int
    """Records of the segment before it."""


class OpenedRecords(Protocol):
    """Records that are being read, a block at a time."""

    def __next__(self) -> list[Any]:
        """Return the next block: at least one record."""
        ...

    def place(self) -> Place:
        """Return the place after the last block; an earlier one where the source has fewer records."""
        ...


class Records(Protocol):
    """Records that a live stream can read again and again, in the same order within an epoch."""

    @property
    def num_rows(self) -> int | None:
        """How many there are, if that is known without reading them."""
        ...

    def share(self, index: int, count: int) -> Records:
        """Return the records that stream `index` of `count` reads: each record is in exactly one share."""
        ...

    def open(self, epoch: int, place: Place, block_records: int) -> OpenedRecords:
        """Begin at a place, in blocks of so many records; a place is only valid for the same block size."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return the records' identity, in JSON types."""
        ...


class Segments(Protocol):
    """Records in segments that a preparation can open one by one."""

    @property
    def num_segments(self) -> int:
        """How many there are."""
        ...

    def read(self, segment: int, batch_size: int, first_row: int = 0) -> Iterator[Table]:
        """Read a segment after its first records, so many at a time."""
        ...

    def count_rows(self, segment: int) -> int:
        """Return how many records a segment has, reading it where nothing else tells."""
        ...

    def leave(self, tables: Any) -> None:
        """Stop reading a segment before its end; `tables` is what `read` returned."""
        ...


class SequenceRecords:
    """The records of a sequence; share i of n has i, i + n, i + 2 n, ..., segments have 10,000 each."""

    def __init__(self, source: Sequence[Any], index: int = 0, count: int = 1) -> None:
        self._source, self._index, self._count = source, index, count

    @property
    def num_rows(self) -> int:
        """Records of this share."""
        return len(range(self._index, len(self._source), self._count))

    def share(self, index: int, count: int) -> SequenceRecords:
        """Return every count-th record, from record `index` on."""
        return SequenceRecords(self._source, index, count)

    def open(self, epoch: int, place: Place, block_records: int) -> CountedBlocks:  # noqa: ARG002 - all epochs are alike
        """Begin at a place."""
        rows = range(self._index, len(self._source), self._count)
        rest = (self._source[row] for row in rows[place.records :])
        return CountedBlocks(rest, min(place.records, len(rows)), block_records)

    def describe(self) -> dict[str, Any]:
        """Return the type of the source, and its size."""
        return {"records": type(self._source).__name__, "num_rows": len(self._source)}

    @property
    def num_segments(self) -> int:
        """Segments of the whole sequence."""
        return max(1, -(-len(self._source) // _SEGMENT_RECORDS))

    def read(self, segment: int, batch_size: int, first_row: int = 0) -> Iterator[Table]:
        """Read a segment after its first records."""
        first = segment * _SEGMENT_RECORDS
        return self._read_range(first + first_row, first + self.count_rows(segment), batch_size)

    def _read_range(self, first: int, stop: int, batch_size: int) -> Iterator[Table]:
        for begin in range(first, stop, batch_size):
            yield Rows(self._source[begin : min(begin + batch_size, stop)])

    def count_rows(self, segment: int) -> int:
        """Return how many records a segment has."""
        return min(_SEGMENT_RECORDS, len(self._source) - segment * _SEGMENT_RECORDS)

    def leave(self, tables: Any) -> None:
        """Stop reading a segment before its end."""
        tables.close()


class IterableRecords:
    """The records of an iterable, or of a function that makes iterators; one segment.

    Share i of n has every n-th record from record i on, of all the records, which each stream reads.
    """

    num_rows: int | None = None
    num_segments = 1

    def __init__(
        self, source: Iterable[Any] | Callable[[], Iterable[Any]], index: int = 0, count: int = 1
    ) -> None:
        self._source, self._index, self._count = source, index, count
        self._peeked: tuple[list[Any], Iterator[Any]] | None = None
        self._num_records: int | None = None

    def share(self, index: int, count: int) -> IterableRecords:
        """Return every count-th record, from record `index` on."""
        return IterableRecords(self._source, index, count)

    def open(self, epoch: int, place: Place, block_records: int) -> CountedBlocks:  # noqa: ARG002 - all epochs are alike
        """Begin after so many records of this share; those before are read, and dropped."""
        if place.records >= _LOGGED_RECORDS:
            skipped = self._index + place.records * self._count
            logger.info("Reading %s records again, up to where the stream resumes.", f"{skipped:,}")
        records = islice(self._begin(), self._index, None, self._count)
        done = sum(1 for _ in islice(records, place.records))  # fewer if the source has become shorter
        return CountedBlocks(records, done, block_records)

    def describe(self) -> dict[str, Any]:
        """Return the name of the source; nothing more is known of it."""
        return {"records": self._name}

    @property
    def _name(self) -> str:
        return getattr(self._source, "__name__", type(self._source).__name__)

    def _begin(self) -> Iterator[Any]:
        source: Any = self._source
        if not is_function(source):
            return iter(source)
        made = source()
        if not hasattr(made, "__iter__"):
            raise SourceError(
                f"the source, {self._name}, returned a {type(made).__name__}; expected an iterator over "
                f"texts or records."
            )
        iterator: Iterator[Any] = iter(made)
        check_new_iterator(source, iterator)
        return iterator

    def peek(self, num_records: int) -> Rows:
        """Return the first records; the next reading continues after them and yields them as well.

        So nothing is lost where reading takes records away for good.
        """
        rest = self._begin()
        first = list(islice(rest, num_records))
        self._peeked = first, rest
        return Rows(first)

    def read(self, segment: int, batch_size: int, first_row: int = 0) -> Iterator[Table]:  # noqa: ARG002 - there is one
        """Read all records after the first ones."""
        first, rest = self._peeked or ([], self._begin())
        self._peeked = None
        records = islice(chain(first, rest), first_row, None)
        try:
            while block := list(islice(records, batch_size)):
                yield Rows(block)
        finally:
            close = getattr(rest, "close", None)
            if close is not None:
                close()

    def count_rows(self, segment: int) -> int:
        """Return how many records there are, after reading them all."""
        if self._num_records is None:
            self._num_records = sum(table.num_rows for table in self.read(segment, 1000))
        return self._num_records

    def leave(self, tables: Any) -> None:
        """Stop reading before the end."""
        tables.close()


class CountedBlocks:
    """An iterator over blocks of records, which counts them."""

    def __init__(self, records: Iterator[Any], done: int, block_records: int) -> None:
        self._records, self._done, self._block_records = records, done, block_records

    def __iter__(self) -> CountedBlocks:
        return self

    def __next__(self) -> list[Any]:
        """Return the next block."""
        block = list(islice(self._records, self._block_records))
        if not block:
            raise StopIteration
        self._done += len(block)
        return block

    def place(self) -> Place:
        """Return the place after the last block."""
        return Place(self._done)
