"""The fields of documents as they travel, on any device, and into compiled attention."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import tdstream
from helpers_documents import listed
from tdstream.core.errors import ConfigError
from tdstream.loading.device import copy_batch
from tdstream.nodes.batch import Batch
from tdstream.nodes.collate import Collate
from tdstream.nodes.document_fields import DocumentFields, document_tensors
from tdstream.nodes.rows import DocumentRows, RowEnds

# T is 4. The first row's documents end behind its second and its last input, the second row goes on.
ROWS = DocumentRows(np.arange(1, 11, dtype="<u2").reshape(2, 5), RowEnds(np.array([2, 0]), np.array([2, 4])))
EXPECTED = {
    "input_ids": [[1, 2, 3, 4], [6, 7, 8, 9]],
    "labels": [[2, -100, 4, -100], [7, 8, 9, 10]],
    "document_ids": [[0, 0, 1, 1], [0, 0, 0, 0]],
    "position_ids": [[0, 1, 0, 1], [0, 1, 2, 3]],
    "cu_seqlens": [0, 2, 4, 8],
    "max_seqlen": 4,
}
DTYPES = {
    "input_ids": torch.int64, "labels": torch.int64, "document_ids": torch.int32,
    "position_ids": torch.int64, "cu_seqlens": torch.int32,
}  # fmt: skip


def packed(capacity=None, **options):
    """Return a batch as a worker has it."""
    collate = Collate(batched=True, documents=DocumentFields(capacity=capacity))
    collate.stays_packed = options.get("stays_packed", False)
    return collate(ROWS, travels=True)


@pytest.mark.parametrize("how", ["here", "touched", "arrived", "arrived packed", "on a device"])
def test_a_batch_says_the_same_wherever_it_is_made(how):
    """In the process that reads, where it arrives, or on a device, from tensors."""
    if how == "here":
        batch = Collate(batched=True, documents=DocumentFields())(ROWS)
    elif how == "touched":
        batch = packed()
    elif how == "on a device":
        batch = copy_batch(pickle.loads(pickle.dumps(packed(stays_packed=True))), torch.clone)
    else:
        batch = pickle.loads(pickle.dumps(packed(stays_packed=how == "arrived packed")))
    assert listed(batch) == EXPECTED
    assert {name: value.dtype for name, value in batch.items() if name != "max_seqlen"} == DTYPES
    assert type(batch) is Batch


def test_batches_on_a_device_are_moved_with_their_numbers():
    """max_seqlen is a number, which no device holds."""
    batch = copy_batch(Batch(pickle.loads(pickle.dumps(packed()))), torch.clone)
    assert listed(batch) == EXPECTED


@pytest.mark.parametrize("capacity", [None, 4, 9])
def test_ids_and_places_are_the_same_from_arrays_and_from_tensors(capacity):
    """Numpy makes them on the CPU, torch on a device, where nothing may be asked for."""
    generator = np.random.default_rng(0)
    rows, seq_len = 3, 17
    for count in (0, 1, 20):
        inside = generator.choice(np.arange(1, rows * seq_len), count, replace=False)
        borders = np.union1d(inside, np.arange(rows + 1) * seq_len).astype(np.int32)
        if capacity is not None:
            borders = np.concatenate([borders, np.full(capacity, borders[-1])]).astype(np.int32)
        made = [
            listed(document_tensors(given, 5, rows, seq_len))
            for given in (borders, torch.from_numpy(borders))
        ]
        assert made[0] == made[1]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("cut", ["stream", "document", "pack"])
def test_workers_hand_over_the_same(tmp_path, monkeypatch, workers, cut):
    """Through the loader, and through a plain DataLoader."""
    from helpers_documents import write_indexed

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    corpus = write_indexed(tmp_path / "corpus", [3, 4, 11, 20, 33, 40], 60, [17, 17, 30])
    options = {"seq_len": 6, "cut": cut, "documents": True, "shuffle": True}
    pipe = tdstream.build(corpus, batch_size=2, **options)
    expected = [listed(batch) for batch in pipe]
    loader = tdstream.loader(corpus, batch_size=2, num_workers=workers, **options)
    assert [listed(batch) for batch in loader] == expected
    pipe.set_epoch(0)
    assert [listed(batch) for batch in DataLoader(pipe, batch_size=None, num_workers=workers)] == expected
    stacked = next(iter(DataLoader(tdstream.build(corpus, **options), batch_size=2)))
    assert {name: stacked[name].tolist() for name in stacked} == {name: expected[0][name] for name in stacked}
    assert {"document_ids", "position_ids", "labels"} <= stacked.keys()


def test_rows_that_do_not_know_documents_are_refused():
    """Rather than served without what was asked for."""
    with pytest.raises(ConfigError, match="needs a source that knows where documents end"):
        Collate(batched=True, documents=DocumentFields())(ROWS.tokens)


def test_identity_says_whether_labels_cross_documents():
    """The capacity is none of it: a run may go on with a larger one."""
    small, large = (Collate(batched=True, documents=DocumentFields(capacity=size)) for size in (4, 8))
    large.load_state_dict(small.state_dict())
    crossing = Collate(batched=True, documents=DocumentFields(cross_labels=True))
    assert crossing.differences(small.state_dict()) == ["collate.cross_document_labels was False, is True"]
    assert Collate(batched=True).differences(small.state_dict()) == [
        "collate.documents was True, is missing",
        "collate.cross_document_labels was False, is missing",
    ]
