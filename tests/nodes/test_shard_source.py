"""ShardSource: what a corpus promises is what its files hold, or a sentence says where not."""

from __future__ import annotations

import json
import logging
import os
import pickle

import numpy as np
import pytest

from tdstream.core.errors import ConfigError, CorpusError, CorpusNotFoundError, StateError
from tdstream.nodes.shard_source import ShardSource


def edit_meta(corpus, **changes):
    """Change keys of a corpus's meta.json."""
    path = corpus / "meta.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_shards_are_one_stream(make_corpus):
    """Shard i holds the tokens from offsets[i] to offsets[i + 1]."""
    source = ShardSource(make_corpus(10, 7, 3))
    assert source.offsets.tolist() == [0, 10, 17, 20]
    assert source.total_tokens == 20
    assert source.files == ["chunk_000000.bin", "chunk_000001.bin", "chunk_000002.bin"]


def test_the_order_is_metas(make_corpus):
    """meta.json says the order of the shards, not their names."""
    corpus = make_corpus(4, 6)
    chunks = [{"file": "chunk_000001.bin", "tokens": 6}, {"file": "chunk_000000.bin", "tokens": 4}]
    edit_meta(corpus, chunks=chunks)
    assert ShardSource(corpus).offsets.tolist() == [0, 6, 10]


@pytest.mark.parametrize(("dtype", "itemsize"), [("uint16", 2), ("uint32", 4)])
def test_the_type_is_metas(make_corpus, dtype, itemsize):
    """Tokens are little-endian and as wide as meta.json says."""
    source = ShardSource(make_corpus(10, dtype=dtype))
    assert source.dtype == np.dtype(f"<u{itemsize}")


def test_without_meta_the_files_count(make_corpus):
    """A bare directory of *.bin is read in name order, given the type."""
    source = ShardSource(make_corpus(10, 7, dtype="uint16", meta=False), dtype="uint16")
    assert source.offsets.tolist() == [0, 10, 17]


def test_without_meta_the_type_is_asked_for(make_corpus):
    """Guessing a type would turn tokens into garbage without a word."""
    with pytest.raises(ConfigError, match=r'has no meta\.json.*Pass dtype="uint16" or dtype="uint32"'):
        ShardSource(make_corpus(10, meta=False))


def test_a_missing_directory_is_named(tmp_path):
    """The sentence says what was expected there and how to make one."""
    with pytest.raises(CorpusNotFoundError, match=r"nowhere is not a directory.*tdstream prepare"):
        ShardSource(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        ShardSource(tmp_path / "nowhere")


def test_an_empty_directory_is_no_corpus(tmp_path):
    """Neither meta.json nor shards."""
    with pytest.raises(CorpusNotFoundError, match=r"no meta\.json and no \*\.bin file"):
        ShardSource(tmp_path)


def test_an_unfinished_preparation_is_no_corpus(make_corpus):
    """Shards without meta.json beside a running preparation are not read as a bare corpus."""
    corpus = make_corpus(10, meta=False)
    (corpus / ".preparing").mkdir()
    with pytest.raises(CorpusError, match="has not finished"):
        ShardSource(corpus, dtype="uint32")


def test_a_missing_shard_is_named(make_corpus):
    """With the tokens that are missed."""
    corpus = make_corpus(10, 7)
    os.unlink(corpus / "chunk_000001.bin")
    with pytest.raises(CorpusNotFoundError, match=r"chunk_000001\.bin is missing.*promises 7 tokens"):
        ShardSource(corpus)


@pytest.mark.parametrize(("tokens", "held"), [(1000, "1,000"), (3000, "3,000")])
def test_a_shard_of_another_size_is_named(make_corpus, tokens, held):
    """Shorter or longer, with both numbers."""
    corpus = make_corpus(10, 2000)
    (corpus / "chunk_000001.bin").write_bytes(bytes(4 * tokens))
    with pytest.raises(
        CorpusError, match=rf"chunk_000001\.bin.*\({held} tokens\).*promises .*\(2,000 tokens\)"
    ):
        ShardSource(corpus)


@pytest.mark.parametrize("meta", [True, False])
def test_half_a_token_is_refused(make_corpus, meta):
    """A file that is not a multiple of the token size was cut."""
    corpus = make_corpus(10, meta=meta)
    (corpus / "chunk_000000.bin").write_bytes(bytes(41))
    with pytest.raises(CorpusError, match=r"chunk_000000\.bin .*has 41 bytes\W+not a multiple of"):
        ShardSource(corpus, dtype="uint32")


def test_an_unknown_type_is_refused(make_corpus):
    """Whether meta.json or the caller names it."""
    corpus = make_corpus(10)
    with pytest.raises(ConfigError, match='dtype must be "uint16" or "uint32", got \'int8\''):
        ShardSource(corpus, dtype="int8")
    with pytest.raises(ConfigError, match="a corpus is named by its directory, got list"):
        ShardSource(["a text"])
    assert ShardSource(corpus, dtype=np.uint32).total_tokens == 10
    edit_meta(corpus, dtype="float32")
    with pytest.raises(CorpusError, match=r"meta\.json has dtype 'float32'"):
        ShardSource(corpus)


def test_a_type_against_metas_is_refused(make_corpus):
    """The caller's type may repeat meta.json's, not contradict it."""
    corpus = make_corpus(10)
    assert ShardSource(corpus, dtype="uint32").total_tokens == 10
    with pytest.raises(ConfigError, match=r"dtype='uint16' contradicts .*meta\.json, which says 'uint32'"):
        ShardSource(corpus, dtype="uint16")


def test_strays_are_ignored_and_said_once(make_corpus, caplog):
    """A *.bin file that meta.json does not list is no part of the corpus."""
    corpus = make_corpus(10)
    (corpus / "extra.bin").write_bytes(bytes(40))
    (corpus / "notes.txt").write_text("not a shard")
    with caplog.at_level(logging.WARNING):
        source = ShardSource(corpus)
    assert source.total_tokens == 10
    assert [record.getMessage() for record in caplog.records] == [
        f"{corpus}/meta.json does not list extra.bin; ignored."
    ]


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"dtype": "uint32"}', '{"dtype": "uint32", "chunks": [{"file": 1}]}']
)
def test_a_broken_meta_is_refused(make_corpus, text):
    """Cut or foreign JSON ends in a sentence that names the file."""
    corpus = make_corpus(10)
    (corpus / "meta.json").write_text(text)
    with pytest.raises(CorpusError, match=r"meta\.json .*Prepare the corpus again"):
        ShardSource(corpus)


