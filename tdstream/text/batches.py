"""Texts for a preparation: batches of one task's share, each text with the place of its record."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import ConfigError, SourceError
from tdstream.text.fields import Table, find_fault, measure_texts, missing_field_error, no_text_error
from tdstream.text.network import in_one_line
from tdstream.text.options import TextOptions
from tdstream.text.provenance import Provenance
from tdstream.text.records import SegmentPlace, Segments

Task = tuple[int, int] | None
"""Number i and count n of a task that reads share i of n; None reads all."""
FilesReached = tuple[int, int]
"""How many files are read whole, and how many at least in part; files are read in order."""
_MOST_BYTES = 4 << 20  # of text in a batch: what an encoder makes of it is many times as large


@dataclass(frozen=True, slots=True)
class TextBatch:
    """The texts of consecutive records."""

    texts: list[str]
    """One per good record."""
    num_records: int
    """Records read for it, bad ones too."""
    begin: SegmentPlace
    """The place before the first of these records."""
    rows: NDArray[np.int64]
    """Which of these records each text is from, counted from 0; shape [num_texts]."""
    sizes: NDArray[np.int64]
    """Bytes of each text in UTF-8, shape [num_texts]."""
    bytes_read: int | None = None
    """Bytes of this share's files read so far, compressed as they are; None where unknown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What is known of a source beside its records."""

    files: list[str] = field(default_factory=list)
    """What it is read from."""
    identity: dict[str, Any] = field(default_factory=dict)
    """Tells a source without files from others; JSON types."""
    provenance: Provenance = field(default_factory=Provenance)
    """What stands behind a source whose records cannot all be compared."""
    total: int | None = None
    """Records to read; None where unknown."""
    num_bytes: int | None = None
    """Bytes of the files, compressed as they are; None where unknown."""
    columns: list[str] | None = None
    """The names of all fields, where only some of them are read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """The records that one task reads."""

    begin: SegmentPlace
    end_segment: int
    """The first segment that is not read any more."""
    limit: int | None
    """Records to read at most; None means all before end_segment."""


def find_share(segments: Segments, task: Task, max_samples: int | None) -> Share:
    """Return what a task reads; the shares in order are the dataset in its order.

    All tasks together read at most max_samples. Each takes whole segments where there are enough: of 3
    segments two tasks take 1 and 2. Else each takes records: of segments with 4, 4 and 2 records four tasks
    take records 0-1, 2-4, 5-6 and 7-9.
    """
    number, num_tasks = task or (0, 1)
    count = segments.num_segments
    if num_tasks == 1:
        return Share(begin=SegmentPlace(0, 0), end_segment=count, limit=max_samples)
    if count >= num_tasks and max_samples is None:
        first, stop = (count * end // num_tasks for end in (number, number + 1))
        return Share(begin=SegmentPlace(first, 0), end_segment=stop, limit=None)
    rows = count_rows(segments, max_samples)
    first, stop = (sum(rows) * end // num_tasks for end in (number, number + 1))
    return Share(begin=_find_place(rows, first), end_segment=len(rows), limit=stop - first)


def count_rows(segments: Segments, max_samples: int | None) -> list[int]:
    """Return how many records of each segment are read, up to the last of which any are."""
    rows: list[int] = []
    left = max_samples
    for segment in range(segments.num_segments):
        if left is not None and left <= 0:
            break
        found = segments.count_rows(segment)
        rows.append(found if left is None else min(found, left))
        left = None if left is None else left - found
    return rows


def _find_place(rows: list[int], record: int) -> SegmentPlace:
    """Return the place before a record, which is counted over all segments."""
    for segment, count in enumerate(rows):
        if record < count:
            return SegmentPlace(segment, record)
        record -= count
    return SegmentPlace(len(rows), 0)


@runtime_checkable
class OnDisk(Protocol):
    """Segments that know how many bytes of their files are read."""

    @property
    def bytes_read(self) -> int:
        """Bytes of all files up to about where the last table ends."""
        ...

    def count_bytes(self, segments: int) -> int:
        """Return the bytes of the files of the first segments."""
        ...


@runtime_checkable
class InFiles(Protocol):
    """Segments that are runs of whole files."""

    def find_file(self, segment: int) -> int:
        """Return the number of a segment's first file."""
        ...


