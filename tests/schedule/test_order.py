"""The order is a bijection, an interface with pinned values, and as random as a true permutation."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tdstream.schedule.order import feistel_order, make_order, numpy_order

M64 = 2**64 - 1


def slow_feistel(position: int, num_samples: int, seed: int, epoch: int, keys=None) -> int:
    """Return the index at a position, in plain integers, one step after the other as the docstring says."""
    digest = hashlib.blake2b(f"tdstream feistel 1 {seed} {epoch}".encode(), digest_size=64).digest()
    keys = keys or [int.from_bytes(digest[8 * i : 8 * i + 8], "little") for i in range(8)]
    left = math.isqrt(num_samples - 1) + 1
    right = (num_samples + left - 1) // left

    def mixed(value: int, key: int, size: int) -> int:
        x = value ^ key
        x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & M64
        x = ((x ^ x >> 27) * 0x94D049BB133111EB) & M64
        x ^= x >> 31
        return (x >> 24) * size >> 40

    while True:
        row, column = divmod(position, right)
        for i in range(0, 8, 2):
            row = (row + mixed(column, keys[i], left)) % left
            column = (column + mixed(row, keys[i + 1], right)) % right
        position = row * right + column
        if position < num_samples:
            return position


@settings(deadline=None, max_examples=200)
@given(
    num_samples=st.one_of(st.integers(1, 5000), st.integers(1, 2**48)),
    seed=st.integers(0, 2**40),
    epoch=st.integers(0, 1000),
    data=st.data(),
)
def test_the_vectorised_order_is_the_one_described(num_samples, seed, epoch, data):
    """Arrays give what plain integers give, for any N up to 2^48."""
    positions = data.draw(st.lists(st.integers(0, num_samples - 1), min_size=1, max_size=5))
    indices = feistel_order(num_samples, seed, epoch)(np.array(positions))
    assert indices.tolist() == [slow_feistel(position, num_samples, seed, epoch) for position in positions]


def test_every_small_epoch_is_a_permutation():
    """For every N up to 4,096 each index stands at exactly one position."""
    for num_samples in range(1, 4097):
        indices = feistel_order(num_samples, seed=num_samples % 7, epoch=num_samples % 5)(
            np.arange(num_samples)
        )
        assert np.array_equal(np.bincount(indices, minlength=num_samples), np.ones(num_samples, int))


@settings(deadline=None, max_examples=8)
@given(num_samples=st.integers(4097, 10**7), seed=st.integers(0, 99))
def test_large_epochs_are_permutations(num_samples, seed):
    """The same for random N up to ten million."""
    seen = np.zeros(num_samples, bool)
    seen[feistel_order(num_samples, seed, 0)(np.arange(num_samples))] = True
    assert seen.all()


def test_version_1_is_pinned():
    """These values are an interface: runs in progress depend on them (from the plain-integer computation)."""
    order = feistel_order(1_000_000, seed=42, epoch=0)
    assert order(np.arange(6)).tolist() == [slow_feistel(position, 1_000_000, 42, 0) for position in range(6)]
    assert order(np.arange(6)).tolist() == [47419, 817210, 764231, 331230, 131009, 710583]
    assert feistel_order(10, seed=42, epoch=1)(np.arange(10)).tolist() == [9, 3, 7, 0, 1, 8, 5, 6, 2, 4]


def test_the_shape_is_kept():
    """A block of positions gives a block of indices."""
    order = feistel_order(1000, 1, 1)
    block = np.arange(12).reshape(3, 4)
    assert order(block).shape == (3, 4)
    assert order(block).ravel().tolist() == order(np.arange(12)).tolist()


def test_the_numpy_order_is_the_reference_loaders():
    """Epoch e of the reference is default_rng(seed + e * 1000003).permutation(N)."""
    expected = np.random.default_rng(7 + 3 * 1_000_003).permutation(100)
    assert numpy_order(100, seed=7, epoch=3)(np.arange(100)).tolist() == expected.tolist()


def test_an_unknown_order_is_refused():
    """The sentence names the orders there are."""
    with pytest.raises(
        ValueError, match='order must be "feistel", "block", "numpy" or "sequential", got \'random\''
    ):
        make_order("random", num_samples=3, seed=0, epoch=0)


@pytest.mark.parametrize("num_samples", [0, 2**48 + 1])
def test_sizes_without_an_order_are_refused(num_samples):
    """An epoch has 1 to 2^48 samples."""
    with pytest.raises(ValueError, match=r"1 to 2\^48 samples"):
        feistel_order(num_samples, 0, 0)


# Quality: statistics of the first 20,480 positions, over 50 seeds, beside a true permutation's. Each is a
# mean over the seeds, and must lie within three standard errors of what a random order gives.

DRAWS, SEEDS, BATCH = 20_480, 50, 512
SIZES = [2**20, 10**6, 3 * 10**6, 2**27, 2**40]


def draws(num_samples: int, epoch: int = 0, seeds: range = range(SEEDS)) -> np.ndarray:
    """Return indices of the first positions, [seeds, DRAWS]."""
    return np.stack([feistel_order(num_samples, seed, epoch)(np.arange(DRAWS)) for seed in seeds])


def assert_mean(values: np.ndarray, expected: float) -> None:
    """The mean over seeds is within three standard errors of the expected value."""
    error = values.std(ddof=1) / math.sqrt(len(values))
    assert abs(values.mean() - expected) <= 3 * error, (
        f"{values.mean():.5f} +- {error:.5f}, expected {expected}"
    )


@pytest.mark.parametrize("num_samples", SIZES)
@pytest.mark.parametrize("bit", [0, 1, 2])
def test_low_bits_flip_like_coins(num_samples, bit):
    """Between neighbours, bits 0 to 2 of the index change half the time."""
    bits = draws(num_samples) >> bit & 1
    assert_mean((bits[:, 1:] != bits[:, :-1]).mean(axis=1), 0.5)


@pytest.mark.parametrize("num_samples", SIZES)
def test_batches_spread_over_the_corpus(num_samples):
    """Of 512 draws, 64 equal ranges of the corpus get their share: chi^2 per degree of freedom is 1."""
    bins = draws(num_samples).reshape(SEEDS, -1, BATCH) * 64 // num_samples  # [seeds, batches, 512]
    counts = (bins[..., None] == np.arange(64)).sum(axis=2)  # [seeds, batches, 64]
    chi2 = ((counts - BATCH / 64) ** 2 / (BATCH / 64)).sum(axis=2) / 63
    assert_mean(chi2.mean(axis=1), 1.0)


@pytest.mark.parametrize("num_samples", SIZES)
def test_odd_indices_are_binomial(num_samples):
    """The number of odd indices in 512 draws varies as coin throws do."""
    odd = (draws(num_samples) & 1).reshape(SEEDS, -1, BATCH).sum(axis=2)  # [seeds, batches]
    assert_mean(((odd - BATCH / 2) ** 2).mean(axis=1) / (BATCH / 4), 1.0)


@pytest.mark.parametrize("num_samples", SIZES)
@pytest.mark.parametrize("step", ["epoch", "seed"])
def test_neighbouring_keys_share_nothing(num_samples, step):
    """(seed, e) is uncorrelated with (seed, e + 1) and with (seed + 1, e)."""
    ours = draws(num_samples)
    theirs = draws(num_samples, epoch=1) if step == "epoch" else draws(num_samples, seeds=range(1, SEEDS + 1))
    correlation = np.array([np.corrcoef(a, b)[0, 1] for a, b in zip(ours, theirs, strict=True)])
    assert_mean(correlation, 0.0)
