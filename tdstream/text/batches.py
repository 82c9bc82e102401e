"""Read a stream of records a batch at a time, and take from each the text that it promises."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import ConfigError, SourceError
from tdstream.text.fields import Table, listed
from tdstream.text.network import in_one_line
from tdstream.text.options import TextOptions
from tdstream.text.segments import Place, Runs, Share, rows_of

Task = tuple[int, int] | None
"""Number i and count n of a task that reads share i of n; None reads all."""
_SLICE = 1 << 20  # Characters encoded at once.
_MOST_BYTES = 4 << 20  # Of text in a batch: what an encoder makes of it is many times as large.


@dataclass(frozen=True, slots=True)
class TextBatch:
    """The texts of some records that follow each other."""

    texts: list[str]
    """One per good record."""
    num_records: int
    """Records read for it, bad ones too."""
    begin: Place
    """Where the first of these records lies."""
    rows: NDArray[np.int64]
    """Which of these records each text is from, counted from 0; shape [num_texts]."""
    sizes: NDArray[np.int64]
    """Bytes of each text in UTF-8, shape [num_texts]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What is known of a dataset beside its records."""

    files: list[str] = field(default_factory=list)
    """What it is read from."""
    identity: dict[str, Any] = field(default_factory=dict)
    """What tells it from others where there are no files; JSON types."""
    total: int | None = None
    """Records that there are to read; None where unknown."""
    columns: list[str] | None = None
    """The names of all fields, where only some of them are read."""


class TextSource:
    """An opened dataset. Close it, or use it in a `with` statement."""

    def __init__(
        self, runs: Runs, share: Share, options: TextOptions, facts: Facts, task: Task = None
    ) -> None:
        self.facts, self._task = facts, task
        self._runs: Runs | None = runs
        self._share = share
        self._options = options
        self._tables: Iterator[Table] | None = None
        self._ended = False
        self.begin = share.begin
        """Where the next record lies."""
        self._num_records = 0

    @property
    def total(self) -> int | None:
        """Records that there are to read; None where unknown."""
        numbers = [number for number in (self.facts.total, self._share.limit) if number is not None]
        return min(numbers, default=None)

    def go_to(self, place: Place, num_records: int) -> None:
        """Begin behind records that an earlier run has read.

        Args:
            place: Where.
            num_records: How many of them there are.
        """
        self.begin = place
        self._num_records = num_records

    @property
    def name(self) -> str:
        """What the dataset is called."""
        return self._options.dataset

    def count_rows(self) -> list[int]:
        """Return how many records of each run all tasks together read, after counting where need be.

        Raises:
            ConfigError: If the dataset is not on this machine: counting it would fetch all of it.
        """
        if not all(Path(file).exists() for file in self.facts.files):
            raise ConfigError(
                f"val_documents needs to know how many records dataset {self._options.dataset!r} has, which "
                f"would fetch all of it once more. Use val_fraction."
            )
        return [] if self._runs is None else rows_of(self._runs, self._options.max_samples)

    def batches(self) -> Iterator[TextBatch]:
        """Read the texts.

        Raises:
            SourceError: If a record holds no text (unless these are skipped), or reading stops on an error.
        """
        left = None if self._share.limit is None else self._share.limit - self._num_records
        for segment in range(self.begin.segment, self._share.end_segment):
            skip = self.begin.row if segment == self.begin.segment else 0
            left = yield from self._batches_of(segment, skip, left)

    def close(self) -> None:
        """Give the stream up."""
        tables, runs, self._tables, self._runs = self._tables, self._runs, None, None
        if tables is not None and runs is not None and not self._ended:
            runs.leave(tables)

    def __enter__(self) -> TextSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _batches_of(
        self, segment: int, skip: int, left: int | None
    ) -> Generator[TextBatch, None, int | None]:
        """Yield the texts of a segment behind its first records, and return how many may still be read."""
        if left == 0 or self._runs is None:
            return left
        self._tables, self._ended = self._runs.tables(segment, self._options.batch_size), False
        row = 0
        while left is None or left > 0:
            table = self._next()
            if table is None:
                self._ended = True
                break
            first, place, row = max(skip - row, 0), Place(segment, max(skip, row)), row + table.num_rows
            table = table.slice(first, left)
            num_records, pieces = table.num_rows, _pieces(self._batch(table, place))
            del table  # The texts are copies.
            yield from pieces if num_records else ()
            left = None if left is None else left - num_records
            self._num_records += num_records
        return left

    def _next(self) -> Table | None:
        try:
            return next(self._tables or iter(()), None)
        except Exception as error:  # It raises whatever its many readers raise.
            place = (
                f"after record {self._num_records - 1:,}" if self._num_records else "before the first record"
            )
            hint = "; skip_bad cannot go on where the reader itself stops" if self._options.skip_bad else ""
            raise SourceError(
                f"Dataset {self._options.dataset!r} cannot be read on {place} (counted from 0"
                f"{self._whose()}): {in_one_line(error)}. Repair what follows there{hint}."
            ) from error

    def _batch(self, table: Table, place: Place) -> TextBatch:
        values, missing = table.texts(self._options.text_field)
        if self._options.strip:
            values = [value.strip() if isinstance(value, str) else value for value in values]
        if missing and not self._num_records:  # Further on it may be absent, as in any record.
            raise missing_field(missing, table.names)
        sizes = _sizes(values)
        if sizes is not None:
            return TextBatch(values, len(values), place, np.arange(len(values)), sizes)
        faults = [_fault(value) for value in values]
        if not self._options.skip_bad:
            bad = next(number for number, fault in enumerate(faults) if fault)
            raise self._no_text(self._num_records + bad, faults[bad], table.slice(bad, 1))
        rows = np.flatnonzero([not fault for fault in faults])
        texts = [values[row] for row in rows]
        sizes = np.array([len(text.encode()) for text in texts], np.int64)
        return TextBatch(texts, len(values), place, rows, sizes)

    def _whose(self) -> str:
        return "" if self._task is None else f" in the share of task {self._task[0]}"

    def _no_text(self, record: int, fault: str, row: Table) -> SourceError:
        others = row.filled()
        if len(others) <= 1 and self.facts.columns is not None:  # Only the text was read.
            others = self.facts.columns
        named = listed(name for name in others if name != self._options.text_field)
        return SourceError(
            f"Record {record:,} (counted from 0{self._whose()}) of {self._options.dataset!r} has no text in "
            f"{self._options.text_field!r}: {fault}. Its other fields: {named}.",
            "Repair it, or pass {skip_bad} to leave such records out.",
        )


def missing_field(missing: list[str], names: str) -> SourceError:
    """Return the error for a text field that no record has.

    Args:
        missing: The fields that were asked for and are not there.
        names: The fields that there are.
    """
    named = " and ".join(map(repr, missing))
    return SourceError(
        f"The records have no field {named}; their fields are: {names}.", "Name one with {text_field:...}."
    )


def _pieces(batch: TextBatch) -> Iterator[TextBatch]:
    """Divide a batch that holds much text, between two texts."""
    ends = np.cumsum(batch.sizes)
    first = begin = 0
    while first < len(batch.texts):
        read = int(ends[first - 1]) if first else 0
        stop = max(int(np.searchsorted(ends, read + _MOST_BYTES, side="right")), first + 1)
        end = batch.num_records if stop == len(batch.texts) else int(batch.rows[stop])
        place = Place(batch.begin.segment, batch.begin.row + begin)
        rows, sizes = batch.rows[first:stop] - begin, batch.sizes[first:stop]
        yield TextBatch(_taken(batch.texts, first, stop), end - begin, place, rows, sizes)
        first, begin = stop, end
    if not batch.texts:
        yield batch


def _taken(texts: list[str], first: int, stop: int) -> list[str]:
    """Return some texts, and leave empty ones where they were, so that nothing else holds them."""
    taken, texts[first:stop] = texts[first:stop], [""] * (stop - first)
    return taken


def _sizes(values: list[Any]) -> NDArray[np.int64] | None:
    """Return the bytes of each text in UTF-8; None if one of the values is no text."""
    if not all(type(value) is str for value in values):
        return None
    try:
        sizes = [len(value) if value.isascii() else _size(value) for value in values]
    except UnicodeEncodeError:
        return None
    return np.array(sizes, np.int64)


def _size(text: str) -> int:
    """Return the bytes of a text in UTF-8; no copy of all of a long one is made."""
    return sum(len(text[begin : begin + _SLICE].encode()) for begin in range(0, len(text), _SLICE))


def _fault(value: object) -> str:
    """Return what keeps a value from being text; empty if nothing does."""
    if value is None:
        return "it is None or absent"
    if not isinstance(value, str):
        return f"it holds {type(value).__name__}"
    return (
        ""
        if _sizes([value]) is not None
        else "it holds half of a surrogate pair, which stands for no character"
    )
