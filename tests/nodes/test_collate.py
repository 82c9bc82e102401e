"""Collate: int64 tensors, labels one token later."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tdstream.batch import Batch
from tdstream.errors import StateError
from tdstream.nodes.collate import Collate

ROWS = np.array([[1, 2, 3], [65535, 0, 7]], dtype="<u2")


def test_labels_are_the_next_tokens():
    """labels[i] is what follows input_ids[i]."""
    batch = Collate(batched=True)(ROWS)
    assert isinstance(batch, Batch)
    assert batch["input_ids"].tolist() == [[1, 2], [65535, 0]]
    assert batch["labels"].tolist() == [[2, 3], [0, 7]]


def test_tensors_are_int64_and_contiguous():
    """As embeddings and losses take them, without another copy."""
    for tensor in Collate(batched=True)(ROWS).values():
        assert tensor.dtype == torch.int64
        assert tensor.is_contiguous()


def test_a_sample_is_a_plain_dict():
    """A Batch would not be stacked by the caller's loader."""
    sample = Collate(batched=False)(ROWS[:1])
    assert type(sample) is dict
    assert sample["input_ids"].tolist() == [1, 2]
    assert sample["labels"].tolist() == [2, 3]


def test_batches_own_their_memory():
    """Changing a batch never reaches the corpus."""
    rows = ROWS.copy()
    Collate(batched=True)(rows)["input_ids"][0, 0] = 99
    assert rows[0, 0] == 1


def test_identity_is_the_labels():
    """A state of other labels is refused."""
    collate = Collate(batched=True)
    collate.load_state_dict(collate.state_dict())
    with pytest.raises(StateError, match=r"collate\.labels was 'same', is 'next'"):
        collate.load_state_dict({"labels": "same"})
