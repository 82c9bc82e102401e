"""Batch: torch's default collation hands it on as it is."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch.utils.data import default_collate, default_convert

from tdstream.batch import Batch


@pytest.fixture
def batch():
    """Two rows of three tokens."""
    return Batch(input_ids=torch.arange(6).reshape(2, 3), labels=torch.arange(1, 7).reshape(2, 3))


def test_a_loader_of_batch_size_1_hands_it_on(batch):
    """[2, 3] stays [2, 3], and it stays a Batch."""
    handed = default_collate([batch])
    assert isinstance(handed, Batch)
    assert handed["input_ids"].shape == (2, 3)


def test_a_loader_without_batching_hands_it_on(batch):
    """The same with batch_size=None."""
    assert isinstance(default_convert(batch), Batch)


def test_batching_batches_is_refused(batch):
    """The sentence says what would happen and what to do."""
    with pytest.raises(ValueError, match=r"batch_size is 3 on top of.*change the order.*Leave the loader's"):
        default_collate([batch, batch, batch])


def test_it_is_a_dict(batch):
    """So trainers can move, copy, and send it."""
    assert isinstance(batch, dict)
    assert type(copy.copy(batch)) is Batch
    assert type(pickle.loads(pickle.dumps(batch))) is Batch
    assert type(Batch({key: value + 1 for key, value in batch.items()})) is Batch
