"""Read a stream of records a batch at a time, and take from each the text that it promises."""

from __future__ import annotations

import gc
import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tdstream.errors import SourceError
from tdstream.preparation.hub import in_one_line
from tdstream.preparation.options import PrepareOptions


@dataclass(frozen=True, slots=True)
class TextBatch:
    """The texts of some records that follow each other."""

    texts: list[str]
    """One per good record."""
    num_records: int
    """Records read for it, bad ones too."""


class TextSource:
    """An opened dataset. Close it, or use it in a `with` statement."""

    def __init__(
        self, stream: Any, options: PrepareOptions, columns: list[str] | None, total: int | None
    ) -> None:
        self.total = _smallest(total, options.max_samples)
        """Records that there are to read; None where unknown."""
        self._stream: Any = stream
        self._options = options
        self._columns = columns
        self._tables: Any = None
        self._ended = False

    def batches(self) -> Iterator[TextBatch]:
        """Read the texts.

        Raises:
            SourceError: If a record holds no text (unless these are skipped), or reading stops on an error.
        """
        begin = 0
        for table in self._limited():
            yield self._batch(table, begin)
            begin += table.num_rows

    def close(self) -> None:
        """Give the stream up."""
        tables, self._tables, self._stream = self._tables, None, None
        if tables is not None and not self._ended:
            abandon(tables)

    def __enter__(self) -> TextSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _limited(self) -> Iterator[Any]:
        """Yield tables of at most batch_size records, max_samples records in all."""
        left = self._options.max_samples
        num_records = 0
        # Arrow tables, not Python records: nothing is converted but the text, and nothing is decoded twice.
        self._tables = self._stream.with_format("arrow").iter(self._options.batch_size)
        while left is None or num_records < left:
            table = self._next(num_records)
            if table is None:
                self._ended = True
                return
            table = table if left is None else table.slice(0, left - num_records)
            num_records += table.num_rows
            yield table

    def _next(self, num_records: int) -> Any:
        try:
            return next(self._tables, None)
        except Exception as error:  # It raises whatever its many readers raise.
            place = f"after record {num_records - 1:,}" if num_records else "before the first record"
            hint = "; skip_bad cannot go on where the reader itself stops" if self._options.skip_bad else ""
            raise SourceError(
                f"Dataset {self._options.dataset!r} cannot be read on {place} (counted from 0): "
                f"{in_one_line(error)}. Repair what follows there{hint}."
            ) from error

    def _batch(self, table: Any, begin: int) -> TextBatch:
        field = self._options.text_field
        if field not in table.column_names:
            raise missing_field(field, list(table.column_names))
        values = _values(table.column(field))
        if _all_text(values):
            return TextBatch(values, len(values))
        faults = [_fault(value) for value in values]
        if not self._options.skip_bad:
            place = next(place for place, fault in enumerate(faults) if fault)
            raise SourceError(self._letter(begin + place, faults[place], table.slice(place, 1)))
        texts = [value for value, fault in zip(values, faults, strict=True) if not fault]
        return TextBatch(texts, len(values))

    def _letter(self, record: int, fault: str, row: Any) -> str:
        others = [name for name in row.column_names if row.column(name)[0].is_valid]
        if row.num_columns == 1 and self._columns is not None:  # Only the text was read.
            others = self._columns
        named = ", ".join(name for name in others if name != self._options.text_field) or "none"
        return (
            f"Record {record:,} (counted from 0) of {self._options.dataset!r} has no text in "
            f"{self._options.text_field!r}: {fault}. Its other fields: {named}. "
            f"Repair it, or pass --skip_bad to leave such records out."
        )


def missing_field(field: str, columns: list[str]) -> SourceError:
    """Return the error for a text field that no record has.

    Args:
        field: The field that was asked for.
        columns: The fields that there are.
    """
    named = ", ".join(columns) or "none"
    return SourceError(
        f"The records have no field {field!r}; their fields are: {named}. Name one with --text_field."
    )


def abandon(tables: Any) -> None:
    """Leave a stream early.

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


def _smallest(*numbers: int | None) -> int | None:
    return min((number for number in numbers if number is not None), default=None)


def _values(column: Any) -> list[Any]:
    """Return a column's values; what is not valid UTF-8 becomes bytes."""
    is_json = isinstance(column.type, pa.BaseExtensionType) and "json" in column.type.extension_name
    if is_json:
        return [
            None if value is None else json.loads(value) for value in column.cast(pa.string()).to_pylist()
        ]
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return [_value(scalar) for scalar in column]


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return bytes(scalar.as_buffer())


def _all_text(values: list[Any]) -> bool:
    if not all(type(value) is str for value in values):
        return False
    try:
        "".join(values).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _fault(value: object) -> str:
    """Return what keeps a value from being text; empty if nothing does."""
    if value is None:
        return "it is None or absent"
    if not isinstance(value, str):
        return f"it holds {type(value).__name__}"
    return "" if _all_text([value]) else "it holds half of a surrogate pair, which stands for no character"
