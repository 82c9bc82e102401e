"""Work out what is needed for many samples at once, where it is known which are read next.

Small arrays cost numpy far more per entry than large ones. What a reader works out ahead it would otherwise
work out for each batch; what it returns does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tdstream.nodes.base import RowEnds, SegmentTable

Ints = NDArray[np.int64]


F = TypeVar("F")
Known_co = TypeVar("Known_co", covariant=True)


class Parts(Protocol[Known_co]):
    """Something that is known of each of many samples."""

    def part(self, first: int, last: int) -> Known_co:
        """Return the same of samples first .. last - 1."""


@dataclass(frozen=True, slots=True)
class Ragged:
    """Some numbers of each sample, not the same number of them."""

    after: Ints
    """Shape [n + 1]: the first of each sample's entries, and the one behind the last."""
    entries: tuple[NDArray[Any], ...]
    """Arrays [after[n]], one sample after the other."""

    @classmethod
    def of(cls, counts: Ints, *entries: NDArray[Any]) -> Ragged:
        """Return the entries of samples that have so many each, [n]."""
        return cls(np.concatenate([[0], counts.cumsum()]), entries)

    @property
    def counts(self) -> Ints:
        """Shape [n]."""
        counts: Ints = self.after[1:] - self.after[:-1]
        return counts

    def part(self, first: int, last: int) -> Ragged:
        """Return those of samples first .. last - 1."""
        begin, end = self.after[first], self.after[last]
        return Ragged(self.after[first : last + 1] - begin, tuple(part[begin:end] for part in self.entries))


class EndsAhead:
    """The ends of documents in many rows, of which batches are taken.

    Args:
        seq_len: T.
        ends: The ends.
        size: Rows of a batch.
    """

    def __init__(self, seq_len: int, ends: RowEnds, size: int) -> None:
        self._counts, self._places, self._size = ends.counts, ends.places, size
        self._after: list[int] = [0, *ends.counts.cumsum().tolist()]
        self._table = SegmentTable(ends.counts, ends.places, seq_len, size)

    def part(self, first: int, last: int) -> RowEnds:
        """Return those of rows first .. last - 1, with their segments if they are a batch."""
        batch, misfit = divmod(first, self._size)
        known = None if misfit or last - first != self._size else self._table.batch(batch)
        return RowEnds(self._counts[first:last], self._places[self._after[first] : self._after[last]], known)


class Lookahead(Generic[F]):
    """Remembers what was worked out for samples that are to be read.

    Args:
        work: Works something out for the samples at indices [n].
        ahead: Makes of what was found for many samples something of which batches of so many are taken;
            None: it can be taken apart itself.
    """

    def __init__(self, work: Callable[[Ints], F], ahead: Callable[[F, int], Parts[F]] | None = None) -> None:
        self._work, self._to_parts = work, ahead
        self._coming: Ints = np.empty(0, np.int64)
        self._next = 0
        self._found: Parts[F] | None = None

    def expect(self, indices: Ints) -> None:
        """Be told which samples are read next, in this order; any shape."""
        self._coming, self._next, self._found = indices.ravel(), 0, None

    def of(self, indices: Ints) -> F:
        """Return what is known of the samples at indices [n], expected or not."""
        first, last = self._next, self._next + len(indices)
        # As bytes: for a few numbers that is several times faster than comparing arrays.
        if last > len(self._coming) or self._coming[first:last].tobytes() != indices.tobytes():
            return self._work(indices)
        if self._found is None:
            found: Any = self._work(self._coming)
            self._found = found if self._to_parts is None else self._to_parts(found, len(indices))
        self._next = last
        return self._found.part(first, last)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_coming": np.empty(0, np.int64), "_next": 0, "_found": None}
