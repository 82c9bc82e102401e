"""Interleavings: shares, counts and orders, against counting along."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tdstream.schedule.interleave import PERIOD, Interleaving

some_weights = st.one_of(
    st.lists(st.integers(1, 12), min_size=1, max_size=9),
    st.lists(st.integers(1, 2**30), min_size=1, max_size=9),
    st.lists(st.integers(0, 3), min_size=1, max_size=40).filter(any),
)
keys = st.sampled_from([None, 1, 2**64 - 1])


def walk(interleaving: Interleaving, places: int, key: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the sources at the first places, and the counts before each place and behind the last."""
    sources, _ = interleaving.at(np.arange(places), key)
    one = sources[:, None] == np.arange(len(interleaving.counts))
    return sources, np.vstack([np.zeros((1, one.shape[1]), int), np.cumsum(one, axis=0)])


@settings(deadline=None, max_examples=60)
@given(weights=some_weights, key=keys)
@example(weights=[3, 3, 1, 1, 20, 20, 1], key=1)
def test_any_thousand_places_hold_the_shares(weights: list[int], key: int | None) -> None:
    """In any 1,000 places a source is within one of its share; 1/16 more where a rounding says so."""
    interleaving = Interleaving(np.array(weights))
    _, counts = walk(interleaving, 6 * PERIOD, key)
    share = np.array(weights) / sum(weights)
    off = np.abs(counts[PERIOD:] - counts[:-PERIOD] - PERIOD * share).max()
    assert off <= 1 + 1 / 16 + 1e-4


@pytest.mark.parametrize("weights", [[7, 3], [1, 2], [500, 300, 199, 1], [3, 5, 7, 11], [1] * 9])
@pytest.mark.parametrize("key", [None, 5])
def test_a_window_is_within_one(weights: list[int], key: int | None) -> None:
    """With these weights no window of 1,000 is more than one sample off, over two whole rounds."""
    interleaving = Interleaving(np.array(weights))
    _, counts = walk(interleaving, 2 * PERIOD * interleaving.num_periods + PERIOD, key)
    share = np.array(weights) / sum(weights)
    assert np.abs(counts[PERIOD:] - counts[:-PERIOD] - PERIOD * share).max() <= 1 + 1e-9


@settings(deadline=None, max_examples=60)
@given(weights=st.lists(st.integers(1, 9), min_size=1, max_size=8), key=keys)
def test_whole_rounds_hold_exactly_the_shares(weights: list[int], key: int | None) -> None:
    """After its whole periods, every source has had exactly its share, each time."""
    interleaving = Interleaving(np.array(weights))
    places = PERIOD * interleaving.num_periods
    for start in (0, 3 * places):
        sources, _ = interleaving.at(start + np.arange(places), key)
        counts = np.bincount(sources, minlength=len(weights))
        assert (counts * sum(weights) == places * np.array(weights)).all()


@settings(deadline=None, max_examples=60)
@given(
    weights=some_weights, key=keys, picked=st.lists(st.integers(0, 4 * PERIOD - 1), min_size=1, max_size=9)
)
def test_counts_are_those_of_counting_along(weights: list[int], key: int | None, picked: list[int]) -> None:
    """The count that comes with a place, and all counts at a place, are what was seen before it."""
    interleaving = Interleaving(np.array(weights))
    sources, counts = walk(interleaving, 4 * PERIOD, key)
    _, before = interleaving.at(np.arange(4 * PERIOD), key)
    assert (before == counts[np.arange(4 * PERIOD), sources]).all()
    alone, alone_before = interleaving.at(np.array(picked), key)
    assert (alone == sources[picked]).all()
    assert (alone_before == before[picked]).all()
    for place in picked:
        assert (interleaving.counts_at(place, key) == counts[place]).all()


