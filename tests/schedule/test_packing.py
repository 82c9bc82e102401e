"""Packing: rows of whole documents, against one document at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdstream.schedule.packing import best_fit, pack


def one_by_one(lengths: list[int], room: int) -> list[int]:
    """Return the room left in each row when each document, the longest first, goes where it fits best."""
    rooms: list[int] = []
    for length in sorted(lengths, reverse=True):
        fitting = [place for place, left in enumerate(rooms) if left >= length]
        if not fitting:
            rooms.append(room - length)
            continue
        best = min(fitting, key=lambda place: rooms[place])
        rooms[best] -= length
    return sorted(rooms)


@given(st.integers(1, 12), st.data())
def test_documents_go_where_they_fit_best(room, data):
    """As many rows with as much room left as when each document is looked at."""
    lengths = data.draw(st.lists(st.integers(1, room), max_size=60))
    rows, count = best_fit(np.array(lengths, np.int64), room)
    filled = np.bincount(rows, weights=lengths, minlength=count).astype(int)
    assert len(filled) == count
    assert sorted(room - filled) == one_by_one(lengths, room)


def test_documents_longer_than_a_row_are_cut_first():
    """Full rows of T tokens; T + 1 where the document goes on; the rest is packed with others."""
    packed = pack(np.array([0, 4, 15]), np.array([4, 11, 5]), 5)
    assert packed.starts.tolist() == [0, 14, 4, 9, 15]  # the eleventh token fills the first row
    assert packed.lengths.tolist() == [4, 1, 6, 6, 5]
    assert packed.rows.tolist() == [2, 1, 1, 1]


def test_rows_are_in_the_order_of_their_first_documents():
    """And documents in a row in the order of the stream, so that an epoch in order reads forward."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 40, 500)
    begins = np.cumsum(lengths) - lengths
    packed = pack(begins, lengths, 64)
    firsts = np.cumsum(packed.rows) - packed.rows
    assert (np.diff(packed.starts[firsts]) > 0).all()
    rising = np.diff(packed.starts) > 0
    rising[firsts[1:] - 1] = True
    assert rising.all()
    assert sorted(packed.starts.tolist()) == begins.tolist()


@pytest.mark.parametrize("seq_len", [512, 2048])
def test_padding_is_below_one_percent(seq_len):
    """Of documents whose lengths are log-normal, as those of the web are."""
    lengths = np.maximum(np.random.default_rng(1).lognormal(6, 1.2, 50_000), 1).astype(np.int64)
    packed = pack(np.cumsum(lengths) - lengths, lengths, seq_len)
    assert 0 <= 1 - lengths.sum() / (len(packed.rows) * seq_len) < 0.01


def test_nothing_packs_to_nothing():
    """No documents, no rows."""
    nothing = np.empty(0, np.int64)
    packed = pack(nothing, nothing, 8)
    assert len(packed.starts) == len(packed.rows) == len(packed.lengths) == 0
