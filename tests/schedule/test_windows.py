"""Windows inside one document, against hand-worked cases and a slow, obvious recomputation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdstream.core.errors import ConfigError
from tdstream.schedule.windows import DocumentCut


def all_windows(num_tokens: int, cut: DocumentCut) -> list[tuple[int, int, int, bool]]:
    """Return a document's windows as the library cuts them."""
    number = int(cut.count(np.array([num_tokens]))[0])
    made = cut.windows(np.full(number, num_tokens), np.arange(number))
    return list(
        zip(
            made.starts.tolist(),
            made.lengths.tolist(),
            made.overlaps.tolist(),
            made.stops.tolist(),
            strict=True,
        )
    )


@pytest.mark.parametrize(
    ("num_tokens", "stride", "min_tail", "expected"),
    [
        (3, 4, 1, [(0, 3, 0, True)]),  # short: one padded window
        (4, 4, 1, [(0, 4, 0, True)]),  # just full: nothing behind it
        (8, 4, 1, [(0, 5, 0, False), (4, 4, 0, True)]),
        (9, 4, 1, [(0, 5, 0, False), (4, 5, 0, False), (8, 1, 0, True)]),
        (9, 4, 2, [(0, 5, 0, False), (4, 4, 0, True)]),  # one token is too short a tail: left out
        (9, 4, 0, [(0, 5, 0, False), (4, 5, 0, False), (8, 1, 0, True)]),  # at least one, whatever min_tail
        (8, 4, 0, [(0, 5, 0, False), (4, 4, 0, True)]),
        (8, 2, 2, [(0, 5, 0, False), (2, 5, 2, False), (4, 4, 2, True)]),
        (9, 3, 2, [(0, 5, 0, False), (3, 5, 1, False), (7, 2, 0, True)]),
    ],
)
def test_windows_worked_by_hand(num_tokens, stride, min_tail, expected):
    """seq_len is 4; (start, length with the label behind, labels that were there before, last)."""
    assert all_windows(num_tokens, DocumentCut(4, stride, min_tail)) == expected


def obvious(num_tokens: int, seq_len: int, stride: int, min_tail: int) -> list[tuple[int, int]]:
    """Return (start, tokens of the window) by walking."""
    if num_tokens < seq_len:
        return [(0, num_tokens)]
    found, start = [], 0
    while start + seq_len <= num_tokens:
        found.append((start, seq_len))
        start += stride
    behind = found[-1][0] + seq_len
    if num_tokens - behind >= max(min_tail, 1):
        found.append((behind, num_tokens - behind))
    return found


@given(st.data())
def test_windows_are_those_of_a_walk(data):
    """Each token that any window holds is a label exactly once, but for the document's first."""
    seq_len = data.draw(st.integers(1, 12))
    stride = data.draw(st.integers(1, seq_len))
    min_tail = data.draw(st.integers(0, seq_len))
    num_tokens = data.draw(st.integers(1, 60))
    windows = all_windows(num_tokens, DocumentCut(seq_len, stride, min_tail))
    walked = obvious(num_tokens, seq_len, stride, min_tail)
    assert [(start, min(length, seq_len)) for start, length, _, _ in windows] == walked
    assert [stop for *_, stop in windows] == [False] * (len(walked) - 1) + [True]
    targets = [
        start + place + 1
        for start, length, overlap, _ in windows
        for place in range(overlap, min(seq_len, length - 1))
    ]
    assert targets == list(range(1, walked[-1][0] + walked[-1][1]))


def test_short_and_empty_documents_are_dropped():
    """By their text's tokens: the end-of-text token makes no document long enough."""
    assert DocumentCut.of(8, None, None).is_kept(np.array([0, 1, 2, 3])).tolist() == [
        False,
        False,
        True,
        True,
    ]
    assert DocumentCut.of(8, None, 0).is_kept(np.array([0, 1])).tolist() == [False, True]


@pytest.mark.parametrize(("stride", "min_tail", "words"), [(0, 1, "stride"), (5, 1, "stride"), (4, 5, "min")])
def test_a_cut_out_of_range_is_refused(stride, min_tail, words):
    """With the range."""
    with pytest.raises(ConfigError, match=words):
        DocumentCut(4, stride, min_tail)
