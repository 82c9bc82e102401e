"""Foresight: what was expected is worked out once, and everything else is right all the same."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tdstream.foresight import Foresight, Ragged


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
    foresight = Foresight(work)
    foresight.expect(np.array([[3, 0], [1, 2], [0, 0]]))
    assert work.asked == []
    assert entries(foresight.of(np.array([3, 0]))) == [[3, 3, 3], []]
    assert entries(foresight.of(np.array([1, 2]))) == [[1], [2, 2]]
    assert foresight.of(np.array([0, 0])).counts.tolist() == [0, 0]
    assert work.asked == [[3, 0, 1, 2, 0, 0]]


@pytest.mark.parametrize("other", [[9], [1, 2, 9], [2, 1]])
def test_other_samples_are_worked_out_when_they_come(work, other):
    """In between, a second time, or more of them than were expected; nothing is mistaken for them."""
    foresight = Foresight(work)
    foresight.expect(np.array([1, 2]))
    for indices in (other, [1, 2], [1, 2], other):
        assert entries(foresight.of(np.array(indices))) == [[index] * index for index in indices]
    assert work.asked == [other, [1, 2], [1, 2], other]


def test_what_was_found_stays_where_it_is(work):
    """Another process works it out anew."""
    foresight = Foresight(work)
    foresight.expect(np.arange(1000))
    foresight.of(np.array([0]))
    arrived = pickle.loads(pickle.dumps(foresight))
    assert len(pickle.dumps(arrived)) < 20_000
    assert entries(arrived.of(np.array([1]))) == [[1]]
