"""A rotation that chooses R of several parts in each turn, so that each part has its exact share of turns.

Parts, in units of 1 / M, lie end to end on a line of length R M. In turn i, the R points r M + theta(i)
choose one part each, where theta(i) = i step mod M takes every value 0 .. M - 1 in M turns. So a part of p
units is chosen in p of M turns.

    M = 4, parts of 2, 1, 1 units on the line as 0 0 2 1 (R = 1), step 1: turns 0 1 2 3 choose parts 0 0 2 1
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_GOLDEN = 0.3819660112501051  # any number of steps of this fraction of M is spread evenly
_FEW = 64  # sources: for more, the points of all turns are sorted instead
_MANY = 256  # parts: more than these are not rearranged


class Rotation:
    """The parts of sources, [num_sources], 0 to M - 1, their sum a multiple of M = modulus, at most 2^16."""

    def __init__(self, parts: Ints, modulus: int) -> None:
        self._modulus, self._parts = modulus, parts
        self._order = _arranged(parts, modulus)  # the sources that have a part
        lengths = parts[self._order]
        self._ends = np.cumsum(lengths)
        self._starts = np.zeros_like(parts)
        self._starts[self._order] = starts = self._ends - lengths
        self.num_points = int(lengths.sum()) // modulus
        """R."""
        across = starts // modulus != (self._ends - 1) // modulus
        self._step = _step(modulus, int(lengths[across].max(initial=0)))

    def holders(self, turns: Ints, points: Ints) -> Ints:
        """Return the sources that points 0 .. R - 1 choose in turns."""
        places = points * self._modulus + self._theta(turns)
        holders: Ints = self._order[np.searchsorted(self._ends, places, side="right")]
        return holders

    def chosen(self, turns: Ints, sources: Ints) -> tuple[NDArray[np.bool_], Ints]:
        """Return whether sources are chosen in turns, and the points that choose them (else 0)."""
        starts = self._starts[sources]
        offsets = (self._theta(turns) - starts) % self._modulus
        chosen = offsets < self._parts[sources]
        return chosen, np.where(chosen, (starts + offsets) // self._modulus, 0)

    def chosen_before(self, turns: Ints, sources: Ints) -> Ints:
        """Count the turns before `turns` (each below M) that choose sources; shapes broadcast."""
        if np.ndim(turns) == 0 and np.size(sources) > _FEW:
            return self._counted_before(int(turns), sources)
        turns, shifted, lower = np.broadcast_arrays(turns, *self._bounds(sources))
        modulus, step = self._modulus, self._step
        upper: Ints = turns + _floor_sum(turns, modulus, step, shifted, np.any)
        upper -= _floor_sum(turns, modulus, step, lower, np.any)
        return upper

    def _counted_before(self, turn: int, sources: Ints) -> Ints:
        """Return `chosen_before` for one turn and many sources, by sorting the points of all turns."""
        theta = np.sort(np.arange(turn) * self._step % self._modulus)
        begins = self._starts[sources] % self._modulus
        ends = begins + self._parts[sources]
        over = np.maximum(ends - self._modulus, 0)
        below, up_to, wrapped = (theta.searchsorted(places) for places in (begins, ends - over, over))
        count: Ints = up_to - below + wrapped
        return count

    def _bounds(self, sources: Any) -> tuple[Any, Any]:
        # y mod M < part is floor(y/M) - floor((y - part)/M), 0 or 1; to be summed over y = step j - start.
        shifted = -self._starts[sources] % self._modulus
        return shifted, shifted - self._parts[sources] + self._modulus

    def _theta(self, turns: Ints) -> Ints:
        return (turns % self._modulus) * self._step % self._modulus


def _arranged(parts: Ints, modulus: int) -> Ints:
    """Return the sources with a part, in an order that puts small parts across multiples of M."""
    sources = np.flatnonzero(parts)
    if len(sources) > _MANY:
        return sources
    left = sorted((int(parts[source]), source) for source in sources.tolist())  # the smallest first
    arranged, room = [], modulus
    while left:
        part, source = left.pop(max(bisect_left(left, (room + 1, 0)) - 1, 0))  # the largest that has room
        arranged.append(source)
        room = (room - part) % modulus or modulus
    return np.array(arranged, np.int64)


def _step(modulus: int, largest_across: int) -> int:
    """Return a step that is coprime to M, near the golden ratio, and small enough.

    A source whose part p crosses a multiple of M is one place off if the step is more than M - p. Steps below
    M / 16 are not used to avoid that: such a slow rotation is uneven over many periods.
    """
    most = max(modulus - largest_across, modulus // 16, 1)
    wanted = min(round(modulus * _GOLDEN), most)
    steps = (step for step in range(max(wanted, 1), 0, -1) if gcd(step, modulus) == 1)
    return next(steps)


def _floor_sum(counts: Any, modulus: int, factor: int, offsets: Any, any_left: Callable[[Any], Any]) -> Any:
    """Return the sum over j < count of floor((factor j + offset) / modulus), by Euclid's algorithm.

    Counts and offsets are numbers or arrays; `any_left` returns whether any count is not 0. For count 4,
    modulus 5, factor 3 and offset 1, the floors of 1/5 4/5 7/5 10/5 are 0 0 1 2: the sum is 3.
    """
    total = 0
    while True:
        times, factor = divmod(factor, modulus)
        more, offsets = divmod(offsets, modulus)
        total = total + counts * (counts - 1) // 2 * times + counts * more
        counts, offsets = divmod(factor * counts + offsets, modulus)
        if not any_left(counts):
            return total
        modulus, factor = factor, modulus
