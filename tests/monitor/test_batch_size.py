"""What a batch holds, worked out by hand."""

from __future__ import annotations

from collections import UserDict

import torch

from tdstream.monitor.meter import count_bytes, count_tokens

ROWS = torch.zeros(4, 6, dtype=torch.int64)


def test_labels_count_and_else_input_ids():
    """Elements, of whatever kind of mapping."""
    assert count_tokens({"input_ids": ROWS, "labels": ROWS[:, 1:]}) == 20
    assert count_tokens(UserDict(input_ids=ROWS)) == 24


def test_padding_does_not_count():
    """The ones of the mask are the tokens: 6 + 2."""
    mask = torch.tensor([[1] * 6, [1, 1, 0, 0, 0, 0]])
    assert count_tokens({"input_ids": ROWS[:2], "labels": ROWS[:2], "attention_mask": mask}) == 8


def test_tensors_and_pairs():
    """Integers are tokens, numbers with a fraction are not; of a pair the first counts."""
    assert count_tokens(ROWS) == 24
    assert count_tokens((ROWS, ROWS)) == 24
    assert (
        count_tokens([])
        == count_tokens("text")
        == count_tokens(ROWS.float())
        == count_tokens({"label": 3})
        == 0
    )


def test_bytes_of_all_tensors():
    """8 bytes each of 24 integers, 4 each of 24 floats, nested or not; what is no tensor has none."""
    assert count_bytes({"a": ROWS, "b": (ROWS.float(), "text"), "c": None}) == 24 * 8 + 24 * 4
    assert count_bytes(ROWS) == 192