def test_a_meta_that_contradicts_itself_is_refused(make_corpus):
    """total_tokens is the sum of the chunks."""
    corpus = make_corpus(10, 7)
    edit_meta(corpus, total_tokens=18)
    with pytest.raises(CorpusError, match="promises total_tokens 18, its shards add up to 17"):
        ShardSource(corpus)


def test_a_newer_format_is_refused(make_corpus):
    """Rather than read as if it were the old one."""
    corpus = make_corpus(10)
    edit_meta(corpus, format_version=99)
    with pytest.raises(CorpusError, match="format_version 99, this tdstream reads up to 1"):
        ShardSource(corpus)


def test_nothing_is_opened(make_corpus):
    """Construction looks at sizes; it opens no shard."""
    corpus = make_corpus(10, 7)
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    source = ShardSource(corpus)
    assert source.total_tokens == 17
    if before:
        assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_moved_corpus_is_the_same(make_corpus):
    """Identity does not know the directory."""
    corpus = make_corpus(10, 7)
    state = ShardSource(corpus).state_dict()
    moved = corpus.rename(corpus.with_name("elsewhere"))
    ShardSource(moved).load_state_dict(state)


def test_another_shard_size_is_named(make_corpus):
    """The first shard that differs, with both numbers."""
    state = ShardSource(make_corpus(1000, 1000, 1000, name="a")).state_dict()
    with pytest.raises(StateError, match=r"shard chunk_000002\.bin had 1,000 tokens, has 990"):
        ShardSource(make_corpus(1000, 1000, 990, name="b")).load_state_dict(state)


def test_equal_sizes_with_other_tokens_are_another_corpus(make_corpus):
    """Checksums, where both corpora have them, are part of the identity."""
    corpus = make_corpus(10)
    plain = ShardSource(corpus).state_dict()
    edit_meta(corpus, chunk_checksums={"chunk_000000.bin": "sha256:aa"})
    checked = ShardSource(corpus)
    checked.load_state_dict(plain)
    state = checked.state_dict()
    edit_meta(corpus, chunk_checksums={"chunk_000000.bin": "sha256:bb"})
    with pytest.raises(StateError, match=r"source\.content was"):
        ShardSource(corpus).load_state_dict(state)


def test_many_sizes_make_a_small_state(make_corpus):
    """The state does not grow with the corpus, and still tells two corpora apart."""
    many = ShardSource(make_corpus(*range(1, 200), name="many"))
    swapped = ShardSource(make_corpus(2, 1, *range(3, 200), name="swapped"))
    assert len(json.dumps(many.state_dict())) < 400
    with pytest.raises(StateError, match="the sizes of the shards differ"):
        swapped.load_state_dict(many.state_dict())


def test_a_corpus_that_was_appended_to_is_named_so(make_corpus):
    """The refusal says where the new shards begin, not only that sizes differ."""
    before, after = (
        ShardSource(make_corpus(10, 4, name="old")),
        ShardSource(make_corpus(10, 4, 7, name="new")),
    )
    with pytest.raises(StateError, match=r"more shards, from chunk_000002\.bin on \(the corpus was appended"):
        after.load_state_dict(before.state_dict())
    with pytest.raises(StateError, match="the sizes of the shards differ"):
        before.load_state_dict(after.state_dict())


def test_a_state_is_built_fresh(make_corpus):
    """A caller who changes a state changes nothing here."""
    source = ShardSource(make_corpus(10))
    source.state_dict()["total_tokens"] = 5
    assert source.state_dict()["total_tokens"] == 10


def test_pickling_keeps_the_source(make_corpus):
    """Spawned workers get the same shards."""
    source = ShardSource(make_corpus(10, 7))
    assert pickle.loads(pickle.dumps(source)).offsets.tolist() == [0, 10, 17]