class TextBatches:
    """An opened text. Close it, or use it in a `with` statement."""

    def __init__(self, segments: Segments, options: TextOptions, facts: Facts, task: Task = None) -> None:
        self.facts, self._task = facts, task
        self._segments: Segments | None = segments
        self._share = find_share(segments, task, options.max_samples)
        self._options = options
        self._tables: Iterator[Table] | None = None
        self._ended = False
        self.begin = self._share.begin
        """The place before the next record."""
        self._num_records = 0
        self._segment = self.begin.segment  # the last of which a record was read
        self._bytes_before, self.total_bytes = _find_bytes(segments, self._share)
        """Bytes of the files to read, compressed as they are; None if unknown, or if only a part is read."""

    @property
    def total(self) -> int | None:
        """Records to read; None where unknown."""
        known = None if self._task else self.facts.total
        return min((number for number in (known, self._share.limit) if number is not None), default=None)

    @property
    def name(self) -> str:
        """The name of the dataset."""
        return self._options.dataset

    @property
    def is_on_disk(self) -> bool:
        """Whether it is read from files of this machine, any part of it as often as asked for."""
        segments: object = self._segments
        return isinstance(segments, OnDisk)

    def choose_segments(self, most: int) -> list[int]:
        """Return some segments of the share, evenly spaced; 10 in 4 are 0, 2, 5 and 7."""
        first, stop = self._share.begin.segment, max(self._share.end_segment, self._share.begin.segment + 1)
        count = min(most, stop - first) if self.is_on_disk else 1
        return [first + (stop - first) * number // count for number in range(count)]

    def find_begin(self, segment: int) -> int:
        """Return the bytes of the share's files before a segment; 0 where unknown."""
        segments: object = self._segments
        return segments.count_bytes(segment) - self._bytes_before if isinstance(segments, OnDisk) else 0

    def open_segment(self, segment: int) -> TextBatches:
        """Return the text from a segment on, with a place of its own; this one must not be read meanwhile."""
        if self._segments is None:
            raise ValueError("The text is closed.")
        part = TextBatches(self._segments, replace(self._options, max_samples=None), self.facts)
        part._bytes_before = self._bytes_before
        part._share = replace(part._share, begin=SegmentPlace(segment, 0), end_segment=segment + 1)
        part.begin = part._share.begin
        return part

    def go_to(self, place: SegmentPlace, num_records: int) -> None:
        """Begin at a place, after so many records that an earlier run has read."""
        self.begin, self._num_records, self._segment = place, num_records, place.segment

    def count_rows(self) -> list[int]:
        """Return how many records of each segment all tasks together read, counting where necessary.

        Raises ConfigError if the dataset is not on this machine: counting would fetch all of it.
        """
        if not all(Path(file).exists() for file in self.facts.files):
            raise ConfigError(
                f"val_documents needs the number of records of dataset {self.name!r}, which would fetch all "
                f"of it once more. Use val_fraction."
            )
        return [] if self._segments is None else count_rows(self._segments, self._options.max_samples)

    def find_files_reached(self) -> FilesReached | None:
        """Return which files max_samples lets all tasks read, as of now; None for all of them.

        A file whose last record is also the last that was read counts as read in part.
        """
        limit, segments, last = self._options.max_samples, self._segments, self._segment
        if limit is None or segments is None:
            return None
        if self._task is None:
            if self._num_records < limit or (self.facts.total is not None and self.facts.total <= limit):
                return None
        else:
            rows = count_rows(segments, limit)
            if sum(rows) < limit:
                return None
            last = len(rows) - 1
        opened: object = segments
        if not isinstance(opened, InFiles):
            return (0, len(self.facts.files))
        return (opened.find_file(last), opened.find_file(last + 1))

    def batches(self) -> Iterator[TextBatch]:
        """Read the texts; raise SourceError for a record without text, unless these are skipped."""
        left = None if self._share.limit is None else self._share.limit - self._num_records
        for segment in range(self.begin.segment, self._share.end_segment):
            skip = self.begin.row if segment == self.begin.segment else 0
            left = yield from self._read_segment(segment, skip, left)

    def close(self) -> None:
        """Stop reading."""
        tables, segments, self._tables, self._segments = self._tables, self._segments, None, None
        if tables is not None and segments is not None and not self._ended:
            segments.leave(tables)

    def __enter__(self) -> TextBatches:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_segment(
        self, segment: int, skip: int, left: int | None
    ) -> Generator[TextBatch, None, int | None]:
        """Yield the texts of a segment after its first records, and return how many may still be read."""
        if left == 0 or self._segments is None:
            return left
        self._segment = segment
        self._tables, self._ended = self._segments.read(segment, self._options.batch_size, skip), False
        row = skip
        while left is None or left > 0:
            table = self._next_table()
            if table is None:
                self._ended = True
                break
            place = SegmentPlace(segment, row)
            row += table.num_rows
            table = table.slice(0, left)
            batch = replace(self._make_batch(table, place), bytes_read=self._count_bytes_read())
            num_records, pieces = table.num_rows, _split_batch(batch)
            del batch
            del table  # the texts are copies
            yield from pieces if num_records else ()
            left = None if left is None else left - num_records
            self._num_records += num_records
        return left

    def _count_bytes_read(self) -> int | None:
        segments: object = self._segments
        if self.total_bytes is None or not isinstance(segments, OnDisk):
            return None
        return segments.bytes_read - self._bytes_before

    def _next_table(self) -> Table | None:
        try:
            return next(self._tables or iter(()), None)
        except Exception as error:  # whatever the readers of `datasets` and a caller's functions raise
            done = self._num_records
            place = f"after record {done - 1:,}" if done else "before the first record"
            repair = "Repair what follows there"
            if self._options.skip_bad:
                repair += "; skip_bad cannot continue where the reader itself stops"
            raise SourceError(
                f"Dataset {self.name!r} cannot be read on {place} ({self._counted}): {in_one_line(error)}. "
                f"{repair}."
            ) from error

    def _make_batch(self, table: Table, place: SegmentPlace) -> TextBatch:
        values, missing = table.texts(self._options.text_field)
        if self._options.strip:
            values = [value.strip() if isinstance(value, str) else value for value in values]
        if missing and not self._num_records:  # further on it may be absent, as in any record
            raise missing_field_error(missing, table.list_fields())
        sizes = measure_texts(values)
        if sizes is not None:
            return TextBatch(values, len(values), place, np.arange(len(values)), sizes)
        faults = [find_fault(value) for value in values]
        if not self._options.skip_bad:
            bad = next(row for row, fault in enumerate(faults) if fault)
            raise self._no_text_error(self._num_records + bad, faults[bad], table.slice(bad, 1))
        rows = np.flatnonzero([not fault for fault in faults])
        texts = [values[row] for row in rows]
        sizes = np.array([len(text.encode()) for text in texts], np.int64)
        return TextBatch(texts, len(values), place, rows, sizes)

    @property
    def _counted(self) -> str:
        return "counted from 0" + ("" if self._task is None else f" in the share of task {self._task[0]}")

    def _no_text_error(self, record: int, fault: str, row: Table) -> SourceError:
        fields = row.list_filled()
        if len(fields) <= 1 and self.facts.columns is not None:  # only the text was read
            fields = self.facts.columns
        place = row.locate(0)
        where = f"Record {record:,} ({self._counted}) of {self.name!r}" + (f", {place}," if place else "")
        hint = "Repair it, or pass {skip_bad} to leave such records out."
        return no_text_error(where, self._options.text_field, fault, fields, hint)


def _find_bytes(segments: Segments, share: Share) -> tuple[int, int | None]:
    """Return the bytes of the files before a share, and of its own."""
    if share.limit is not None or not isinstance(segments, OnDisk):
        return 0, None
    before = segments.count_bytes(share.begin.segment)
    return before, segments.count_bytes(share.end_segment) - before


def _split_batch(batch: TextBatch) -> Iterator[TextBatch]:
    """Divide a batch with much text, between two texts."""
    ends = np.cumsum(batch.sizes)
    first = begin = 0
    while first < len(batch.texts):
        read = int(ends[first - 1]) if first else 0
        stop = max(int(np.searchsorted(ends, read + _MOST_BYTES, side="right")), first + 1)
        end = batch.num_records if stop == len(batch.texts) else int(batch.rows[stop])
        place = SegmentPlace(batch.begin.segment, batch.begin.row + begin)
        rows, sizes = batch.rows[first:stop] - begin, batch.sizes[first:stop]
        yield TextBatch(_take(batch.texts, first, stop), end - begin, place, rows, sizes, batch.bytes_read)
        first, begin = stop, end
    if not batch.texts:
        yield batch


def _take(texts: list[str], first: int, stop: int) -> list[str]:
    """Return some texts, and leave empty ones in their place, so that nothing else holds them."""
    taken, texts[first:stop] = texts[first:stop], [""] * (stop - first)
    return taken
