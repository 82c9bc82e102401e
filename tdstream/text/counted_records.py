"""Records that can only be read from the beginning: a place is found by counting."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from tdstream.checks import refuse_spent
from tdstream.errors import SourceError
from tdstream.text.records import Place

logger = logging.getLogger(__name__)

_WORTH_A_LINE = 10_000  # records passed over, from which on somebody may wonder what takes so long


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

    def open(self, epoch: int, place: Place, block_records: int) -> Counted:  # noqa: ARG002 - all epochs are alike
        """Begin to read behind so many records of this share; those before are read, and left."""
        passed = self._index + place.records * self._count
        if place.records >= _WORTH_A_LINE:
            logger.info("Going through %s records to where the stream goes on.", f"{passed:,}")
        return Counted(islice(self._begin(), passed, None, self._count), place.records, block_records)

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
            refuse_spent(self._source, iterator)
        if iterator is self._source:
            raise SourceError(
                f"a {type(self._source).__name__} can be read only once, so no second epoch and no resume is "
                f"possible. Pass the function that makes it, or an object whose __iter__ begins anew."
            )
        return iterator


class Counted:
    """An iterator whose records are counted, in blocks."""

    def __init__(self, records: Iterator[Any], done: int, block_records: int) -> None:
        self._records, self._done, self._block_records = records, done, block_records

    def __iter__(self) -> Counted:
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
