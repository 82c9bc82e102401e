"""The golden files hold what golden_truth.py says of them, and sparse ones take no room."""

from __future__ import annotations

import numpy as np
import pytest
from golden_truth import DATATROVE, GOLDEN, GPT2, LLAMA, READABLE, REFUSED, SETS, WIDE, ends_of, first, last
from oracles import read_with_llmc, read_with_nanogpt
from sparse_files import make_sparse_llmc, make_sparse_megatron

MAPPED = [one for one in SETS.values() if one.pieces]


def named(one):
    """Return the id of a test."""
    return one.name


@pytest.mark.parametrize("one", MAPPED, ids=named)
def test_the_tokens_lie_where_the_truth_says(one):
    """The bytes at each piece are those of the stream, the whole stream."""
    kind, start = np.dtype(one.dtype).newbyteorder("<"), 0
    for piece in one.pieces:
        expected = np.array(one.tokens[start : start + piece.tokens], kind).tobytes()
        data = (GOLDEN / piece.file).read_bytes()
        assert data[piece.offset : piece.offset + len(expected)] == expected, piece
        start += piece.tokens
    assert start == len(one.tokens)


def test_what_can_be_read_has_pieces_and_what_cannot_has_a_reason():
    """Nothing readable is without tokens, and nothing lies outside the stream."""
    for one in READABLE:
        assert one.pieces, one.name
        assert one.tokens, one.name
        assert one.ends is None or one.ends[-1] <= len(one.tokens)
    assert {one.name for one in REFUSED} == {one.name for one in SETS.values()} - {
        one.name for one in READABLE
    }


def test_every_set_is_there_and_small():
    """Each path exists, a prefix by its two files and a pattern by what it matches."""
    for one in SETS.values():
        found = list(
            one.place.parent.glob(f"{one.place.name}*" if one.format == "megatron" else one.place.name)
        )
        assert found, one.name
    files = [file for file in GOLDEN.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 500_000
    assert max(file.stat().st_size for file in files if file.suffix != ".py") < 5_000


def test_documents_by_hand():
    """Ten documents; the third is empty: it repeats an end, or is nothing but its token."""
    assert ends_of(WIDE) == [5, 6, 6, 18, 318, 325, 389, 391, 424, 425]
    assert ends_of(last(WIDE, LLAMA)) == [6, 8, 9, 22, 323, 331, 396, 399, 433, 435]
    assert [document[-1] for document in last(WIDE, DATATROVE)] == [DATATROVE] * 10
    assert [document[0] for document in first(WIDE, LLAMA)] == [LLAMA] * 10
    assert WIDE[1] == [205_000]
    assert WIDE[-1] == [624_000]


@pytest.mark.parametrize("name", ["llmc_u16", "llmc_u32", "modded"])
def test_a_parser_of_its_own_reads_llmc(name):
    """Header, size and documents that begin with their token."""
    one = SETS[name]
    assert read_with_llmc(one.files(), one.eos_token_id) == (one.tokens, one.ends)


@pytest.mark.parametrize("name", ["nanogpt_train", "nanogpt_val"])
def test_nanogpt_reads_its_files(name):
    """train.py's memmap."""
    assert read_with_nanogpt(SETS[name].place).tokens == SETS[name].tokens


def test_end_tokens_are_in_the_files_only_where_the_truth_says():
    """Documents have no token that could be taken for one that marks them."""
    for one in READABLE:
        count = one.tokens.count(one.eos_token_id) if one.eos_token_id is not None else 0
        assert one.eos_token_id is None or count > 0, one.name
        assert one.eos_token_id is not None or not {GPT2, LLAMA} & set(one.tokens), one.name


def test_a_sparse_prefix_of_many_tokens(tmp_path):
    """10^11 tokens are 200 GB that take next to nothing; marks lie at and above bytes 2^31, 2^32, 2^33."""
    sparse = make_sparse_megatron(tmp_path / "corpus")
    file = tmp_path / "corpus.bin"
    assert file.stat().st_size == 2 * 10**11
    assert file.stat().st_blocks * 512 < 1 << 20
    assert (tmp_path / "corpus.idx").stat().st_size == 34 + 12 * 100 + 8 * 101
    assert sparse.ends[-1] == 10**11
    mapped = np.memmap(file, "<u2", "r")
    for place, token in sparse.marks.items():
        assert mapped[place] == token
    assert {1 << 30, (1 << 30) - 1, 1 << 31, 1 << 32, 10**11 - 1} <= set(sparse.marks)


@pytest.mark.parametrize(("dtype", "shards"), [("uint16", 3), ("uint32", 3)])
def test_a_sparse_set_of_llmc(tmp_path, dtype, shards):
    """Shards as long as an int32 can tell; the last is shorter."""
    sparse = make_sparse_llmc(tmp_path / "llmc", 5 * 10**9, dtype)
    files = sorted(sparse.path.iterdir())
    itemsize = np.dtype(dtype).itemsize
    assert len(files) == shards
    assert sum(file.stat().st_size - 1024 for file in files) == itemsize * 5 * 10**9
    assert sum(file.stat().st_blocks for file in files) * 512 < 1 << 20
    for place, token in sparse.marks.items():
        number, rest = divmod(place, (1 << 31) - 1)
        assert np.memmap(files[number], np.dtype(dtype), "r", offset=1024)[rest] == token
