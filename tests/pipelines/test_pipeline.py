"""Pipeline: the nodes together, and one pass that can be saved."""

from __future__ import annotations

import pytest

import tdstream
from tdstream.core.errors import StateError


def first_tokens(items):
    """Return the first token of each row, by item."""
    return [item["input_ids"][:, 0].tolist() for item in items]


def test_it_shows_its_nodes(make_corpus):
    """From left to right, with their settings."""
    pipe = tdstream.build(make_corpus(30, 30), seq_len=4, batch_size=3, shuffle=True, seed=7)
    assert repr(pipe) == (
        "ShardSource(2 shards, 60 tokens) > MemmapReader(12 samples of 5 tokens) > "
        "EpochPermutation(feistel, seed=7) > Splitter(rank 0 of 1: 4 batches of 3) > Collate(batches)"
    )


def test_a_batch_that_cannot_be_made_is_tried_again(make_corpus, monkeypatch):
    """Memory may run out between reading and collating; the next call, or a resume, has that batch."""
    pipe = tdstream.build(make_corpus(60), seq_len=4, batch_size=2)
    whole = first_tokens(pipe)
    pipe.set_epoch(0)
    iterator = iter(pipe)
    next(iterator)
    collate = pipe.collate
    pipe.collate = lambda *_, **__: (_ for _ in ()).throw(MemoryError)
    with pytest.raises(MemoryError):
        next(iterator)
    pipe.collate = collate
    state = iterator.state_dict()
    resumed = iter(tdstream.build(make_corpus(60), seq_len=4, batch_size=2))
    resumed.load_state_dict(state)
    assert first_tokens(resumed) == whole[1:]
    assert first_tokens(iterator) == whole[1:]


def test_a_state_of_another_pipeline_is_refused(make_corpus):
    """It names the parts that are missing."""
    iterator = iter(tdstream.build(make_corpus(60), seq_len=4, batch_size=2))
    state = iterator.state_dict()
    del state["nodes"]["reader"], state["nodes"]["splitter"]
    with pytest.raises(StateError, match="the state has nothing of reader, splitter"):
        iterator.load_state_dict(state)


def test_every_node_is_saved_by_name(make_corpus):
    """source, reader, permutation, splitter, collate; the splitter alone knows where we are."""
    iterator = iter(tdstream.build(make_corpus(60), seq_len=4, batch_size=2))
    before = iterator.state_dict()
    next(iterator)
    after = iterator.state_dict()
    assert list(after["nodes"]) == ["source", "reader", "permutation", "splitter", "collate"]
    assert {name for name in after["nodes"] if after["nodes"][name] != before["nodes"][name]} == {"splitter"}
