"""How text is read and tokenized, whatever its tokens become."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tdstream.sources.kinds import is_dataset
from tdstream.text.counted_records import CountedRecords
from tdstream.text.dataset_records import DatasetRecords
from tdstream.text.indexed_records import IndexedRecords
from tdstream.text.records import Records


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """How text becomes tokens; the fields are `build`'s arguments."""

    tokenizer: Any
    text_field: str = "text"
    encoder: str = "auto"
    shuffle_buffer: int | None = None
    num_proc: int = 1


def records_of(source: Any) -> Records:
    """Return the records of a source that is read from its beginning to its end."""
    if is_dataset(source, "IterableDataset"):
        return DatasetRecords(source)
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return IndexedRecords(source)
    return CountedRecords(source)
