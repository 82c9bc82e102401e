"""Divide a dataset into runs of files that can be opened one by one, and know how many records they hold."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Protocol

from tdstream.text.fields import ArrowTable, Rows, Table

_MOST = 256  # Opening one takes milliseconds, and a batch does not reach across two.


@dataclass(frozen=True, order=True, slots=True)
class Place:
    """A place between two records of a dataset."""

    segment: int
    """Which run of files."""
    row: int
    """Records of it that lie before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """The records that one task reads."""

    begin: Place
    end_segment: int
    """The first segment that is not read any more."""
    limit: int | None
    """Records to read at most; None means all up to end_segment."""


class Runs(Protocol):
    """A dataset in runs of records that can be read one by one."""

    @property
    def count(self) -> int:
        """Number of runs."""
        ...

    def tables(self, number: int, batch_size: int) -> Iterator[Table]:
        """Read a run, so many records at a time."""
        ...

    def rows(self, number: int) -> int:
        """Return how many records a run holds, after reading it where nothing else tells."""
        ...

    def leave(self, tables: Any) -> None:
        """Stop reading a run before its end."""
        ...


class FileSegments:
    """The files of a dataset in their order, in runs that can be opened one by one."""

    def __init__(self, stream: Any, rows_of_files: Sequence[int] | None, at_least: int = 1) -> None:
        """Divide a dataset.

        Args:
            stream: It, as an `IterableDataset`.
            rows_of_files: Records of each file, where that is cheap to know.
            at_least: RowSegments that are wanted; there are never more than files.
        """
        num_files = int(stream.num_shards) if hasattr(stream, "shard") else 1
        self._stream = stream
        self._reading: Any = None
        self.count = min(num_files, max(_MOST, at_least))
        """Number of segments."""
        self._rows: dict[int, int] = {}
        if rows_of_files is not None and len(rows_of_files) == num_files:
            borders = self._borders(num_files)
            self._rows = {
                number: sum(rows_of_files[borders[number] : borders[number + 1]])
                for number in range(self.count)
            }

    def tables(self, number: int, batch_size: int) -> Iterator[Table]:
        """Read a segment.

        Args:
            number: 0 .. count - 1.
            batch_size: Records of each table but the last one.
        """
        # Arrow tables, not Python records: nothing is converted but the text, and nothing is decoded twice.
        self._reading = self._open(number).with_format("arrow").iter(batch_size)
        return map(ArrowTable, self._reading)  # A generator would hold what it has handed out.

    def leave(self, tables: Any) -> None:  # noqa: ARG002 - it is what was opened last
        """Stop reading a segment before its end.

        Args:
            tables: What `tables` returned.
        """
        abandon(self._reading)

    def _open(self, number: int) -> Any:
        if self.count == 1:
            return self._stream
        return self._stream.shard(num_shards=self.count, index=number, contiguous=True)

    def rows(self, number: int) -> int:
        """Return how many records a segment holds, after reading it where nothing else tells.

        Args:
            number: 0 .. count - 1.
        """
        if number not in self._rows:
            self._rows[number] = sum(table.num_rows for table in self.tables(number, 1000))
        return self._rows[number]

    def _borders(self, num_files: int) -> list[int]:
        """Return the first file of each segment, as `shard` divides them: the first have one more."""
        each, more = divmod(num_files, self.count)
        return [number * each + min(number, more) for number in range(self.count + 1)]


def share_of(segments: Runs, task: int, num_tasks: int, max_samples: int | None) -> Share:
    """Return what one of several tasks reads; the shares in their order are the dataset in its order.

    Args:
        segments: The dataset.
        task: 0 .. num_tasks - 1.
        num_tasks: How many there are.
        max_samples: Records that all tasks together read at most.
    """
    if num_tasks == 1:
        return Share(begin=Place(0, 0), end_segment=segments.count, limit=max_samples)
    if segments.count >= num_tasks and max_samples is None:
        first, stop = (segments.count * number // num_tasks for number in (task, task + 1))
        return Share(begin=Place(first, 0), end_segment=stop, limit=None)
    rows = list(_rows_up_to(segments, max_samples))
    total = min(sum(rows), max_samples) if max_samples is not None else sum(rows)
    first, stop = (total * number // num_tasks for number in (task, task + 1))
    return Share(begin=_located(rows, first), end_segment=len(rows), limit=stop - first)


def _rows_up_to(segments: Runs, max_samples: int | None) -> Iterator[int]:
    total = 0
    for number in range(segments.count):
        if max_samples is not None and total >= max_samples:
            return
        rows = segments.rows(number)
        total += rows
        yield rows


def rows_of(segments: Runs, max_samples: int | None) -> list[int]:
    """Return how many records of each segment are read, up to the last one of which any are.

    Args:
        segments: The dataset.
        max_samples: Records to read at most, over all tasks.
    """
    rows = list(_rows_up_to(segments, max_samples))
    if max_samples is not None and sum(rows) > max_samples:
        rows[-1] -= sum(rows) - max_samples
    return rows


def _located(rows: list[int], record: int) -> Place:
    """Return the place before a record, which is counted over all segments."""
    for number, count in enumerate(rows):
        if record < count:
            return Place(number, record)
        record -= count
    return Place(len(rows), 0)


def abandon(tables: Any) -> None:
    """Leave a stream of `datasets` early.

    Args:
        tables: Its generator.
    """
    with warnings.catch_warnings():
        # pandas leaves the file of a reader that was not read to its end to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        tables.close()
        gc.collect()
    # The readers' threads end by themselves, but abort an interpreter that ends before them.
    time.sleep(0.1)


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
