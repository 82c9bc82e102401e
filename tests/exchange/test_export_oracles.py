"""The tools that own the formats read our exports, token by token and end by end."""

from __future__ import annotations

import numpy as np
import pytest
from helpers_exchange import DOCUMENTS, EOS, HELD_OUT, cut, find_ends, join, make_corpus
from oracles import (
    read_with_datatrove,
    read_with_llmc,
    read_with_megatron,
    read_with_nanogpt,
    read_with_olmo,
)

import tdstream

oracle = pytest.mark.formats_oracle
pytestmark = pytest.mark.filterwarnings("default")
SHARD = 50
CUT_ENDS = find_ends([document for shard in cut(DOCUMENTS, SHARD) for document in shard])


@pytest.fixture(params=["uint16", "uint32"])
def corpus(request, tmp_path):
    """Return a corpus of three shards and the bytes of its tokens."""
    place = make_corpus(tmp_path / "corpus", shard=SHARD, dtype=request.param, held_out=HELD_OUT)
    return place, np.dtype(request.param).itemsize


@oracle
def test_megatron(tmp_path, corpus):
    """IndexedDataset reads a prefix for each shard, and one for all."""
    tdstream.export(corpus[0], tmp_path / "out", to="megatron")
    read = [read_with_megatron(tmp_path / "out" / f"chunk_{number:06d}") for number in range(3)]
    assert [one.tokens for one in read] == list(map(join, cut(DOCUMENTS, SHARD)))
    assert [one.ends for one in read] == list(map(find_ends, cut(DOCUMENTS, SHARD)))
    tdstream.export(corpus[0], tmp_path / "one", to="megatron", one_prefix=True)
    assert read_with_megatron(tmp_path / "one" / "tokens") == (join(DOCUMENTS), find_ends(DOCUMENTS))


@oracle
def test_datatrove(tmp_path, corpus):
    """Its datasets read the links, its merger the index."""
    tdstream.export(corpus[0], tmp_path / "out", to="datatrove")
    assert read_with_datatrove(tmp_path / "out", corpus[1]) == (join(DOCUMENTS), CUT_ENDS)


@oracle
def test_olmo(tmp_path, corpus):
    """olmo-core reads the documents of the tables."""
    tdstream.export(corpus[0], tmp_path / "out", to="olmo")
    dtype = {2: "uint16", 4: "uint32"}[corpus[1]]
    assert read_with_olmo(tmp_path / "out", dtype) == (join(DOCUMENTS), CUT_ENDS)


def test_llmc(tmp_path, corpus):
    """A parser after dataloader.h, for training and held-out shards."""
    tdstream.export(corpus[0], tmp_path / "out", to="llmc")
    for name, documents in (("train", DOCUMENTS), ("val", HELD_OUT)):
        moved = [[EOS, *document[:-1]] for document in documents]
        found = read_with_llmc(sorted((tmp_path / "out").glob(f"{name}_*.bin")), EOS)
        assert found == (join(moved), find_ends(moved))


def test_nanogpt(tmp_path):
    """As train.py maps them."""
    place = make_corpus(tmp_path / "corpus", shard=SHARD, held_out=HELD_OUT)
    tdstream.export(place, tmp_path / "out", to="nanogpt")
    assert read_with_nanogpt(tmp_path / "out" / "train.bin").tokens == join(DOCUMENTS)
    assert read_with_nanogpt(tmp_path / "out" / "val.bin").tokens == join(HELD_OUT)
