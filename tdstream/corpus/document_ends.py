"""The ends of the documents in a token stream, looked up in files or in memory.

A document's *end* is the place just after its end-of-text token. Document d = 0, 1, 2, ... is tokens
end(d - 1) .. end(d) - 1. Tokens after the last end-of-text token are also a document.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.corpus.mapped_array import OpenArrays

Ends = NDArray[np.int64]


class DocumentEnds:
    """The ends of a stream's documents, by parts, such as shards.

    Part i is tokens offsets[i] .. offsets[i + 1] - 1 of the stream, offsets int64 [num_parts + 1]; counts[i]
    documents end in it, int64 [num_parts]. `load(i)` returns their ends, int64, ascending, 1 to the tokens of
    the part; it is called when needed, in each process, and must be picklable. `key` changes with the files
    that the ends are read from; it names files derived from them. `hold_token` says whether a token that is
    no text ends each document, or begins it.
    """

    def __init__(
        self,
        offsets: Ends,
        counts: Ends,
        load: Callable[[int], Ends],
        *,
        key: str = "",
        hold_token: bool = True,
    ) -> None:
        self.key, self.hold_token = key, hold_token
        self.total_tokens, self.num_ends = int(offsets[-1]), int(counts.sum())
        self._offsets: list[int] = offsets.tolist()
        self._firsts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self._load, self._loaded = load, OpenArrays()
        self._digest = hashlib.sha256(counts.astype("<i8").tobytes()).hexdigest()[:16]
        last = int(self.at(np.array([self.num_ends - 1]))[0])
        self.num_documents = self.num_ends + (last < self.total_tokens)

    @classmethod
    def of(cls, ends: Ends, total_tokens: int) -> DocumentEnds:
        """Return ends in memory: places in the stream, int64 [num_ends], ascending, 1 to total_tokens."""
        ends = np.asarray(ends, np.int64)
        key = hashlib.sha256(ends.astype("<i8").tobytes()).hexdigest()[:16]
        return cls(np.array([0, total_tokens]), np.array([len(ends)]), [ends].__getitem__, key=key)

    def in_part(self, part: int) -> Ends:
        """Return the ends in a part, counted in it."""
        return self._part(part)

    def identity(self) -> dict[str, Any]:
        """Return the number of documents, and a digest of how many end in each part."""
        return {"documents": self.num_documents, "ends": self._digest}

    def until(self, places: Ends) -> Ends:
        """Count the ends at or before places of the stream, [n]."""
        counts = np.empty(places.shape, np.int64)
        parts = np.searchsorted(self._offsets, places, side="right") - 1
        parts = np.minimum(parts, len(self._offsets) - 2)  # the place after the last token
        for part, here in _by_part(parts):
            local = places[here] - self._offsets[part]
            counts[here] = self._firsts[part] + self._part(part).searchsorted(local, side="right")
        return counts

    def at(self, numbers: Ends) -> Ends:
        """Return the ends of documents by number [n], int64 [n]; that of -1 is 0, the start of document 0."""
        if len(numbers) and numbers.min() >= 0 and numbers.max() < self.num_ends:
            return self._known(numbers)
        ends = np.where(numbers < 0, 0, self.total_tokens)
        known = (numbers >= 0) & (numbers < self.num_ends)
        ends[known] = self._known(numbers[known])
        return ends

    def _known(self, numbers: Ends) -> Ends:
        """Return the ends with these numbers, 0 to num_ends - 1."""
        if len(self._firsts) == 2:
            only: Ends = self._part(0)[numbers]
            return only
        parts = np.searchsorted(self._firsts, numbers, side="right") - 1
        found = np.empty(numbers.shape, np.int64)
        for part, here in _by_part(parts):
            found[here] = self._part(part)[numbers[here] - self._firsts[part]] + self._offsets[part]
        return found

    def between(self, first: int, last: int) -> Ends:
        """Return the ends of documents first .. last - 1, at most num_documents; int64 [last - first]."""
        pieces, number, stop = [np.empty(0, np.int64)], first, min(last, self.num_ends)
        while number < stop:
            part = int(np.searchsorted(self._firsts, number, side="right")) - 1
            before = int(self._firsts[part])
            piece = self._part(part)[number - before : stop - before]
            pieces.append(piece + self._offsets[part])
            number += len(piece)
        if first <= self.num_ends < last:
            pieces.append(np.array([self.total_tokens]))
        return np.concatenate(pieces)

    def token_range(self, first: int, last: int) -> tuple[int, int]:
        """Return the first token of documents first .. last - 1, and one more than their last token."""
        begin, end = self.at(np.array([first - 1, last - 1])).tolist()
        return begin, end

    def within(self, starts: Ends, length: int) -> tuple[Ends, Ends]:
        """Return the ends in rows of `length` tokens, by the rows' first tokens, [n].

        The result is the number of ends in each row, [n], and their places, row by row, [sum]: 1 (the row's
        first token is a document's last) to length. With ends 3 5 9, rows of 4 tokens from 4 and 1 are tokens
        4-7 and 1-4: counts are 1 2, places 1 (end 5) and 2 4 (ends 3 and 5).
        """
        part = self._part_of_all(starts, length)
        low, high = np.empty_like(starts), np.empty_like(starts)
        order = starts.argsort()  # searching for many places is several times faster in ascending order
        ordered = starts[order]
        if part is None:
            base, held = 0, None
            low[order], high[order] = self.until(ordered), self.until(ordered + length)
        else:
            base, held = self._offsets[part], self._part(part)
            edges = (ordered - base, ordered + (length - base))
            low[order], high[order] = (held.searchsorted(edge, side="right") for edge in edges)
        counts = high - low
        after = counts.cumsum()
        numbers = (low - after + counts).repeat(counts)
        numbers += np.arange(len(numbers))
        ends = self.at(numbers) if held is None else held[numbers]
        ends -= (starts - base).repeat(counts)
        return counts, ends

    def _part_of_all(self, starts: Ends, length: int) -> int | None:
        """Return the part that holds all tokens of all rows, or None."""
        if not len(starts):
            return None
        part = bisect_right(self._offsets, int(starts.min())) - 1
        return part if int(starts.max()) + length <= self._offsets[part + 1] else None

    def _part(self, part: int) -> Ends:
        if part not in self._loaded:
            empty = self._firsts[part] == self._firsts[part + 1]  # an empty file cannot be mapped
            self._loaded.add(part, np.empty(0, np.int64) if empty else self._load(part))
        ends: Ends = self._loaded[part]
        return ends


def _by_part(parts: NDArray[np.intp]) -> Iterator[tuple[int, Any]]:
    """Yield each distinct part of parts [n], and an index of its entries."""
    if len(parts) and parts.min() == parts.max():
        yield int(parts[0]), slice(None)  # the usual case, without sorting
        return
    order = parts.argsort(kind="stable")  # one sort, however many parts
    ordered = parts[order]
    for here in np.split(order, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1):
        if len(here):
            yield int(parts[here[0]]), here
