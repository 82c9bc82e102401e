"""Collate: int64 tensors, labels one token later."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from tdstream.core.errors import ConfigError, StateError
from tdstream.loading.device import copy_batch
from tdstream.nodes.batch import Batch
from tdstream.nodes.collate import Collate
from tdstream.nodes.rows import MarkedRows

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


def test_same_labels_are_the_inputs():
    """For models that shift inside."""
    batch = Collate(batched=True, labels="same")(ROWS)
    assert batch["labels"].tolist() == batch["input_ids"].tolist() == [[1, 2], [65535, 0]]


def test_other_labels_are_refused():
    """With the two words."""
    with pytest.raises(ConfigError, match='"next" or "same"'):
        Collate(batched=True, labels="last")


# T is 4; the pad id is 9, which is also the end-of-text token.
MARKED = MarkedRows(
    tokens=np.array(
        [[1, 2, 3, 4, 5], [4, 5, 6, 9, 9], [7, 9, 9, 9, 9], [9, 9, 9, 9, 9], [1, 2, 3, 9, 0]], "<u2"
    ),
    lengths=np.array([5, 4, 2, 1, 4], np.int32),
    overlaps=np.array([0, 2, 0, 0, 0], np.int32),
    stops=np.array([False, True, True, True, True]),
)
INPUTS = [[1, 2, 3, 4], [4, 5, 6, 9], [7, 9, 9, 9], [9, 9, 9, 9], [1, 2, 3, 9]]
MASK = [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]]
NEXT = [[2, 3, 4, 5], [-100, -100, 9, -100], [9, -100, -100, -100], [-100] * 4, [2, 3, 9, -100]]
SAME = [[1, 2, 3, 4], [-100, -100, 6, 9], [7, 9, -100, -100], [9, -100, -100, -100], [1, 2, 3, 9]]


@pytest.mark.parametrize(("labels", "expected"), [("next", NEXT), ("same", SAME)])
@pytest.mark.parametrize("travels", [False, True, "device"])
def test_marked_rows_are_masked_by_count(labels, expected, travels):
    """A real end-of-text token keeps its label, padding of the same id has none."""
    batch = Collate(batched=True, labels=labels)(MARKED, travels=bool(travels))
    if travels == "device":
        batch = copy_batch(batch, torch.clone)
    elif travels:
        batch = pickle.loads(pickle.dumps(batch))
    assert batch["input_ids"].tolist() == INPUTS
    assert batch["labels"].tolist() == expected
    assert batch["attention_mask"].tolist() == MASK
    assert batch["is_natural_stop"].tolist() == [False, True, True, True, True]
    assert {name: tensor.dtype for name, tensor in batch.items()} == {
        "input_ids": torch.int64, "labels": torch.int64, "attention_mask": torch.int64,
        "is_natural_stop": torch.bool,
    }  # fmt: skip


def test_a_marked_sample_has_a_scalar_for_its_stop():
    """So that the caller's loader stacks it to [B]."""
    fields = (MARKED.tokens, MARKED.lengths, MARKED.overlaps, MARKED.stops)
    sample = Collate(batched=False)(MarkedRows(*(field[1:2] for field in fields)))
    assert sample["labels"].tolist() == NEXT[1]
    assert sample["is_natural_stop"].shape == ()
