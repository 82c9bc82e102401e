"""Count the lengths of documents exactly, in memory that does not grow with their number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_COUNTED = 1 << 20  # Lengths below have a counter each; the few documents that are longer are listed.


@dataclass(frozen=True, kw_only=True, slots=True)
class LengthStatistics:
    """What the lengths of documents are, in tokens of their own, without the end-of-text token."""

    documents: int
    minimum: int
    median: float
    mean: float
    p99: int
    """The smallest length that 99 % of the documents do not exceed."""
    maximum: int
    histogram: tuple[tuple[int, int, int], ...]
    """(lowest length, highest length, documents) of each bin: 0, 1, 2-3, 4-7, 8-15, ..."""


class LengthCounter:
    """Takes lengths, and says what they are."""

    def __init__(self) -> None:
        self._counts: NDArray[np.int64] = np.zeros(1, np.int64)
        self._long: list[int] = []
        self._sum = 0

    def add(self, lengths: NDArray[np.int64]) -> None:
        """Count documents.

        Args:
            lengths: Their lengths, shape [num_documents].
        """
        self._sum += int(lengths.sum())
        self._long += lengths[lengths >= _COUNTED].tolist()
        added = np.bincount(lengths[lengths < _COUNTED])
        if len(added) > len(self._counts):
            self._counts = np.pad(self._counts, (0, len(added) - len(self._counts)))
        self._counts[: len(added)] += added

    def statistics(self) -> LengthStatistics | None:
        """Return what the lengths are; None if there were none."""
        lengths, counts = self._distinct()
        if not len(lengths):
            return None
        upto = np.cumsum(counts)  # documents that are not longer than each length
        documents = int(upto[-1])

        def ranked(rank: int) -> int:
            return int(lengths[np.searchsorted(upto, rank)])

        return LengthStatistics(
            documents=documents,
            minimum=int(lengths[0]),
            median=(ranked((documents + 1) // 2) + ranked(documents // 2 + 1)) / 2,
            mean=self._sum / documents,
            p99=ranked(-(-documents * 99 // 100)),
            maximum=int(lengths[-1]),
            histogram=_histogram(lengths, counts),
        )

    def _distinct(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the lengths that occur, rising, and how often each does."""
        short = np.flatnonzero(self._counts)
        long, times = np.unique(np.array(self._long, np.int64), return_counts=True)
        return np.concatenate([short, long]), np.concatenate([self._counts[short], times])


def _histogram(lengths: NDArray[Any], counts: NDArray[Any]) -> tuple[tuple[int, int, int], ...]:
    """Count in bins that double in width, from the first that is not empty to the last."""
    bins = np.frexp(lengths)[1]  # 0 -> 0, 1 -> 1, 2 and 3 -> 2, 4 to 7 -> 3, ...
    documents = np.bincount(bins, weights=counts).astype(np.int64)
    return tuple(
        (2 ** (number - 1) if number else 0, 2**number - 1, int(documents[number]))
        for number in range(int(bins[0]), int(bins[-1]) + 1)
    )
