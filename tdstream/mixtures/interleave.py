"""Say which source stands at a place of an endless, even interleaving of sources, and how often it did.

The interleaving is cut into periods of 1,000 places. Of its share of a period, say 123.4 places, a source
has the whole part, 123, at the same places of every period, spread evenly. What is left over of all shares
together is a whole number of *floating* places, of which a source has one in some periods and none in
others, as a rotation says. So over M periods every source has its exact share, and any 1,000 consecutive
places hold the rounded-down or the rounded-up share of it. (With some weights of many sources, a window may
now and then hold one more, of a share whose left-over part is above 15/16: it is at most 1 + 1/16 off.)

Shuffled, two neighbours change places at random, anew in each period. For windows that begin or end between
the two that is one place more or less of each, so they do it only where both have room: a source whose share
is a whole number has it always, another while its floating place comes or goes.

All of it is whole numbers: nothing is drawn or kept, any place is answered at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tdstream.mixtures.period import PERIOD, Word, shares
from tdstream.mixtures.rotation import Rotation

Ints = NDArray[np.int64]

OfSources = Callable[[Ints, Ints], Ints]
"""A number of periods and sources; their shapes broadcast."""

_UNEVEN = 64  # far more than what a source has ever had above its share
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


class Interleaving:
    """Sources in proportion to whole-number weights.

    Args:
        weights: Of each source, int64 [num_sources], their sum below 2^36; 0 leaves a source out.
    """

    def __init__(self, weights: Ints) -> None:
        self.num_periods, units, exact = shares(weights)
        whole, rest = np.divmod(units, self.num_periods)
        self.counts: Ints = whole
        """Places in every period, by source."""
        self.rests: Ints = rest
        """What is left over of a source's share, in parts of num_periods."""
        self._wanders = (rest == 0) & exact
        self._everyone = np.arange(len(weights))
        self._rotation = Rotation(rest, self.num_periods)

    def before(self, periods: Ints, sources: Ints) -> Ints:
        """Return how many places sources have before the beginnings of periods; shapes broadcast."""
        turns, left = periods // self.num_periods, periods % self.num_periods
        count: Ints = periods * self.counts[sources] + turns * self.rests[sources]
        if self._rotation.num_points:
            count += self._rotation.chosen_before(left, sources)
        return count

    def at(self, places: Ints, key: int | None = None, until: int | None = None) -> tuple[Ints, Ints]:
        """Return the sources at places, and how many places each has before.

        Args:
            places: int64 [n], at least 0.
            key: What the exchanges of neighbours are drawn with; None for none.
            until: The place where this interleaving ends; the period that it cuts is left as it is.
        """
        word = self._word
        periods, slots = np.divmod(places, PERIOD)
        floats = self._tabled(self._floating_slots, periods, 1)
        origins = self._origins(periods, slots, floats, key, until)  # the slots whose sample stands here
        sources = word.sources[origins]
        floating = np.flatnonzero(sources < 0)
        if floating.size:
            sources[floating] = self._rotation.holders(periods[floating], -1 - sources[floating])
        ranks = word.ranks[origins]
        ranks[floating] = word.before(sources[floating], origins[floating])
        ranks += self._tabled(self.before, periods)(periods, sources)
        if self._rotation.num_points:
            ranks += floats(periods, sources) < slots
        return sources, ranks

    def counts_at(self, place: int, key: int | None = None, until: int | None = None) -> Ints:
        """Return how many places each source has before a place, [num_sources]; arguments as `at`."""
        period, slot = divmod(place, PERIOD)
        everyone, periods, slots = self._everyone, np.array(period), np.array(slot)
        counts = self.before(periods, everyone)
        if slot:
            word = self._word
            counts += word.before(everyone, slots) + (self._floating_slots(periods, everyone) < slots)
            last = np.array([slot - 1])
            origin = int(self._origins(np.array([period]), last, self._floating_slots, key, until)[0])
            if origin == slot:  # a pair that is exchanged, and cut
                counts[word.sources[slot]] += 1
                counts[word.sources[slot - 1]] -= 1
        return counts

    def first(self, needs: Ints) -> int:
        """Return the number of places after which the first source has had the places that it needs.

        Args:
            needs: Of each source, [num_sources]; 0 of those that do not count. Nothing is exchanged.
        """
        periods = self._estimate(needs)
        place = self._when(int(np.argmin(periods)), needs)
        behind = place // PERIOD + 1
        expected = behind * (self.counts + self.rests / self.num_periods)
        near = np.flatnonzero((needs > 0) & (expected > needs - _UNEVEN))
        others = near[self.before(np.array(behind), near) >= needs[near]]
        return min(self._when(source, needs) for source in others.tolist())

    def last(self, needs: Ints) -> int:
        """Return the number of places after which all sources have had what they need; as `first`."""
        periods = np.where(needs > 0, self._estimate(needs), -1)
        place = self._when(int(np.argmax(periods)), needs)
        lacking = self.before(np.array((place - 1) // PERIOD), self._everyone) < needs
        others = np.flatnonzero(lacking & (needs > 0))
        return max(self._when(source, needs) for source in others.tolist())

    def _when(self, source: int, needs: Ints) -> int:
        """Return the number of places after which a source has had what it needs, at least 1."""
        need, guess = int(needs[source]), int(self._estimate(needs)[source])
        low, high, step = guess, guess + 1, 1
        while low > 0 and self._count(low, source) >= need:
            low, step = max(low - step, 0), 2 * step
        step = 1
        while self._count(high, source) < need:
            high, step = high + step, 2 * step
        while high - low > 1:  # what it has before low is less than it needs, before high it is enough
            middle = (low + high) // 2
            low, high = (middle, high) if self._count(middle, source) < need else (low, middle)
        slots = self._slots(low, source)
        return low * PERIOD + slots[need - 1 - self._count(low, source)] + 1

    def _estimate(self, needs: Ints) -> NDArray[np.float64]:
        """Return after about how many periods sources have had what they need; inf where it is nothing."""
        shares = self.counts + self.rests / self.num_periods
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(needs > 0, needs / shares, np.inf)

    def _count(self, period: int, source: int) -> int:
        """Return `before` of one period and source."""
        turns, left = divmod(period, self.num_periods)
        count = period * int(self.counts[source]) + turns * int(self.rests[source])
        return count + self._rotation.count_before(left, source)

    def _slots(self, period: int, source: int) -> list[int]:
        """Return the slots of a source in a period, in order."""
        slots: list[int] = np.flatnonzero(self._word.sources == source).tolist()
        chosen, number = self._rotation.chosen(np.array([period]), np.array([source]))
        return sorted([*slots, *self._word.floating[number[chosen]].tolist()])

    def _tabled(self, count: OfSources, periods: Ints, margin: int = 0) -> OfSources:
        """Return a function of periods and sources; where periods are close together, it looks up a table.

        Args:
            count: The function.
            periods: What it will be asked for.
            margin: And how many periods before and behind them.
        """
        if not periods.size:
            return count
        first, last, width = int(periods.min()) - margin, int(periods.max()) + margin, len(self.counts)
        if (last - first + 1) * width > periods.size:
            return count
        table = count(np.arange(first, last + 1)[:, None], self._everyone).ravel()
        return lambda periods, sources: table[(periods - first) * width + sources]

    def _floating_slots(self, periods: Ints, sources: Ints) -> Ints:
        """Return the slots of sources' floating places in periods, PERIOD where they have none."""
        chosen, numbers = self._rotation.chosen(periods, sources)
        return np.where(chosen, self._word.floating[numbers], PERIOD)

    def _origins(
        self, periods: Ints, slots: Ints, floats: OfSources, key: int | None, until: int | None
    ) -> Ints:
        """Return the slots whose source stands at slots: their own, or where exchanged their neighbour's."""
        if key is None:
            return slots
        pairs = slots >> 1
        drawn = _mixed((periods * (PERIOD // 2) + pairs).astype(np.uint64) ^ np.uint64(key)) & np.uint64(1)
        exchanged = (drawn == 1) & self._unlike[pairs]
        if until is not None:
            exchanged &= periods < until // PERIOD
        found = np.flatnonzero(exchanged)
        exchanged[found] = self._have_room(periods[found], slots[found] & ~1, floats)
        origins: Ints = slots ^ exchanged
        return origins

    @cached_property
    def _unlike(self) -> NDArray[np.bool_]:
        """Whether a pair of neighbours, [PERIOD / 2], is of two sources, at fixed places."""
        first, second = self._word.sources[0::2], self._word.sources[1::2]
        unlike: NDArray[np.bool_] = (first != second) & (first >= 0) & (second >= 0)
        return unlike

    def _have_room(self, periods: Ints, slots: Ints, floats: OfSources) -> NDArray[np.bool_]:
        """Return whether pairs of neighbours that begin at even slots can change places."""
        first, second = self._word.sources[slots], self._word.sources[slots + 1]
        goes, comes = self._wanders[first], self._wanders[second]
        if self._rotation.num_points:
            (has, had), (has_other, had_other) = (
                _around(floats, periods, slots, sources) for sources in (first, second)
            )
            goes, comes = goes | (had & ~has), comes | (has_other & ~had_other)
        both: NDArray[np.bool_] = goes & comes
        return both

    @cached_property
    def _word(self) -> Word:
        return Word.of(self.counts, self._rotation.num_points)


def _around(
    floats: OfSources, periods: Ints, slots: Ints, sources: Ints
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return whether sources have a floating place among the PERIOD places from a slot on, and before it."""
    before, now, after = (floats(periods + step, sources) for step in (-1, 0, 1))
    behind = (now > slots) & (now < PERIOD)
    has, had = behind | (after < slots), ((before > slots) & (before < PERIOD)) | (now < slots)
    return has, had


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return SplitMix64's finaliser of each value."""
    values = (values ^ (values >> _S30)) * _M1
    values = (values ^ (values >> _S27)) * _M2
    mixed: NDArray[np.uint64] = values ^ (values >> _S31)
    return mixed
