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

Ints = NDArray[np.int64]


class Found(Protocol):
    """Something that is known of each of some samples."""

    def part(self, first: int, last: int) -> Any:
        """Return the same of samples first .. last - 1."""


F = TypeVar("F", bound=Found)


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


class Foresight(Generic[F]):
    """Remembers what was worked out for samples that are to be read.

    Args:
        work: Works something out for the samples at indices [n].
    """

    def __init__(self, work: Callable[[Ints], F]) -> None:
        self._work = work
        self._coming: Ints = np.empty(0, np.int64)
        self._next = 0
        self._found: F | None = None

    def expect(self, indices: Ints) -> None:
        """Be told which samples are read next, in this order; any shape."""
        self._coming, self._next, self._found = indices.ravel(), 0, None

    def of(self, indices: Ints) -> F:
        """Return what is known of the samples at indices [n], expected or not."""
        first, last = self._next, self._next + len(indices)
        if last > len(self._coming) or (self._coming[first:last] != indices).any():
            return self._work(indices)
        if self._found is None:
            self._found = self._work(self._coming)
        self._next = last
        part: F = self._found.part(first, last)
        return part

    def __getstate__(self) -> dict[str, Any]:
        return {"_work": self._work, "_coming": np.empty(0, np.int64), "_next": 0, "_found": None}
