"""Best-fit packing of whole documents into rows, many documents per step.

The longest documents come first. All documents of one length are placed together, into the rows with the
least room that is enough, or else into new rows. Rows are grouped by the room left in them.

    T = 10, lengths 3 7 5 5 3 2:   7 opens row 0; 5 5 fill row 1; 3 fills row 0; 3 opens row 2, 2 joins it

Reference:
    H. Ding et al.: Fewer Truncations Improve Language Modeling (2024): best-fit packing of documents.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

VERSION = 1
"""Rises when the same documents are packed differently."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows filled with pieces of a token stream."""

    starts: Ints
    """Shape [pieces]: where each piece begins in the stream; row by row, ascending in each row."""
    lengths: NDArray[np.int32]
    """Shape [pieces]: tokens of each piece, up to T; T + 1 if it fills a row and its document continues."""
    rows: Ints
    """Shape [num_rows]: pieces of each row, at least 1; rows are in the order of their first pieces."""


def pack(begins: Ints, lengths: Ints, seq_len: int) -> Packed:
    """Pack documents into rows of seq_len tokens, after cutting longer ones into full rows.

    Documents begin at places `begins` of the stream, ascending, and have `lengths` tokens, both [n].
    """
    starts, pieces, stays = _pieces(begins, lengths, seq_len)
    rows = np.empty(len(starts), np.int64)
    full = pieces >= seq_len
    rows[~full], num_rows = best_fit(pieces[~full], seq_len)
    rows[full] = num_rows + np.arange(full.sum())
    rows, order = _in_order_of_first(rows)
    lengths32 = (pieces + (full & ~stays))[order].astype(np.int32)
    return Packed(starts[order], lengths32, np.bincount(rows) if len(rows) else rows)


def best_fit(lengths: Ints, room: int) -> tuple[Ints, int]:
    """Return the row of each piece, int64 [n], and the number of rows; lengths are 1 to room."""
    longest_first = np.argsort(-lengths, kind="stable")
    counts = np.bincount(lengths, minlength=1)
    open_rows = _OpenRows(room)
    placed = [np.empty(0, np.int64)]
    for length in np.flatnonzero(counts)[::-1].tolist():
        placed += open_rows.place(length, int(counts[length]))
    rows = np.empty(len(lengths), np.int64)
    rows[longest_first] = np.concatenate(placed)
    return rows, open_rows.count


class _OpenRows:
    """Rows grouped by the room left in them."""

    def __init__(self, room: int) -> None:
        self.count = 0
        self._room = room
        self._rows: dict[int, list[Ints]] = {}
        self._rooms = 0  # bit r is set if there are rows with room r

    def place(self, length: int, count: int) -> list[Ints]:
        """Place `count` pieces of one length; return the row of each, in several arrays."""
        placed = []
        while count:
            room, rows = self._tightest(length, count)
            fit = room // length
            full = min(count // fit, len(rows))
            placed.append(np.repeat(rows[:full], fit))
            self._put(room - fit * length, rows[:full])
            count, rows = count - full * fit, rows[full:]
            if len(rows) and 0 < count < fit:
                placed.append(np.repeat(rows[:1], count))
                self._put(room - count * length, rows[:1])
                count, rows = 0, rows[1:]
            self._put(room, rows)
        return placed

    def _tightest(self, length: int, count: int) -> tuple[int, Ints]:
        """Return the least room that is enough for a length and the rows that have it, or new rows."""
        enough = self._rooms >> length
        if enough:
            room = length + (enough & -enough).bit_length() - 1
            self._rooms ^= 1 << room
            return room, np.concatenate(self._rows.pop(room))
        first, self.count = self.count, self.count - (-count // (self._room // length))
        return self._room, np.arange(first, self.count)

    def _put(self, room: int, rows: Ints) -> None:
        if room and len(rows):
            self._rows.setdefault(room, []).append(rows)
            self._rooms |= 1 << room


def _pieces(begins: Ints, lengths: Ints, seq_len: int) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Cut documents into pieces; return starts, lengths, and whether each ends its document, [pieces].

    With T = 4, documents of 3 and 9 tokens at 0 and 3 become pieces of 3 | 4 4 1 tokens at 0 | 3 7 11.
    """
    counts = -(-lengths // seq_len)
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)  # in its document
    starts = np.repeat(begins, counts) + number * seq_len
    left = np.repeat(begins + lengths, counts) - starts
    return starts, np.minimum(left, seq_len), left <= seq_len


def _in_order_of_first(rows: Ints) -> tuple[Ints, NDArray[np.intp]]:
    """Renumber rows by their first pieces; return the new rows in ascending order, and the pieces' order.

    Rows 2 0 2 1 of pieces 0 1 2 3 become 0 1 0 2: rows 0 0 1 2, in the order of pieces 0 2 1 3.
    """
    first = np.empty(rows.max(initial=-1) + 1, np.int64)
    first[rows[::-1]] = np.arange(len(rows))[::-1]  # where a row occurs again, the last assignment stays
    new = np.empty_like(first)
    new[np.argsort(first)] = np.arange(len(first))
    order = np.argsort(new[rows], kind="stable")
    return new[rows][order], order
