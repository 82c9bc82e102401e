"""The places of one period of an interleaving, and how many of them each source has."""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

PERIOD = 1000
"""Places of a period."""
MAX_PERIODS = 2**16
"""The most periods after which all shares have come out even; shares that would need more are rounded."""


def shares(weights: Ints) -> tuple[int, Ints, bool]:
    """Return (M, shares of M periods in places, whether they are exact); every source has at least one."""
    total = int(weights.sum())
    common = int(np.gcd.reduce(weights))
    periods = total // gcd(total, PERIOD * common)
    if periods <= MAX_PERIODS:
        return periods, PERIOD * periods * (weights // common) // (total // common), True
    places = PERIOD * MAX_PERIODS
    units, lost = np.divmod(places * weights, total)
    units[(units == 0) & (weights > 0)] = 1
    short = places - int(units.sum())
    if short > 0:
        units[np.argsort(-lost, kind="stable")[:short]] += 1
    elif short < 0:
        units[np.argmax(units)] += short
    return MAX_PERIODS, units, False


class Word(NamedTuple):
    """The places of a period."""

    sources: Ints
    """[PERIOD]; -1 - r at floating place r."""
    ranks: Ints
    """[PERIOD]: how many places of its source come before; nothing of floating places."""
    floating: Ints
    """[num_floating + 1]: where the floating places are, in order."""
    fixed: Ints
    """source * PERIOD + slot of all fixed places, sorted."""
    firsts: Ints
    """[num_sources]: where in `fixed` each source begins."""

    @classmethod
    def of(cls, counts: Ints, num_floating: int) -> Word:
        """Spread sources, and the floating places as one more of them, evenly."""
        counts = np.append(counts, num_floating)
        sources = np.repeat(np.arange(len(counts)), counts)
        firsts = np.cumsum(counts) - counts
        numbers = np.arange(PERIOD) - firsts[sources]
        order = np.argsort((2 * numbers + 1) / (2 * counts[sources]), kind="stable")
        slots = np.empty(PERIOD, np.int64)
        slots[order] = np.arange(PERIOD)
        word = np.where(sources < len(counts) - 1, sources, -1 - numbers)
        num_fixed = PERIOD - num_floating
        fixed, floating = (sources * PERIOD + slots)[:num_fixed], np.append(slots[num_fixed:], PERIOD)
        return cls(word[order], numbers[order], floating, fixed, firsts[:-1])

    def before(self, sources: Ints, slots: Ints) -> Ints:
        """Return how many fixed places of sources come before slots."""
        found: Ints = np.searchsorted(self.fixed, sources * PERIOD + slots) - self.firsts[sources]
        return found
