"""Nothing grows with the corpus: sparse files stand for terabytes, with tokens only where they are read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import tdstream
from tdstream.schedule.order import feistel_order

SEQ_LEN = 2047  # samples of 2,048 tokens


def sparse_corpus(directory, num_shards, shard_tokens):
    """Write a corpus of empty space: each shard has its size and no blocks on disk."""
    directory.mkdir()
    chunks = []
    for number in range(num_shards):
        name = f"chunk_{number:06d}.bin"
        with open(directory / name, "wb") as file:
            file.truncate(4 * shard_tokens)
        chunks.append({"file": name, "tokens": shard_tokens})
    content = {"dtype": "uint32", "chunks": chunks, "total_tokens": num_shards * shard_tokens}
    (directory / "meta.json").write_text(json.dumps(content))
    return directory


def mark(directory, shard_tokens, index):
    """Write sample `index` into the corpus: its token i is (index * 2048 + i) mod 2^32."""
    for i in range(SEQ_LEN + 1):
        place = index * (SEQ_LEN + 1) + i
        with open(directory / f"chunk_{place // shard_tokens:06d}.bin", "r+b") as file:
            file.seek(4 * (place % shard_tokens))
            file.write(np.array([place % 2**32], "<u4").tobytes())


def count_maps(directory):
    """Return how many of a corpus's files this process has mapped; check that it holds none of them open."""
    links = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert not any(link.startswith(f"{directory}/") for link in links)
    lines = Path("/proc/self/maps").read_text().splitlines()
    return len({line.split()[-1] for line in lines if f"{directory}/" in line})


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("position", [0, 1_000_000, 48_828_120])  # the beginning, the middle, the end
def test_far_places_are_read_right(tmp_path, num_workers, position):
    """Of 10^11 tokens, beyond every 32-bit number, a shuffled place holds the tokens that belong there."""
    shard_tokens, num_shards = 10**9 + 7, 100  # a size that no sample divides: borders are crossed
    corpus = sparse_corpus(tmp_path / "corpus", num_shards, shard_tokens)
    num_samples = num_shards * shard_tokens // (SEQ_LEN + 1)
    indices = feistel_order(num_samples, 42, 3)(np.arange(position, position + 4)).tolist()
    for index in indices:
        mark(corpus, shard_tokens, index)
    loader = tdstream.loader(corpus, seq_len=SEQ_LEN, batch_size=2, shuffle=True, num_workers=num_workers)
    loader.load_state_dict({**loader.state_dict(), "epoch": 3, "position": position})
    iterator = iter(loader)
    rows = [row for _ in range(2) for row in next(iterator)["input_ids"].tolist()]
    expected = [[(index * 2048 + i) % 2**32 for i in range(SEQ_LEN)] for index in indices]
    assert rows == expected


def test_a_corpus_opens_its_shards_when_it_reads_them(tmp_path):
    """Of 300 shards a batch of 4 samples maps at most 8, and construction none."""
    corpus = sparse_corpus(tmp_path / "corpus", 300, 10**8)
    loader = tdstream.loader(corpus, seq_len=SEQ_LEN, batch_size=4, shuffle=True)
    assert count_maps(corpus) == 0
    iterator = iter(loader)
    next(iterator)
    assert 1 <= count_maps(corpus) <= 8


def test_maps_stay_bounded(tmp_path, monkeypatch):
    """An epoch's walk over 300 shards keeps as many of them mapped as a process may, and no more."""
    monkeypatch.setattr("tdstream.corpus.mapped_array.MAX_OPEN", 128)
    corpus = sparse_corpus(tmp_path / "corpus", 300, 10**4)
    held = [count_maps(corpus) for _ in tdstream.loader(corpus, seq_len=SEQ_LEN, batch_size=16, shuffle=True)]
    assert max(held) == 128


def test_the_state_is_small_however_large_the_corpus(tmp_path):
    """Under 2 KB with 1,000 shards of different sizes, and after many changes of geometry."""
    directory = tmp_path / "corpus"
    directory.mkdir()
    chunks = []
    for number in range(1000):
        (directory / f"chunk_{number:06d}.bin").write_bytes(b"")
        os.truncate(directory / f"chunk_{number:06d}.bin", 4 * (5000 + number))
        chunks.append({"file": f"chunk_{number:06d}.bin", "tokens": 5000 + number})
    (directory / "meta.json").write_text(json.dumps({"dtype": "uint32", "chunks": chunks}))
    state = None
    for change in range(60):
        loader = tdstream.loader(directory, seq_len=31, batch_size=1 + change % 5, shuffle=True)
        if state is not None:
            loader.load_state_dict(state)
        next(iter(loader))
        state = loader.state_dict()
        assert len(json.dumps(state)) <= 2048
