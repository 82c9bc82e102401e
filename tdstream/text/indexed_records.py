"""Records in a sequence, such as a list or a map-style dataset, read as a stream from any place at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from tdstream.text.counted_records import Counted
from tdstream.text.records import Place


class IndexedRecords:
    """The records of a sequence; share i of n has i, i + n, i + 2 n, ...

    Args:
        source: Anything with `len()` and `[]`.
        index: Which share this is.
        count: How many shares there are.
    """

    def __init__(self, source: Sequence[Any], index: int = 0, count: int = 1) -> None:
        self._source, self._index, self._count = source, index, count

    @property
    def num_rows(self) -> int:
        """Records of this share."""
        return len(range(self._index, len(self._source), self._count))

    def share(self, index: int, count: int) -> IndexedRecords:
        """Return every count-th record, from record `index` on."""
        return IndexedRecords(self._source, index, count)

    def open(self, epoch: int, place: Place, block_records: int) -> Counted:  # noqa: ARG002 - all epochs are alike
        """Begin to read at a place."""
        places = range(self._index, len(self._source), self._count)
        rest = (self._source[i] for i in islice(places, place.records, None))
        return Counted(rest, place.records, block_records)

    def describe(self) -> dict[str, Any]:
        """Return the kind of source, and its size."""
        return {"records": type(self._source).__name__, "num_rows": len(self._source)}
