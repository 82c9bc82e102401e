"""Stretches of one document in one row: of a batch, and of many batches at once.

A batch is flattened, [B * T], and falls into *segments*. A document that goes on in the next row is another
segment there, and padding at a row's end is one as well.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Segments(NamedTuple):
    """The segments of a batch."""

    borders: NDArray[np.int32]
    """Shape [segments + 1]: 0, and where each segment ends in the flattened batch, ascending."""
    starts: Ints
    """Shape [segments]: where each begins."""
    lengths: Ints
    """Shape [segments]: its tokens."""
    numbers: NDArray[np.int32]
    """Shape [segments]: 0, 1, 2, ... within its row."""
    lasts: Ints
    """Shape [ends]: the last tokens of documents that end."""
    longest: int
    """Tokens of the longest one."""

    @classmethod
    def of_borders(cls, borders: NDArray[np.int32], seq_len: int) -> Segments:
        """Return the segments between borders, of which the last may be repeated; without `lasts`."""
        starts = borders[:-1].astype(np.int64)
        lengths = borders[1:] - starts
        of_row = starts.searchsorted(starts // seq_len * seq_len)  # the first segment of each one's row
        numbers = (np.arange(len(starts)) - of_row).astype(np.int32)
        return cls(borders, starts, lengths, numbers, starts[:0], 0)


class SegmentTable:
    """The segments of many batches, worked out together: small arrays cost numpy far more per entry.

    Args:
        counts: Documents that end in each row, [rows].
        places: Where: 1 to T, one row after the other, ascending in each, [ends].
        seq_len: T.
        size: B; batches are rows 0 .. B - 1, B .. 2 B - 1, ...; the last one may have fewer.
    """

    def __init__(self, counts: Ints, places: Ints, seq_len: int, size: int) -> None:
        batch_rows = np.arange(0, len(counts), size)
        row = np.arange(len(counts)).repeat(counts)  # of each end
        base = row // size * (size * seq_len)  # the first token of its batch
        self._lasts = row * seq_len + places - 1 - base
        inside = places < seq_len  # an end at the row's end is a border anyway
        row, places = row[inside], places[inside]
        per_row = 1 + np.bincount(row, minlength=len(counts))
        firsts = per_row.cumsum() - per_row  # the first segment of each row
        starts = (np.arange(len(counts)) * seq_len).repeat(per_row)
        starts[np.arange(len(row)) + row + 1] += places
        self._lengths = np.diff(starts, append=len(counts) * seq_len)
        self._numbers = (np.arange(len(starts)) - firsts.repeat(per_row)).astype(np.int32)
        batch = starts // (size * seq_len)  # of each segment
        self._starts = starts - batch * (size * seq_len)
        self._borders = np.empty(len(starts) + len(batch_rows), np.int32)
        self._borders[np.arange(len(starts)) + batch] = self._starts
        self._bounds: list[int] = [*firsts[batch_rows].tolist(), len(starts)]
        last = np.array(self._bounds[1:]) - 1  # the last segment of each batch
        self._borders[last + np.arange(len(batch_rows)) + 1] = self._starts[last] + self._lengths[last]
        ends = np.concatenate(([0], counts.cumsum()))
        self._end_bounds: list[int] = [*ends[batch_rows].tolist(), int(ends[-1])]
        self._longest: list[int] = np.maximum.reduceat(self._lengths, firsts[batch_rows]).tolist()

    def batch(self, number: int) -> Segments:
        """Return the segments of one batch."""
        first, last = self._bounds[number : number + 2]
        first_end, last_end = self._end_bounds[number : number + 2]
        return Segments(
            self._borders[first + number : last + number + 1],
            self._starts[first:last],
            self._lengths[first:last],
            self._numbers[first:last],
            self._lasts[first_end:last_end],
            self._longest[number],
        )
