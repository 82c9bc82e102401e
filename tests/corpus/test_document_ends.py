"""DocumentEnds: look-ups over parts, against lists."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdstream.corpus.document_ends import DocumentEnds


class Parts:
    """Loads parts from lists, and counts how often."""

    def __init__(self, parts):
        self.parts, self.loads = parts, 0

    def __call__(self, part):
        self.loads += 1
        assert self.parts[part], "a part without ends may have no file"
        return np.array(self.parts[part], np.int64)


def in_parts(ends, edges):
    """Return DocumentEnds over parts that lie between edges."""
    parts = [[end - first for end in ends if first < end <= last] for first, last in pairwise(edges)]
    return DocumentEnds(np.array(edges), np.array([len(part) for part in parts]), Parts(parts))


@given(st.data())
def test_look_ups_are_those_of_a_list(data):
    """Wherever parts end, also empty ones, and tokens behind the last end."""
    total = data.draw(st.integers(1, 40))
    ends = sorted(data.draw(st.sets(st.integers(1, total))))
    edges = [0, *sorted(data.draw(st.lists(st.integers(0, total), max_size=4))), total]
    found = in_parts(ends, edges)
    closed = ends if ends and ends[-1] == total else [*ends, total]
    assert (found.num_ends, found.num_documents, found.total_tokens) == (len(ends), len(closed), total)
    numbers = data.draw(st.lists(st.integers(-1, len(closed) - 1), max_size=6))
    assert found.at(np.array(numbers, np.int64)).tolist() == [0 if n < 0 else closed[n] for n in numbers]
    places = data.draw(st.lists(st.integers(0, total), max_size=6))
    counts = [sum(end <= place for end in ends) for place in places]
    assert found.until(np.array(places, np.int64)).tolist() == counts
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(closed))] * 2)))
    assert found.between(first, last).tolist() == closed[first:last]


@given(st.data())
def test_ends_in_rows_are_those_of_a_list(data):
    """An end at a row's first token is the row's before; one behind its last token is its own."""
    total = data.draw(st.integers(1, 40))
    ends = sorted(data.draw(st.sets(st.integers(1, total))))
    edges = [0, *sorted(data.draw(st.lists(st.integers(0, total), max_size=3))), total]
    length = data.draw(st.integers(1, total))
    starts = data.draw(st.lists(st.integers(0, total - length), max_size=5))
    counts, places = in_parts(ends, edges).within(np.array(starts, np.int64), length)
    rows = [[end - start for end in ends if start < end <= start + length] for start in starts]
    assert counts.tolist() == [len(row) for row in rows]
    assert places.tolist() == [place for row in rows for place in row]


def test_ends_in_memory_are_the_same():
    """For sources that hold their tokens themselves."""
    held = DocumentEnds.of(np.array([2, 5]), 7)
    assert held.between(0, 3).tolist() == [2, 5, 7]
    assert held.token_range(1, 3) == (2, 7)


def test_identity_tells_documents_apart():
    """By how many there are and where, part by part; not by where they lie on disk."""
    assert in_parts([2, 5], [0, 4, 7]).identity() == in_parts([2, 5], [0, 4, 7]).identity()
    assert in_parts([2, 5], [0, 4, 7]).identity() != in_parts([2, 3], [0, 4, 7]).identity()
    assert in_parts([2, 5], [0, 4, 7]).identity()["documents"] == 3


def test_few_parts_stay_open(monkeypatch):
    """However many there are; a part that was closed is opened again."""
    monkeypatch.setattr("tdstream.corpus.mapped_array.MAX_OPEN", 3)
    found = in_parts(list(range(1, 11)), list(range(11)))
    for _ in range(2):
        assert [int(found.at(np.array([number]))[0]) for number in range(10)] == list(range(1, 11))
        assert len(found._loaded) <= 3


def test_pickling_drops_what_was_loaded():
    """Each process opens for itself."""
    found = in_parts([2, 5], [0, 4, 7])
    found.between(0, 3)
    arrived = pickle.loads(pickle.dumps(found))
    assert arrived._load.loads == found._load.loads
    assert not arrived._loaded
    assert arrived.between(0, 3).tolist() == [2, 5, 7]


@pytest.mark.parametrize("count", [0, 1])
def test_a_stream_without_ends_is_one_document(count):
    """Or none, if there is no token."""
    assert DocumentEnds.of(np.empty(0, np.int64), count).num_documents == count
