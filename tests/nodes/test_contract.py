"""The project's own nodes and pipelines keep the contract that `tdstream.testing` checks for everybody's."""

from __future__ import annotations

import json

import pytest

import tdstream
from helpers_documents import write_indexed
from tdstream.nodes import (
    Collate,
    DocumentCut,
    DocumentFields,
    DocumentMarks,
    DocumentWindows,
    EpochPermutation,
    MemmapReader,
    PackedDocuments,
    PackOptions,
    SampleRange,
    ShardSource,
    Splitter,
    Topology,
)
from tdstream.testing import check_node, check_pipeline

ENDS, TOTAL = [5, 14, 17, 29, 36, 40, 60, 77, 78, 99], 110


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Return two corpora of eleven documents in three shards, of the same sizes and with other checksums."""
    found = []
    for name in ("one", "other"):
        directory = write_indexed(tmp_path_factory.mktemp("contract") / name, ENDS, TOTAL, [29, 70])
        meta = json.loads((directory / "meta.json").read_text())
        meta["chunk_checksums"] = {chunk["file"]: f"{name} {chunk['file']}" for chunk in meta["chunks"]}
        (directory / "meta.json").write_text(json.dumps(meta))
        found.append(directory)
    return found


def plain(corpus, **options):
    """Return a reader of plain windows."""
    return MemmapReader(ShardSource(corpus), seq_len=4, **options)


def marked(corpus):
    """Return plain windows with the ends of documents."""
    source = ShardSource(corpus)
    return DocumentMarks(MemmapReader(source, seq_len=4), source.ends())


def windows(corpus, **options):
    """Return a reader of windows of documents."""
    source = ShardSource(corpus)
    return DocumentWindows(source, source.ends(), DocumentCut(4, 3, 1), **options)


def packed(corpus, seq_len=8):
    """Return a reader of packed documents."""
    source = ShardSource(corpus)
    ends = source.ends()
    options = PackOptions(seq_len=seq_len, documents=(0, ends.num_documents))
    return PackedDocuments(source, ends, options)


def ordered(corpus, **options):
    """Return plain windows in an order."""
    return EpochPermutation(plain(corpus), **{"shuffle": True, **options})


def mixed(corpus, **options):
    """Return the node of a mixture."""
    sources = {"a": (corpus, 1), "b": (corpus, 2)}
    return tdstream.build(sources, seq_len=4, batch_size=2, shuffle=True, **options).mixture


NODES = {  # each with another one, whose state it refuses
    "source": (ShardSource, None),
    "plain": (plain, lambda corpus: plain(corpus, stride=4)),
    "part": (lambda corpus: plain(corpus, part=(29, 70)), plain),
    "marked": (marked, plain),
    "windows": (windows, lambda corpus: windows(corpus, pad_id=1)),
    "windows with ends": (lambda corpus: windows(corpus, mark_ends=True), None),
    "packed": (packed, lambda corpus: packed(corpus, 7)),
    "range": (lambda corpus: SampleRange(plain(corpus), 3, 12), plain),
    "order": (ordered, lambda corpus: ordered(corpus, seed=43)),
    "block order": (lambda corpus: ordered(corpus, shuffle="block", block_samples=4), ordered),
    "numpy order": (lambda corpus: ordered(corpus, order="numpy"), ordered),
    "stored order": (lambda corpus: ordered(corpus, shuffle=False), ordered),
    "mixture": (mixed, lambda corpus: mixed(corpus, cut="document")),
    "mixture of packed": (lambda corpus: mixed(corpus, cut="pack", source_id=True), mixed),
    "splitter": (lambda corpus: Splitter(ordered(corpus), topology=Topology(1, 2), batch_size=2), None),
    "collate": (lambda _: Collate(batched=True), lambda _: Collate(batched=True, labels="same")),
    "collate documents": (lambda _: Collate(batched=True, documents=DocumentFields()), None),
}


@pytest.mark.parametrize("name", NODES)
def test_nodes_keep_the_contract(corpora, name):
    """Every node. "shard_tokens" only serve a message; a mixture's "stop" is one of three words."""
    make, make_other = NODES[name]
    corpus, other_corpus = corpora
    if make is ShardSource:
        check_node(lambda: make(corpus), make_other=lambda: make(other_corpus), descriptive=("shard_tokens",))
    else:
        other = None if make_other is None else lambda: make_other(corpus)
        check_node(lambda: make(corpus), make_other=other, descriptive=("stop",) * name.startswith("mixture"))


PIPELINES = {
    "stored order": {"shuffle": False},
    "block": {"shuffle": "block", "block_samples": 4},
    "numpy": {"order": "numpy"},
    "wrap": {"tail": "wrap"},
    "document": {"cut": "document"},
    "documents": {"documents": True},
    "range": {"samples": slice(2, 19)},
    "samples": {"batch_size": None, "seq_len": 10},
}


def make_pipeline(source, **options):
    """Return what `build` makes."""
    return tdstream.build(source, **{"seq_len": 4, "batch_size": 4, "shuffle": True, **options})


@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_keep_the_contract(corpora, name):
    """Every kind; workers do not know which one it is."""
    check_pipeline(lambda: make_pipeline(corpora[0], **PIPELINES[name]), workers=(0,))


def test_a_view_keeps_the_contract(corpora):
    """A part of a corpus."""
    view, _ = tdstream.split(corpora[0], [0.8, 0.2])
    check_pipeline(lambda: make_pipeline(view), workers=(0,))


def test_pipelines_keep_the_contract_with_workers(corpora):
    """One corpus, at every position with two workers as well; and a mixture of packed rows."""
    check_pipeline(lambda: make_pipeline(corpora[0]))
    sources = {"a": (corpora[0], 1), "b": (corpora[1], 2)}
    check_pipeline(lambda: make_pipeline(sources, cut="pack", seq_len=8, batch_size=2, source_id=True))
