"""Shards of one corpus and of several, read as rows of one length."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from helpers_corpus import write_corpus
from tdstream.corpus.shard_reader import JoinedMaps
from tdstream.nodes.shard_source import ShardSource

SHARDS = ([5, 0, 2, 30], [1, 1, 1, 40], [12])


@pytest.fixture
def joined(tmp_path):
    """Return three corpora whose tokens count on, 0 to 91, in shards of which some are tiny or empty."""
    first, maps = 0, []
    for number, shards in enumerate(SHARDS):
        tokens = np.arange(first, first + sum(shards), dtype="<u2")
        maps.append(ShardSource(write_corpus(tmp_path / str(number), tokens, shards)).open())
        first += sum(shards)
    return JoinedMaps(maps)


def test_any_row_is_found(joined):
    """Rows may cross shards, begin at their borders, and come in any order and more than once."""
    starts = [0, 3, 4, 5, 83, 7, 36, 37, 38, 39, 40, 3, 82, 50]
    rows = joined.rows(np.array(starts), 9)
    assert rows.tolist() == [list(range(start, start + 9)) for start in starts]
    assert rows.dtype == np.dtype("<u2")
    assert rows.flags.writeable


def test_no_rows(joined):
    """Of no places there are no rows."""
    assert joined.rows(np.array([], np.int64), 4).shape == (0, 4)


def test_each_corpus_begins_where_the_one_before_ends(joined):
    """The places of the corpora's first tokens are told."""
    assert joined.firsts == [0, 37, 80]


def test_few_maps_stay_open(joined, monkeypatch):
    """However many shards there are, few files are held; what was closed is opened again."""
    monkeypatch.setattr("tdstream.corpus.mapped_array.MAX_OPEN", 2)
    for _ in range(2):
        assert joined.rows(np.arange(88), 5)[:, 0].tolist() == list(range(88))
    assert len(joined._maps) <= 2


def test_pickling_drops_the_maps(joined):
    """A copy in another process opens its own files."""
    joined.rows(np.array([0]), 2)
    assert pickle.loads(pickle.dumps(joined)).rows(np.array([79]), 3).tolist() == [[79, 80, 81]]
