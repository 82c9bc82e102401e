"""Quantiles of durations in constant memory: a histogram whose bins grow by the same ratio."""

from __future__ import annotations

import math

_SHORTEST_S = 1e-7
_LONGEST_S = 1e5
_RATIO = 1.02
_LOG_RATIO = math.log(_RATIO)
_BINS = math.ceil(math.log(_LONGEST_S / _SHORTEST_S) / _LOG_RATIO) + 1


class Quantiles:
    """Counts durations in bins of 2 %: a quantile is off by 1 % at most, however many were added.

    What is shorter than 0.1 microseconds counts as nothing, what is longer than 28 hours as 28 hours.
    """

    def __init__(self) -> None:
        self._bins = [0] * _BINS  # bin b: above SHORTEST * RATIO^(b - 1), up to SHORTEST * RATIO^b
        self._count = 0

    def __len__(self) -> int:
        """Durations added."""
        return self._count

    def add(self, seconds: float) -> None:
        """Count a duration."""
        last = _BINS - 1
        place = 0 if seconds <= _SHORTEST_S else math.ceil(math.log(seconds / _SHORTEST_S) / _LOG_RATIO)
        self._bins[min(place, last)] += 1
        self._count += 1

    def at(self, share: float) -> float:
        """Return the shortest duration that at least this share of all does not exceed, in seconds.

        Args:
            share: Above 0, up to 1: 0.5 for the median. Without any duration the answer is 0.
        """
        wanted = math.ceil(share * self._count)
        below = 0
        for place, count in enumerate(self._bins):
            below += count
            if count and below >= wanted:
                return 0.0 if place == 0 else _SHORTEST_S * _RATIO ** (place - 0.5)
        return 0.0