def test_counts_far_away_go_on() -> None:
    """After a thousand million periods a place has the counts of the place before it, and one more."""
    interleaving = Interleaving(np.array([452_711, 300_017, 247_272, 999]))
    places = 10**12 + 37 + np.arange(3000)
    sources, before = interleaving.at(places, 9)
    counts = interleaving.counts_at(int(places[0]), 9)
    assert counts.sum() == places[0]
    assert np.abs(counts / places[0] - np.array([452_711, 300_017, 247_272, 999]) / 1_000_999).max() < 1e-8
    for source, count in zip(sources.tolist(), before.tolist(), strict=True):
        assert counts[source] == count
        counts[source] += 1


@settings(deadline=None, max_examples=60)
@given(data=st.data(), weights=some_weights)
def test_first_and_last_are_found(data: st.DataObject, weights: list[int]) -> None:
    """Where the first source, and where the last, has had what it needs is where counting along finds it."""
    interleaving = Interleaving(np.array(weights))
    _, counts = walk(interleaving, 4 * PERIOD)
    needs = np.array([data.draw(st.integers(0, int(most))) for most in counts[-1]])
    ends = [int(np.argmax(counts[:, source] >= need)) for source, need in enumerate(needs) if need]
    if ends:
        assert interleaving.first(needs) == min(ends)
        assert interleaving.last(needs) == max(ends)


@pytest.mark.parametrize("weights", [[7, 3], [1, 2], [452_711, 300_017, 247_272, 999], [1] * 7])
def test_shuffled_periods_differ(weights: list[int]) -> None:
    """Shuffled, hardly any two of 50 periods are alike, and another key has other ones."""
    interleaving = Interleaving(np.array(weights))
    words = [interleaving.at(np.arange(50 * PERIOD), key)[0].reshape(50, PERIOD) for key in (1, 2)]
    assert len({word.tobytes() for word in words[0]}) >= 40
    assert (words[0] != words[1]).any(axis=1).sum() >= 40


def test_sources_are_interleaved_smoothly() -> None:
    """Of 7 to 3, any ten places hold 7 and 3, and never more than three of one source follow each other."""
    sources, counts = walk(Interleaving(np.array([7, 3])), PERIOD)
    assert sources[:20].tolist() == [0, 1, 0, 0, 0, 1, 0, 0, 1, 0] * 2
    assert (counts[10::10, 1] == np.arange(3, 301, 3)).all()


def test_the_period_that_an_end_cuts_is_as_it_is_unshuffled() -> None:
    """Up to a place where it ends, an interleaving has what it has unshuffled, so that its end is known."""
    interleaving = Interleaving(np.array([7, 3]))
    cut, plain = interleaving.at(np.arange(2500), 3, 2501)[0], interleaving.at(np.arange(2500))[0]
    assert (cut[2000:] == plain[2000:]).all()
    assert (cut[:2000] != plain[:2000]).any()


def test_an_order_that_was_released_stays() -> None:
    """Literal values: they change only with the mixture's version."""
    sources, before = Interleaving(np.array([5, 3, 3])).at(np.arange(2994, 3006), 77)
    assert sources.tolist() == [2, 0, 0, 1, 2, 0, 0, 1, 2, 0, 0, 1]
    assert before.tolist() == [816, 1361, 1362, 817, 817, 1363, 1364, 818, 818, 1365, 1366, 819]


@pytest.mark.parametrize("seed", range(8))
def test_who_has_enough_first_and_last_is_known(seed: int) -> None:
    """The places after which the first source, and all, have what they need are those of going through."""
    dice = np.random.default_rng(seed)
    for _ in range(20):
        weights = dice.integers(1, 99, dice.integers(2, 7))
        needs = dice.integers(1, 200, len(weights))
        interleaving = Interleaving(weights)
        sources, _ = interleaving.at(np.arange(int(200 * weights.sum() / weights.min()) + 3000))
        ends = [int(np.flatnonzero(sources == source)[need - 1]) + 1 for source, need in enumerate(needs)]
        assert interleaving.first(needs) == min(ends)
        assert interleaving.last(needs) == max(ends)
