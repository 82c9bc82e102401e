"""Files of hundreds of gigabytes are read at any place."""

from __future__ import annotations

import pytest
from sparse_files import make_sparse_llmc, make_sparse_megatron

import tdstream
from tdstream.formats.description import FormatOptions
from tdstream.formats.ends import open_ends
from tdstream.formats.recognize import describe

MAKERS = {
    "megatron-uint16": lambda path: make_sparse_megatron(path / "corpus"),
    "megatron-int32": lambda path: make_sparse_megatron(path / "corpus", 2 * 10**10, "int32"),
    "llmc-uint16": lambda path: make_sparse_llmc(path / "shards"),
    "llmc-uint32": lambda path: make_sparse_llmc(path / "shards", 5 * 10**9, "uint32"),
}


@pytest.fixture(params=MAKERS)
def sparse(request, tmp_path):
    """Return a sparse set."""
    return MAKERS[request.param](tmp_path)


def test_tokens_at_any_place(sparse):
    """Around bytes and tokens 2^31 and 2^32, where documents and shards begin, and at both ends."""
    rows = {place // 5 for place in sparse.marks if place // 5 < sparse.num_tokens // 5}
    for row in sorted(rows):
        dataset = tdstream.build(sparse.path, seq_len=4, batch_size=1, samples=slice(row, row + 1))
        (batch,) = dataset
        found = [*batch["input_ids"][0].tolist(), batch["labels"][0, -1].item()]
        assert found == [sparse.marks.get(place, 0) for place in range(5 * row, 5 * row + 5)], row


def test_documents_of_many_tokens(tmp_path):
    """The ends of the index, above 2^32."""
    sparse = make_sparse_megatron(tmp_path / "corpus")
    ends = open_ends(describe(sparse.path, FormatOptions()))
    assert ends.between(0, ends.num_documents).tolist() == [10**9 * number for number in range(1, 101)]
    assert sparse.ends.tolist() == [10**9 * number for number in range(1, 101)]
