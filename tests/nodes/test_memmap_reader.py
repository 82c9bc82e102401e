"""MemmapReader: windows of one long stream, whatever shards it lies in."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers_corpus import write_corpus
from tdstream.core.errors import ConfigError, CorpusError, StateError
from tdstream.nodes.memmap_reader import MemmapReader
from tdstream.nodes.shard_source import ShardSource


@pytest.fixture
def make_reader(make_corpus):
    """Return a function that makes a reader over shards of the tokens 0, 1, 2, ..."""

    def make(*shard_tokens, seq_len=3, stride=None, dtype="uint32"):
        return MemmapReader(
            ShardSource(make_corpus(*shard_tokens, dtype=dtype)), seq_len=seq_len, stride=stride
        )

    return make


def test_samples_are_blocks(make_reader):
    """By default sample i is the i-th block of seq_len + 1 tokens; the incomplete tail is left out."""
    reader = make_reader(11)
    assert len(reader) == 2
    assert reader.read(np.array([1, 0])).tolist() == [[4, 5, 6, 7], [0, 1, 2, 3]]


def test_samples_may_share_a_token(make_reader):
    """With stride = seq_len each token is a label once."""
    reader = make_reader(10, stride=3)
    assert len(reader) == 3
    assert reader.read(np.arange(3)).tolist() == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]


@settings(deadline=None, max_examples=60)
@given(
    shards=st.lists(st.integers(0, 7), min_size=1, max_size=12),
    seq_len=st.integers(1, 9),
    data=st.data(),
)
def test_windows_cross_any_number_of_shards(tmp_path_factory, shards, seq_len, data):
    """Whatever the shards' sizes, zero included, the windows are those of the whole stream."""
    tokens = np.arange(sum(shards), dtype="<u2")
    if len(tokens) < seq_len + 1:
        return
    stride = data.draw(st.integers(1, seq_len + 1))
    source = ShardSource(write_corpus(tmp_path_factory.mktemp("c") / "x", tokens, shards))
    reader = MemmapReader(source, seq_len=seq_len, stride=stride)
    expected = np.lib.stride_tricks.sliding_window_view(tokens, seq_len + 1)[::stride]
    assert len(reader) == len(expected)
    assert np.array_equal(reader.read(np.arange(len(reader))), expected)


@pytest.mark.parametrize("last", [24, 25])
def test_many_rows_of_one_shard(make_reader, last):
    """Many rows at once are the rows one by one: of one shard up to its end, or over its border."""
    reader = make_reader(50, 91, 50, stride=2)  # samples 25 to 68 lie in the middle shard, 24 does not
    indices = np.array([*range(68, last, -1), last + 1, 48])
    rows = reader.read(indices)
    assert np.array_equal(rows, np.array([reader.read(indices[i : i + 1])[0] for i in range(len(indices))]))
    assert rows[-1].tolist() == [96, 97, 98, 99]
    across = reader.read(np.array([*indices, last]))
    assert across[-1].tolist() == [2 * last + i for i in range(4)]
    across[:] = 0  # the rows are the caller's own
    assert reader.read(indices)[-1].tolist() == [96, 97, 98, 99]


def test_no_rows(make_reader):
    """No index, no row."""
    assert make_reader(8).read(np.empty(0, np.int64)).shape == (0, 4)


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_rows_keep_the_storage_type(make_reader, dtype):
    """Casting is the collation's, once."""
    assert make_reader(8, dtype=dtype).read(np.array([0])).dtype.name == dtype


def test_few_maps_stay_open(make_reader, monkeypatch):
    """A thousand shards do not take a thousand file descriptors."""
    monkeypatch.setattr("tdstream.corpus.mapped_array.MAX_OPEN", 5)
    reader = make_reader(*[4] * 50)
    before = len(os.listdir("/proc/self/fd"))
    assert reader.read(np.arange(50)).ravel().tolist() == list(range(200))
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(reader._stream._opened()._maps) <= 5
    assert reader.read(np.array([49, 0])).tolist() == [[196, 197, 198, 199], [0, 1, 2, 3]]


def test_pickling_drops_the_maps(make_reader):
    """A pickled reader is small, however much it has mapped, and reads again where it arrives."""
    reader = make_reader(400_000)
    reader.read(np.array([0]))
    sent = pickle.dumps(reader)
    assert len(sent) < 2_000
    assert pickle.loads(sent).read(np.array([1])).tolist() == [[4, 5, 6, 7]]


def test_a_shard_that_changes_later_is_named(make_reader, tmp_path):
    """A shard that shrinks or goes between opening the corpus and reading it ends in a sentence."""
    reader = make_reader(8, 8)
    (tmp_path / "corpus" / "chunk_000001.bin").write_bytes(bytes(16))
    with pytest.raises(
        CorpusError, match=r"chunk_000001\.bin had 32 bytes when the corpus was opened, has 16 now"
    ):
        reader.read(np.array([2]))
    (tmp_path / "corpus" / "chunk_000001.bin").unlink()
    with pytest.raises(CorpusError, match=r"chunk_000001\.bin cannot be read any more"):
        reader.read(np.array([2]))


def test_a_corpus_below_one_sample_is_refused(make_reader):
    """With both numbers."""
    with pytest.raises(CorpusError, match="holds 3 tokens, fewer than the 4 of one sample"):
        make_reader(3)


@pytest.mark.parametrize("seq_len", [0, -2, 2.0, "3", True])
def test_seq_len_must_be_positive(make_reader, seq_len):
    """A sample has at least one input token."""
    with pytest.raises(ConfigError, match=f"seq_len must be an integer of at least 1, got {seq_len!r}"):
        make_reader(10, seq_len=seq_len)


@pytest.mark.parametrize("stride", [0, -1, 5, 1.5])
def test_stride_must_leave_nothing_out(make_reader, stride):
    """Samples may overlap or touch, not leave gaps."""
    with pytest.raises(
        ConfigError, match=rf"stride must be (1 to seq_len \+ 1 = 4|an integer of at least 1), got {stride}"
    ):
        make_reader(10, stride=stride)


def test_identity_is_the_cut(make_reader):
    """Another seq_len or stride is another set of samples."""
    state = make_reader(20).state_dict()
    with pytest.raises(StateError, match=r"reader\.seq_len was 3, is 4; reader\.stride was 4, is 5"):
        make_reader(20, seq_len=4).load_state_dict(state)
    make_reader(20).load_state_dict(state)
