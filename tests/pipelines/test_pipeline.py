"""Pipeline: the nodes together, and one pass that can be saved."""

from __future__ import annotations

import pytest

import tdstream
from helpers_documents import write_indexed
from tdstream.core.errors import StateError
from tdstream.distributed.topology import Topology
from tdstream.nodes.collate import Collate
from tdstream.nodes.document_fields import make_document_fields
from tdstream.nodes.splitter import Splitter
from tdstream.pipelines.compose import compose_corpus
from tdstream.pipelines.pipeline import Pipeline
from tdstream.schedule.windows import SampleSpec


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
    with pytest.raises(StateError, match="the state has no entry for reader, splitter"):
        iterator.load_state_dict(state)


def test_every_node_is_saved_by_name(make_corpus):
    """source, reader, permutation, splitter, collate; the splitter alone knows where we are."""
    iterator = iter(tdstream.build(make_corpus(60), seq_len=4, batch_size=2))
    before = iterator.state_dict()
    next(iterator)
    after = iterator.state_dict()
    assert list(after["nodes"]) == ["source", "reader", "permutation", "splitter", "collate"]
    assert {name for name in after["nodes"] if after["nodes"][name] != before["nodes"][name]} == {"splitter"}


def said(item):
    """Return what an item says, as lists."""
    return {name: value.tolist() if name != "max_seqlen" else value for name, value in item.items()}


@pytest.mark.parametrize("cut", ["stream", "document", "pack"])
def test_a_pipeline_made_by_hand_is_the_one_that_build_makes(tmp_path, cut):
    """Nodes put together one by one give the same batches, states and repr, and load each other's states."""
    corpus = write_indexed(tmp_path / "corpus", [5, 14, 17, 29, 36, 40, 60], 68, [29])
    spec = SampleSpec(seq_len=4, cut=cut, shuffle=True, seed=7)
    nodes = compose_corpus(corpus, spec)
    splitter = Splitter(nodes[-1], topology=Topology(0, 1), batch_size=2)
    fields = make_document_fields(spec.marks_ends, batched=True, cross_labels=False, capacity=None)
    made = Pipeline(nodes, splitter, Collate(batched=True, documents=fields), strict=True)
    built = tdstream.build(corpus, seq_len=4, batch_size=2, shuffle=True, seed=7, cut=cut)
    assert repr(made) == repr(built)
    assert len(made) == len(built) > 2
    first, second = iter(made), iter(built)
    for item, other in zip(first, second, strict=True):
        assert said(item) == said(other)
        assert first.state_dict() == second.state_dict()
    state = iter(made).state_dict()
    iter(built).load_state_dict(state)


def test_a_pipeline_without_a_batch_is_true(make_corpus):
    """`if pipeline:` asks whether there is one, not how many batches it has."""
    empty = tdstream.build(make_corpus(20), seq_len=4, batch_size=50, strict=False)
    assert len(empty) == 0
    assert empty
