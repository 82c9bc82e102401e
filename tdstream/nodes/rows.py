"""Rows on their way from a reader to a batch, and the ends of documents in them.

A batch of B rows, flattened to [B * T], consists of *segments*: stretches of one document in one row. A
document that continues in the next row has another segment there; padding at a row's end is also a segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tdstream.corpus.shard_reader import Tokens

Ints = NDArray[np.int64]


class RowSegments(NamedTuple):
    """The segments of a batch."""

    borders: NDArray[np.int32]
    """Shape [segments + 1]: 0, and where each segment ends in the flattened batch, ascending."""
    starts: Ints
    """Shape [segments]: where each segment begins."""
    lengths: Ints
    """Shape [segments]: tokens of each segment."""
    numbers: NDArray[np.int32]
    """Shape [segments]: 0, 1, 2, ... in each row."""
    lasts: Ints
    """Shape [ends]: the places of the last tokens of documents."""
    longest: int
    """Tokens of the longest segment."""

    @classmethod
    def from_borders(cls, borders: NDArray[np.int32], seq_len: int) -> RowSegments:
        """Return the segments between borders, the last of which may be repeated; without `lasts`."""
        starts = borders[:-1].astype(np.int64)
        lengths = borders[1:] - starts
        row_firsts = starts.searchsorted(starts // seq_len * seq_len)  # the first segment of the same row
        numbers = (np.arange(len(starts)) - row_firsts).astype(np.int32)
        return cls(borders, starts, lengths, numbers, starts[:0], 0)


@dataclass(frozen=True, slots=True)
class RowEnds:
    """Where documents end in rows, from an index, never guessed from token ids."""

    counts: Ints
    """Shape [B]: documents that end in each row, among its T inputs."""
    places: Ints
    """Shape [sum of counts], row by row, ascending in each: 1 (the first input is a document's last token) to
    T (the last input is one, and the row's last label belongs to the next document)."""
    known: RowSegments | None = None
    """The segments of these rows, if they are known already."""

    @classmethod
    def from_lengths(cls, lengths: NDArray[np.int32], seq_len: int) -> RowEnds:
        """Return the ends in rows of one document each, by MarkedRows' lengths, [B]."""
        ends = lengths <= seq_len
        return cls(ends.astype(np.int64), lengths[ends].astype(np.int64))

    def segments(self, seq_len: int) -> RowSegments:
        """Return the segments of the rows."""
        return self.known or EndsPlan(self, seq_len, (0, len(self.counts))).segments(0)


class EndsPlan:
    """The ends and segments in the rows of many items, found together, as numpy is slow on small arrays.

    Item k is rows bounds[k] .. bounds[k + 1] - 1, at least one. With T = 4, bounds (0, 2, 4), counts
    [1 1 0 2] and places [2 4 1 3], where letters are documents:

        item 0   a a b b | b b b b     borders 0 2 4 8     starts 0 2 4     numbers 0 1 0     lasts 1 7
        item 1   c c c c | c d d e     borders 0 4 5 7 8   starts 0 4 5 7   numbers 0 0 1 2   lasts 4 6
    """

    def __init__(self, ends: RowEnds, seq_len: int, bounds: Sequence[int]) -> None:
        self._ends, self._rows = ends, bounds
        counts, places, begins = ends.counts, ends.places, np.array(bounds[:-1])
        sizes = np.diff(bounds)
        items = np.arange(len(sizes)).repeat(sizes)  # of each row
        own_rows = np.arange(len(counts)) - begins[items]  # the number of each row in its item
        row = np.arange(len(counts)).repeat(counts)  # of each end
        self._lasts = own_rows[row] * seq_len + places - 1
        inside = places < seq_len  # the end of a row is always a border
        row, places = row[inside], places[inside]
        per_row = 1 + np.bincount(row, minlength=len(counts))
        firsts = per_row.cumsum() - per_row  # the first segment of each row
        self._starts = (own_rows * seq_len).repeat(per_row)
        self._starts[np.arange(len(row)) + row + 1] += places
        self._numbers = (np.arange(len(self._starts)) - firsts.repeat(per_row)).astype(np.int32)
        item_firsts = firsts[begins]  # the first segment of each item
        self._bounds: list[int] = [*item_firsts.tolist(), len(self._starts)]
        borders = np.arange(len(self._starts)) + items.repeat(per_row)  # one extra per item
        self._borders = np.empty(len(self._starts) + len(sizes), np.int32)
        self._borders[borders] = self._starts
        self._borders[np.array(self._bounds[1:]) + np.arange(len(sizes))] = sizes * seq_len
        self._lengths = self._borders[borders + 1] - self._starts
        end_bounds = np.concatenate(([0], counts.cumsum()))
        self._end_bounds: list[int] = end_bounds[np.array(bounds)].tolist()
        self._longest: list[int] = np.maximum.reduceat(self._lengths, item_firsts).tolist()

    def segments(self, item: int) -> RowSegments:
        """Return the segments of an item."""
        first, last = self._bounds[item : item + 2]
        first_end, last_end = self._end_bounds[item : item + 2]
        return RowSegments(
            self._borders[first + item : last + item + 1],
            self._starts[first:last],
            self._lengths[first:last],
            self._numbers[first:last],
            self._lasts[first_end:last_end],
            self._longest[item],
        )

    def read(self, item: int) -> RowEnds:
        """Return the ends in the rows of an item, with its segments."""
        counts = self._ends.counts[self._rows[item] : self._rows[item + 1]]
        first_end, last_end = self._end_bounds[item : item + 2]
        return RowEnds(counts, self._ends.places[first_end:last_end], self.segments(item))


@dataclass(frozen=True, slots=True)
class DocumentRows:
    """Rows that ignore documents, and where documents end in them."""

    tokens: Tokens
    """Shape [B, T + 1]."""
    ends: RowEnds

    def __len__(self) -> int:
        """Rows."""
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class MarkedRows:
    """Rows that respect documents, some of whose T + 1 places are padding.

    The last place holds the label of the last of the T inputs.
    """

    tokens: Tokens
    """Shape [B, T + 1]; places after a row's length hold the pad id."""
    lengths: NDArray[np.int32]
    """Shape [B]: tokens among a row's T + 1 places, never guessed from ids: T + 1 if the document continues
    after the inputs, at most T if it ends in them."""
    overlaps: NDArray[np.int32]
    """Shape [B]: how many of a row's first labels an earlier row of the document also has."""
    stops: NDArray[np.bool_]
    """Shape [B]: whether the row is its document's last; for a packed row, whether its last document ends."""
    ends: RowEnds | None = None
    """Where documents end in the rows, if the reader marks ends; padding follows the last one."""

    def __len__(self) -> int:
        """Rows."""
        return len(self.tokens)


SourceRows = Tokens | DocumentRows | MarkedRows
"""Rows from a reader; plain tokens have shape [B, T + 1]."""


@dataclass(frozen=True, slots=True)
class SourcedRows:
    """Rows of a mixture, and the source of each."""

    rows: SourceRows
    source_ids: NDArray[np.int32]
    """Shape [B]."""

    def __len__(self) -> int:
        """Rows."""
        return len(self.source_ids)


@dataclass(frozen=True, slots=True)
class FilledRows:
    """Rows of a batch whose last ones only make it as large as those of other ranks."""

    rows: SourceRows | SourcedRows
    fillers: int
    """How many rows at the end repeat a sample of the epoch and must not count."""

    def __len__(self) -> int:
        """Rows, fillers included."""
        return len(self.rows)


AnyRows = SourceRows | SourcedRows | FilledRows
"""Rows from a splitter."""
