"""Batch: torch's default collation hands it on as it is."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, default_collate, default_convert

import tdstream
from tdstream.nodes.batch import Batch, PackedBatch
from tdstream.nodes.collate import inputs_and_labels


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
    with pytest.raises(ValueError, match=r"batch_size is 3, on top of.*change the order.*Leave the loader's"):
        default_collate([batch, batch, batch])


def test_it_is_a_dict(batch):
    """So trainers can move, copy, and send it."""
    assert isinstance(batch, dict)
    assert type(copy.copy(batch)) is Batch
    assert type(pickle.loads(pickle.dumps(batch))) is Batch
    assert type(Batch({key: value + 1 for key, value in batch.items()})) is Batch


def double(batch):
    """Stand for a user's collate_fn, which runs in the worker: it changes the batch in place."""
    batch["input_ids"] *= 2
    batch["mask"] = torch.ones_like(batch["labels"])
    return batch


@pytest.mark.parametrize("how", ["default", "none", "collate_fn", "spawn"])
def test_a_workers_batch_arrives_as_it_would_without(make_corpus, how):
    """Whether it travels packed, was converted, or was changed by the user's own collate_fn in the worker."""
    options = {
        "default": {},
        "none": {"batch_size": None},
        "collate_fn": {"batch_size": None, "collate_fn": double},
        "spawn": {"multiprocessing_context": "spawn"},
    }[how]
    pipe = tdstream.build(make_corpus(100), seq_len=4, batch_size=3)
    here = DataLoader(pipe, **{**options, "multiprocessing_context": None})
    alone = [{name: tensor.tolist() for name, tensor in batch.items()} for batch in here]
    pipe = tdstream.build(make_corpus(100), seq_len=4, batch_size=3)
    arrived = list(DataLoader(pipe, num_workers=2, **options))
    assert [{name: tensor.tolist() for name, tensor in batch.items()} for batch in arrived] == alone
    assert all(type(batch) is Batch for batch in arrived)


def packed():
    """Return a batch as a worker has it."""
    return PackedBatch(inputs_and_labels, np.arange(8, dtype="<u2").reshape(2, 4))


def test_a_packed_batch_travels_as_it_is_stored():
    """The tokens in two bytes each, not twice in eight."""
    sent = pickle.dumps(PackedBatch(inputs_and_labels, np.zeros((8, 1025), "<u2")))
    assert len(sent) < 8 * 1025 * 2 + 500
    arrived = pickle.loads(sent)
    assert type(arrived) is Batch
    assert arrived["input_ids"].shape == (8, 1024)


def fields(**tensors):
    """Stand for a model's forward."""
    return tensors


@pytest.mark.parametrize(
    "touch",
    [
        lambda b: b["input_ids"],
        list,
        len,
        lambda b: "labels" in b,
        dict,
        lambda b: {**b},
        lambda b: b | {},
        lambda b: {} | b,
        lambda b: b.items(),
        lambda b: b.get("labels"),
        lambda b: b.copy(),
        lambda b: b.pop("labels"),
        lambda b: b.update(mask=torch.ones(1)),
        lambda b: b.setdefault("labels", None),
        lambda b: b == {},
        repr,
        lambda b: list(reversed(b)),
        lambda b: fields(**b),
    ],
)
def test_a_touched_batch_is_unpacked(touch):
    """Whatever a user's code does with it, it finds what a Batch has."""
    ready = pickle.loads(pickle.dumps(packed()))
    untouched = packed()
    assert repr(touch(untouched)) == repr(touch(ready))
    assert type(untouched) is Batch
