"""Texts of one stream's records, in blocks, from any place on, also where a network breaks in between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tdstream.core.errors import SourceError
from tdstream.core.state import IdentityState
from tdstream.text.network import persistently
from tdstream.text.records import Opened, Place, Records


@dataclass(frozen=True, slots=True)
class TextBlock:
    """The texts of some records that follow each other."""

    begin: Place
    """Where the first of them lies."""
    end: Place
    """Where the next one lies."""
    texts: list[str]


class TextSource(IdentityState):
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
        return f"TextSource({kind}, {'?' if rows is None else f'{rows:,}'} records)"

    def blocks(
        self, epoch: int, stream: int, num_streams: int, begin: Place, block_records: int
    ) -> Iterator[TextBlock]:
        """Yield the texts that a stream reads, from a place on, of so many records at a time.

        Raises:
            SourceError: If a record holds no text, or none in Unicode, or reading failed again and again.
        """
        reading = _Reading(self.records.share(stream, num_streams), epoch, begin, block_records)
        while True:
            place, records = reading.place, reading.next_block()
            if records is None:
                return
            first = place.records
            texts = [self._text(record, first + number) for number, record in enumerate(records)]
            yield TextBlock(place, reading.place, texts)

    def state_dict(self) -> dict[str, Any]:
        """Return what is known of the source that tells it from others."""
        return {"text_field": self.text_field, **self.records.describe()}

    def _text(self, record: Any, number: int) -> str:
        text = record if isinstance(record, str) else self._field(record)
        if not isinstance(text, str):
            raise SourceError(_no_text(record, text, self.text_field, number))
        if not _is_unicode(text):
            raise SourceError(
                f"record {number:,} of a stream holds half of a surrogate pair, which stands for no "
                f"character and which no tokenizer takes. Repair it, or leave such records out of the source."
            )
        return text

    def _field(self, record: Any) -> Any:
        text = record.get(self.text_field) if isinstance(record, Mapping) else None
        return _deep_text(record, self.text_field) if text is None else text


class _Reading:
    """Records that are being read; after an error they are opened anew at the same place."""

    def __init__(self, records: Records, epoch: int, begin: Place, block_records: int) -> None:
        self._records, self._epoch, self.place = records, epoch, begin
        self._block_records = block_records
        self._opened: Opened | None = None

    def next_block(self) -> list[Any] | None:
        """Return the next block of records; None at the end."""
        return persistently(self._try, f"the {self._records.describe()['records']}")

    def _try(self) -> list[Any] | None:
        opened, self._opened = self._opened, None  # what has failed is not gone on with
        opened = opened or self._records.open(self._epoch, self.place, self._block_records)
        block = next(opened, None)
        self._opened, self.place = opened, opened.place()
        return block


def _is_unicode(text: str) -> bool:
    """Return whether a text has an encoding in UTF-8, which half of a surrogate pair has not."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _deep_text(record: Any, text_field: str) -> Any:
    """Return the text at a path, or of several fields joined; None if there is none."""
    if not isinstance(record, Mapping):
        return None
    # Loads pyarrow, which plain fields do without.
    from tdstream.text.fields import joined, parts_of, value_at  # noqa: PLC0415

    return joined([[value_at(record, part)] for part in parts_of(text_field, record)])[0]


def _no_text(record: Any, found: Any, text_field: str, number: int) -> str:
    if not isinstance(record, Mapping):
        kind = type(record).__name__
        return (
            f"record {number:,} of a stream is of type {kind}; expected a str, or a dict with a text in it."
        )
    if text_field not in record and found is None:
        fields = ", ".join(map(str, record)) or "none"
        return (
            f"record {number:,} of a stream has no field {text_field!r}; its fields are: {fields}. Name the "
            f"one that holds the text: text_field=..."
        )
    return (
        f"field {text_field!r} of record {number:,} of a stream is of type {type(found).__name__}, no str. "
        f"Leave such records out of the source, or name another text_field."
    )
