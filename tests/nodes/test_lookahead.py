"""Foresight: what was expected is worked out once, and everything else is right all the same."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tdstream.nodes.base import RowEnds
from tdstream.nodes.lookahead import EndsAhead, Lookahead, Ragged


class Work:
    """Finds index, index, ... as many times as the index says, and notes what it was asked for."""

    def __init__(self):
        self.asked = []

    def __call__(self, indices):
        self.asked.append(indices.tolist())
        return Ragged.of(indices, indices.repeat(indices))


def entries(found):
    """Return each sample's entries."""
    return [part.tolist() for part in np.split(found.entries[0], found.after[1:-1])]


@pytest.fixture
def work():
    """Return work that notes what it does."""
    return Work()


def test_expected_samples_are_worked_out_once(work):
    """All of them at the first, and then parts of what was found."""
    foresight = Lookahead(work)
    foresight.expect(np.array([[3, 0], [1, 2], [0, 0]]))
    assert work.asked == []
    assert entries(foresight.of(np.array([3, 0]))) == [[3, 3, 3], []]
    assert entries(foresight.of(np.array([1, 2]))) == [[1], [2, 2]]
    assert foresight.of(np.array([0, 0])).counts.tolist() == [0, 0]
    assert work.asked == [[3, 0, 1, 2, 0, 0]]


@pytest.mark.parametrize("other", [[9], [1, 2, 9], [2, 1]])
def test_other_samples_are_worked_out_when_they_come(work, other):
    """In between, a second time, or more of them than were expected; nothing is mistaken for them."""
    foresight = Lookahead(work)
    foresight.expect(np.array([1, 2]))
    for indices in (other, [1, 2], [1, 2], other):
        assert entries(foresight.of(np.array(indices))) == [[index] * index for index in indices]
    assert work.asked == [other, [1, 2], [1, 2], other]


def test_what_was_found_stays_where_it_is(work):
    """Another process works it out anew."""
    foresight = Lookahead(work)
    foresight.expect(np.arange(1000))
    foresight.of(np.array([0]))
    arrived = pickle.loads(pickle.dumps(foresight))
    assert len(pickle.dumps(arrived)) < 20_000
    assert entries(arrived.of(np.array([1]))) == [[1]]


def test_batches_of_ends_have_their_segments():
    """As if each batch of rows of 4 tokens had been looked at alone; the last one may be smaller."""
    ends = RowEnds(np.array([1, 1, 0, 2, 1]), np.array([2, 4, 1, 3, 4]))
    ahead = EndsAhead(4, ends, 2)
    parts = [ahead.part(first, first + 2) for first in (0, 2)]
    assert [(part.counts.tolist(), part.places.tolist()) for part in parts] == [
        ([1, 1], [2, 4]),
        ([0, 2], [1, 3]),
    ]
    found = [part.segments(4) for part in parts]
    assert [segments.borders.tolist() for segments in found] == [[0, 2, 4, 8], [0, 4, 5, 7, 8]]
    assert [segments.starts.tolist() for segments in found] == [[0, 2, 4], [0, 4, 5, 7]]
    assert [segments.lengths.tolist() for segments in found] == [[2, 2, 4], [4, 1, 2, 1]]
    assert [segments.numbers.tolist() for segments in found] == [[0, 1, 0], [0, 0, 1, 2]]
    assert [segments.lasts.tolist() for segments in found] == [[1, 7], [4, 6]]
    assert [segments.longest for segments in found] == [4, 4]
    assert all(part.known is not None for part in parts)


@pytest.mark.parametrize(("first", "last"), [(1, 3), (0, 1), (2, 5), (4, 5)])
def test_rows_that_are_no_batch_have_the_ends_all_the_same(first, last):
    """Their segments are worked out from these."""
    counts, places = np.array([1, 1, 0, 2, 1]), np.array([2, 4, 1, 3, 4])
    part = EndsAhead(4, RowEnds(counts, places), 2).part(first, last)
    own = places[counts[:first].sum() : counts[:last].sum()]
    assert (part.counts.tolist(), part.places.tolist()) == (counts[first:last].tolist(), own.tolist())
    rows = np.repeat(np.arange(last - first), part.counts)
    inside = {*range(0, 4 * (last - first) + 1, 4), *(rows * 4 + own).tolist()}
    assert part.segments(4).borders.tolist() == sorted(inside)
