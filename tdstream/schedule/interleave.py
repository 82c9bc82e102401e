"""An endless, even interleaving of sources: the source at any place, and how often it came before.

The interleaving consists of periods of 1,000 places. A source whose share is 123.4 places has 123 *fixed*
places, evenly spread and the same in every period. The fractions of all shares add up to a whole number of
*floating* places, which a rotation gives to some of the sources in each period. So every source has its exact
share over M periods, and its share rounded down or up in any 1,000 consecutive places. (With some weights of
many sources, a share whose fraction is above 15/16 may get one place more: it is at most 1 + 1/16 off.)

Shuffling exchanges random pairs of neighbours, anew in each period. A window that begins or ends inside a
pair then holds one place more or less of each source, so a pair is exchanged only where both sources have
room: always if the share is a whole number, else while the source's floating place comes or goes.

    weights 3 and 1, a period of 8 instead of 1,000: shares 6 and 2, places 0 0 1 0 0 0 1 0 in every period

Everything is integer arithmetic: there is no random state, and any place is computed directly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import gcd
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tdstream.core.checks import LARGEST
from tdstream.schedule.order import splitmix64
from tdstream.schedule.rotation import Rotation

Ints = NDArray[np.int64]

PERIOD = 1000
"""Places of a period."""
MAX_PERIODS = 2**16
"""Shares are exact after at most this many periods; those that would need more are rounded."""


def find_shares(weights: Ints) -> tuple[int, Ints, bool]:
    """Return M, the places of each source in M periods (at least one), and whether they are exact."""
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
    """[PERIOD]: places of its source before it; undefined at floating places."""
    floating: Ints
    """[num_floating + 1]: the floating places, in order, and PERIOD."""
    fixed: Ints
    """source * PERIOD + slot of all fixed places, sorted."""
    firsts: Ints
    """[num_sources]: the first entry of each source in `fixed`."""

    @classmethod
    def spread(cls, counts: Ints, num_floating: int) -> Word:
        """Spread sources evenly, with the floating places as one more source.

        Number j of a source with c places goes near (2 j + 1) / 2 c of the period. In a period of 5, counts 3
        and 1 and a floating place: 1/6 3/6 5/6 | 1/2 | 1/2 sort to sources 0 0 1 -1 0.
        """
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
        """Count the fixed places of sources before slots."""
        found: Ints = np.searchsorted(self.fixed, sources * PERIOD + slots) - self.firsts[sources]
        return found


OfSources = Callable[[Ints, Ints], Ints]
"""Maps periods and sources to numbers; shapes broadcast."""


class Interleaving:
    """Sources in proportion to whole-number weights, int64 [num_sources], their sum below 2^36.

    Weight 0 leaves a source out. `key` seeds the exchanges of neighbours; None makes none. `until` is the
    place where this interleaving ends; the period that it cuts short has no exchanges.
    """

    def __init__(self, weights: Ints) -> None:
        self.num_periods, units, exact = find_shares(weights)
        whole, rest = np.divmod(units, self.num_periods)
        self.counts: Ints = whole
        """Places in every period, by source."""
        self.rests: Ints = rest
        """The fraction of a source's share, in parts of num_periods."""
        self._wanders = (rest == 0) & exact
        self._everyone = np.arange(len(weights))
        self._rotation = Rotation(rest, self.num_periods)

    def before(self, periods: Ints, sources: Ints) -> Ints:
        """Count the places of sources before the beginnings of periods; shapes broadcast."""
        turns, left = periods // self.num_periods, periods % self.num_periods
        count: Ints = periods * self.counts[sources] + turns * self.rests[sources]
        if self._rotation.num_points:
            count += self._rotation.chosen_before(left, sources)
        return count

    def at(self, places: Ints, key: int | None = None, until: int | None = None) -> tuple[Ints, Ints]:
        """Return the sources at places [n], and the number of earlier places of the same source, [n]."""
        word = self._word
        periods, slots = np.divmod(places, PERIOD)
        floats = self._tabled(self._floating_slots, periods, 1)
        origins = self._origins(periods, slots, floats, key, until)  # the slots whose samples are served here
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
        """Count the places of each source before a place, [num_sources]."""
        period, slot = divmod(place, PERIOD)
        everyone, periods, slots = self._everyone, np.array(period), np.array(slot)
        counts, word = self.before(periods, everyone), self._word
        if slot:
            counts += word.before(everyone, slots) + (self._floating_slots(periods, everyone) < slots)
        if slot % 2 and key is not None and (until is None or period < until // PERIOD):
            last = np.array([slot - 1])
            origin = int(self._origins(np.array([period]), last, self._floating_slots, key, until)[0])
            if origin == slot:  # an exchanged pair that the place divides
                counts[word.sources[slot]] += 1
                counts[word.sources[slot - 1]] -= 1
        return counts

    def first(self, needs: Ints) -> int:
        """Count the places until some source has as many as it needs; at most 2^62.

        Needs are [num_sources], 0 for sources that do not count. Exchanges are ignored.
        """
        return int(self._ends(needs, np.min, np.any).min())

    def last(self, needs: Ints) -> int:
        """Count the places until all sources have as many as they need; otherwise as `first`."""
        return int(self._ends(needs, np.max, np.all).max())

    def _ends(self, needs: Ints, one: Callable[[Any], Any], enough: Callable[[Any], Any]) -> Ints:
        """Count the places until sources have what they need, for those that get there in one period.

        It is the first period at whose end `enough` (np.any, np.all) have what they need; `one` (np.min,
        np.max) estimates it.
        """
        sources = np.flatnonzero(needs)
        needs, counts = needs[sources], dict[int, Ints]()

        def there(period: int) -> NDArray[np.bool_]:
            if period not in counts:
                counts[period] = self.before(np.array(period), sources)
            there: NDArray[np.bool_] = counts[period] >= needs
            return there

        shares = (self.counts + self.rests / self.num_periods)[sources]
        guess = int(one(needs / shares))
        if guess >= LARGEST // PERIOD:
            return np.array([LARGEST])
        period = _smallest(lambda number: bool(enough(there(number + 1))), guess)
        here = np.flatnonzero(there(period + 1) & ~there(period))
        slots = self._slots(period, sources[here], needs[here] - 1 - counts[period][here])
        return period * PERIOD + slots + 1

    def _slots(self, period: int, sources: Ints, ranks: Ints) -> Ints:
        """Return the slot of each source in a period that comes after `ranks` of its slots."""
        word, floating = self._word, self._floating_slots(np.array(period), sources)
        fixed = word.before(sources, floating)  # before the floating one
        places = word.firsts[sources] + ranks - (ranks > fixed)
        found = word.fixed.take(places, mode="clip") - sources * PERIOD
        slots: Ints = np.where(ranks == fixed, floating, found)
        return slots

    def _tabled(self, count: OfSources, periods: Ints, margin: int = 0) -> OfSources:
        """Return `count`, as a lookup in a table if these periods are close together.

        The table also covers `margin` periods before and after them.
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
        """Return the slots whose sources are served at slots: their own, or the other one of a pair."""
        if key is None:
            return slots
        pairs = slots >> 1
        numbers = (periods * (PERIOD // 2) + pairs).astype(np.uint64)
        drawn = splitmix64(numbers ^ np.uint64(key)) & np.uint64(1)
        exchanged = (drawn == 1) & self._unlike[pairs]
        if until is not None:
            exchanged &= periods < until // PERIOD
        found = np.flatnonzero(exchanged)
        exchanged[found] = self._have_room(periods[found], slots[found] & ~1, floats)
        origins: Ints = slots ^ exchanged
        return origins

    @cached_property
    def _unlike(self) -> NDArray[np.bool_]:
        """Whether each pair of neighbours is of two sources, at fixed places, [PERIOD / 2]."""
        first, second = self._word.sources[0::2], self._word.sources[1::2]
        unlike: NDArray[np.bool_] = (first != second) & (first >= 0) & (second >= 0)
        return unlike

    def _have_room(self, periods: Ints, slots: Ints, floats: OfSources) -> NDArray[np.bool_]:
        """Return whether pairs of neighbours that begin at even slots can be exchanged."""
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
        return Word.spread(self.counts, self._rotation.num_points)


def _smallest(suffices: Callable[[int], bool], guess: int) -> int:
    """Return the smallest number >= 0 that suffices (all larger ones do too), searched from a guess."""
    low, high, step = guess - 1, guess, 1
    while low >= 0 and suffices(low):
        low, high, step = max(low - step, -1), low, 2 * step
    while not suffices(high):
        low, high, step = high, high + step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def _around(
    floats: OfSources, periods: Ints, slots: Ints, sources: Ints
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return whether sources have a floating place in the PERIOD places from a slot on, and before it."""
    before, now, after = (floats(periods + step, sources) for step in (-1, 0, 1))
    later = (now > slots) & (now < PERIOD)
    has, had = later | (after < slots), ((before > slots) & (before < PERIOD)) | (now < slots)
    return has, had
