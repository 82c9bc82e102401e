"""Texts for live streams and for memory, in blocks, from any place on, also across network failures."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from tdstream.core.state import IdentityState
from tdstream.text.dataset_records import DatasetStreamRecords
from tdstream.text.fields import Rows, find_fault, measure_texts, no_text_error
from tdstream.text.network import retry_transient
from tdstream.text.options import TextOptions
from tdstream.text.records import IterableRecords, OpenedRecords, Place, Records, SequenceRecords
from tdstream.text.source import SourceType, find_source_type


@dataclass(frozen=True, slots=True)
class TextBlock:
    """The texts of consecutive records."""

    begin: Place
    """The place before the first of them."""
    end: Place
    """The place after the last of them."""
    texts: list[str]


class TextStream(IdentityState):
    """Records, divided among streams, and the text in each.

    Args:
        records: All of them.
        text_field: The field of a record that holds its text, a path such as meta.title, or several with
            commas between them; a record that is a str needs none.
    """

    name = "source"

    def __init__(self, records: Records, *, text_field: str = "text") -> None:
        self.records, self.text_field = records, text_field

    def __repr__(self) -> str:
        rows, kind = self.records.num_rows, self.records.describe()["records"]
        return f"TextStream({kind}, {'?' if rows is None else f'{rows:,}'} records)"

    def blocks(
        self, epoch: int, stream: int, num_streams: int, begin: Place, block_records: int
    ) -> Generator[TextBlock, None, Place]:
        """Yield the texts that a stream reads, from a place on, in blocks of so many records.

        Returns the place of the source's end, which is before `begin` if it has fewer records.

        Raises:
            SourceError: If a record holds no text, or none in Unicode, or reading failed again and again.
        """
        whose = f", in stream {stream} of {num_streams}" if num_streams > 1 else ""
        reader = _Reader(self.records.share(stream, num_streams), epoch, begin, block_records)
        while True:
            place, records = reader.place, reader.read_block()
            if records is None:
                return reader.place
            yield TextBlock(place, reader.place, self._find_texts(records, place.records, whose))

    def state_dict(self) -> dict[str, Any]:
        """Return the source's identity."""
        return {"text_field": self.text_field, **self.records.describe()}

    def _find_texts(self, records: list[Any], first: int, whose: str) -> list[str]:
        texts, _ = Rows(records).texts(self.text_field)
        if measure_texts(texts) is not None:
            return texts
        bad, fault = next((row, fault) for row, text in enumerate(texts) if (fault := find_fault(text)))
        raise no_text_error(
            f"Record {first + bad:,} (counted from 0{whose}) of {self.records.describe()['records']}",
            self.text_field,
            fault,
            Rows(records[bad : bad + 1]).list_fields(),
            "Leave such records out of the source, or name another field with {text_field:...}.",
        )


class _Reader:
    """Records that are being read; after an error they are opened again at the same place."""

    def __init__(self, records: Records, epoch: int, begin: Place, block_records: int) -> None:
        self._records, self._epoch, self.place = records, epoch, begin
        self._block_records = block_records
        self._opened: OpenedRecords | None = None

    def read_block(self) -> list[Any] | None:
        """Return the next block of records; None at the end."""
        return retry_transient(self._try, f"the {self._records.describe()['records']}")

    def _try(self) -> list[Any] | None:
        opened, self._opened = self._opened, None  # one that has failed is not used again
        opened = opened or self._records.open(self._epoch, self.place, self._block_records)
        try:
            block = next(opened)
        except StopIteration:
            block = None
        self._opened, self.place = opened, opened.place()
        return block


def open_stream(options: TextOptions, *, in_memory: bool = False) -> TextStream:
    """Open a source that the caller has; `in_memory` reads all of it, once and in order, the fastest way."""
    source, source_type = options.given, find_source_type(options.given)
    if in_memory and source_type is SourceType.DATASET and source.format["type"] != "custom":
        # A transform ("custom") changes texts; without one these are the same records.
        source, source_type = source.with_format(None).to_iterable_dataset(), SourceType.DATASET_STREAM
    records: Records
    if source_type is SourceType.DATASET_STREAM:
        records = DatasetStreamRecords(source, text_field=options.text_field)
    elif source_type in (SourceType.LIST, SourceType.DATASET, SourceType.SEQUENCE):
        records = SequenceRecords(source)
    else:
        records = IterableRecords(source)
    return TextStream(records, text_field=options.text_field)
