"""The block order: few stored blocks at a time, every sample once, and random within that."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_order import assert_mean, slow_feistel

import tdstream
from tdstream.core.errors import ConfigError, StateError
from tdstream.schedule.order import block_order

M64 = 2**64 - 1


def mix(x: int) -> int:
    """Return the finaliser's hash."""
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & M64
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & M64
    return x ^ x >> 31


def slow_block(position: int, num_samples: int, seed: int, epoch: int, block: int) -> int:
    """Return the index at a position in plain integers, as the description says: blocks, then inside each."""
    digest = hashlib.blake2b(f"tdstream block 1 {seed} {epoch}".encode(), digest_size=64).digest()
    keys = [int.from_bytes(digest[8 * i : 8 * i + 8], "little") for i in range(8)]
    full = max(num_samples // block, 1) - 1
    rest = num_samples - full * block
    first = keys[-1] % (full + 1) * block
    if first <= position < first + rest:
        return full * block + slow_feistel(position - first, rest, seed, epoch, keys=keys)
    place = position if position < first else position - rest
    stored = slow_feistel(place // block, full, seed, epoch)
    salted = [key ^ mix(stored + 1) for key in keys]
    return stored * block + slow_feistel(place % block, block, seed, epoch, keys=salted)


@settings(deadline=None, max_examples=200)
@given(
    num_samples=st.one_of(st.integers(1, 500), st.integers(1, 2**48)),
    seed=st.integers(0, 2**40),
    epoch=st.integers(0, 1000),
    block=st.one_of(st.integers(1, 70), st.integers(1, 2**20)),
    data=st.data(),
)
def test_the_vectorised_order_is_the_one_described(num_samples, seed, epoch, block, data):
    """Arrays give what plain integers give, for any N up to 2^48 and any block."""
    positions = data.draw(st.lists(st.integers(0, num_samples - 1), min_size=1, max_size=5))
    indices = block_order(num_samples, seed, epoch, block)(np.array(positions))
    assert indices.tolist() == [slow_block(p, num_samples, seed, epoch, block) for p in positions]


def test_version_1_is_pinned():
    """These values are an interface: runs in progress depend on them (from the plain-integer computation)."""
    assert block_order(20, seed=42, epoch=1, block_samples=4)(np.arange(20)).tolist() == [
        slow_block(position, 20, 42, 1, 4) for position in range(20)
    ]
    assert block_order(20, seed=42, epoch=1, block_samples=4)(np.arange(20)).tolist() == [
        9,
        8,
        10,
        11,
        18,
        16,
        19,
        17,
        4,
        6,
        7,
        5,
        12,
        14,
        15,
        13,
        1,
        2,
        0,
        3,
    ]


@pytest.mark.parametrize("block", [1, 2, 3, 7, 16, 64, 1000])
def test_every_epoch_is_a_permutation_of_few_blocks_at_a_time(block):
    """Each index once; W blocks' worth of positions touch at most W + 1 stored blocks."""
    for num_samples in [*range(1, 130), 1000]:
        indices = block_order(num_samples, num_samples % 5, 3, block)(np.arange(num_samples))
        assert sorted(indices.tolist()) == list(range(num_samples))
        stored = np.minimum(indices // block, max(num_samples // block, 1) - 1)
        for width in (1, 2, 5):
            windows = range(num_samples - width * block + 1)
            assert all(len(set(stored[w : w + width * block].tolist())) <= width + 1 for w in windows)


def test_blocks_are_random_and_so_is_their_inside():
    """Over 50 seeds: neighbours inside a block, and neighbouring blocks, flip their low bit like coins."""
    inside, between = [], []
    for seed in range(50):
        indices = block_order(64 * 1024, seed, 0, 64)(np.arange(64 * 256)).reshape(256, 64)
        inside.append(((indices[:, 1:] ^ indices[:, :-1]) & 1).mean())
        blocks = indices[:, 0] // 64
        between.append(((blocks[1:] ^ blocks[:-1]) & 1).mean())
    assert_mean(np.array(inside), 32 / 63)  # of 63 others in a block of 64, 32 have the other low bit
    assert_mean(np.array(between), 0.5)


def test_epochs_and_seeds_share_nothing():
    """Neighbouring keys give uncorrelated orders of blocks and of their insides."""
    ours = np.stack([block_order(2**20, seed, 0, 64)(np.arange(4096)) for seed in range(50)])
    later = np.stack([block_order(2**20, seed, 1, 64)(np.arange(4096)) for seed in range(50)])
    pairs = zip(ours // 64, later // 64, strict=True)
    assert_mean(np.array([np.corrcoef(a[::64], b[::64])[0, 1] for a, b in pairs]), 0.0)
    pairs = zip(ours % 64, later % 64, strict=True)
    assert_mean(np.array([np.corrcoef(a, b)[0, 1] for a, b in pairs]), 0.0)


def test_it_is_dealt_out_like_any_order(make_corpus):
    """Through the loader: an epoch of blocks is complete, resumes exactly, and is no other shuffle's."""
    corpus = make_corpus(1200)
    options = {"seq_len": 5, "batch_size": 4, "shuffle": "block", "block_samples": 20}
    loader = tdstream.loader(corpus, **options)
    rows = [batch["input_ids"][:, 0].tolist() for batch in loader]
    assert sorted(row // 6 for batch in rows for row in batch) == list(range(200))
    first = tdstream.loader(corpus, **options)
    iterator = iter(first)
    for _ in range(17):
        next(iterator)
    second = tdstream.loader(corpus, num_workers=2, **options)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [batch["input_ids"][:, 0].tolist() for batch in second] == rows[17:]
    other = tdstream.loader(corpus, **{**options, "block_samples": 25})
    with pytest.raises(StateError, match=r"permutation\.block_samples was 20, is 25"):
        other.load_state_dict(first.state_dict())


def test_bad_settings_are_refused(make_corpus):
    """Each with what was given."""
    corpus = make_corpus(100)
    with pytest.raises(ConfigError, match="block_samples must be an integer of at least 1, got 0"):
        tdstream.build(corpus, seq_len=4, shuffle="block", block_samples=0)
    with pytest.raises(ConfigError, match="shuffle must be True, False or \"block\", got 'blocks'"):
        tdstream.build(corpus, seq_len=4, shuffle="blocks")
    with pytest.raises(ConfigError, match="leave order='numpy' out"):
        tdstream.build(corpus, seq_len=4, shuffle="block", order="numpy")
