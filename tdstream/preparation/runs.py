"""Read records that a caller has in hand, run by run: those of a list or dataset, or of anything iterable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from tdstream.preparation.segments import abandon
from tdstream.preparation.tables import ArrowTable, Rows, Table

_ROWS = 10_000  # Of a run; a batch does not reach across two.


class ListRuns:
    """A list, or a map-style dataset, in runs of 10,000 records."""

    def __init__(self, num_records: int, read: Callable[[int, int, int], Iterator[Table]]) -> None:
        """Divide it.

        Args:
            num_records: How many there are.
            read: Given the first record, the one behind the last and a batch size, yields tables.
        """
        self._num_records = num_records
        self._read = read
        self.count = max(1, -(-num_records // _ROWS))
        """Number of runs."""

    def tables(self, number: int, batch_size: int) -> Iterator[Table]:
        """Read a run, so many records at a time."""
        return self._read(number * _ROWS, number * _ROWS + self.rows(number), batch_size)

    def rows(self, number: int) -> int:
        """Return how many records a run holds."""
        return min(_ROWS, self._num_records - number * _ROWS)

    def leave(self, tables: Any) -> None:
        """Stop reading a run before its end."""
        tables.close()


def list_runs(records: Sequence[Any]) -> ListRuns:
    """Return the runs of a list of records.

    Args:
        records: Texts, or dicts that hold one.
    """

    def read(first: int, stop: int, batch_size: int) -> Iterator[Table]:
        for begin in range(first, stop, batch_size):
            yield Rows(records[begin : min(begin + batch_size, stop)])

    return ListRuns(len(records), read)


def dataset_runs(dataset: Any, columns: list[str]) -> ListRuns:
    """Return the runs of a map-style dataset.

    Args:
        dataset: A `datasets.Dataset`.
        columns: Those to read.
    """
    narrow = dataset.select_columns(columns).with_format("arrow")

    def read(first: int, stop: int, batch_size: int) -> Iterator[Table]:
        for table in narrow.select(range(first, stop)).iter(batch_size):
            yield ArrowTable(table)

    return ListRuns(len(dataset), read)


class OneRun:
    """Records that can only be read from the first on, as one run.

    The first records are looked at once; the first reading goes on behind that look, so that nothing is lost
    even where every look takes something away.
    """

    count = 1

    def __init__(self, opened: Callable[[], Iterator[Any]], *, streams: bool = False) -> None:
        """Prepare to read.

        Args:
            opened: Returns an iterator over the records, a new one at each call.
            streams: Whether it is a stream of `datasets`, which must be left with care.
        """
        self._opened = opened
        self._streams = streams
        self._looked_at: tuple[list[Any], Iterator[Any]] | None = None
        self._rows: int | None = None

    def look(self, num_records: int) -> Rows:
        """Return the first records, without taking them away.

        Args:
            num_records: How many at most.
        """
        records = self._opened()
        first = list(islice(records, num_records))
        self._looked_at = first, records
        return Rows(first)

    def tables(self, number: int, batch_size: int) -> Iterator[Table]:  # noqa: ARG002 - there is one run
        """Read them, so many at a time."""
        first, rest = self._looked_at or ([], self._opened())
        self._looked_at = None
        records = chain(first, rest)
        try:
            while some := list(islice(records, batch_size)):
                yield Rows(some)
        finally:
            close = getattr(rest, "close", None)
            if close is not None:
                close()

    def rows(self, number: int) -> int:
        """Return how many records there are, after reading them all."""
        if self._rows is None:
            self._rows = sum(table.num_rows for table in self.tables(number, 1000))
        return self._rows

    def leave(self, tables: Any) -> None:
        """Stop reading before the end."""
        if self._streams:
            abandon(tables)
        else:
            tables.close()
