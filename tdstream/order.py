"""Say which sample stands at a position of an epoch: order(seed, epoch, position) -> index, a bijection.

"feistel", version 1, is a keyed bijection on [0, N) that needs no memory and answers any position at once.
[0, N) lies in a rectangle of left x right cells, as square as can be (left = ceil(sqrt(N))). A position is
split into its cell's coordinates; eight rounds add to one coordinate a hash of the other, in turn; a result
outside [0, N) goes through the rounds again until it is inside ("cycle walking"). The rectangle has fewer
than sqrt(N) cells too many, so walking is rare.

References:
    M. Luby, C. Rackoff: How to construct pseudorandom permutations from pseudorandom functions (1988).
    J. Black, P. Rogaway: Ciphers with arbitrary finite domains (2002): the rectangle, cycle walking.
    D. Stafford: Better bit mixing (2011), variant 13, used by SplitMix64: the round function.
    D. Lemire: Fast random integer generation in an interval (2019): the hash's reduction to a coordinate.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Order = Callable[[NDArray[np.int64]], NDArray[np.int64]]
"""Positions of one epoch -> indices, both int64 and of any one shape."""

FEISTEL_VERSION = 1
"""Rises when the values change; a state names the version that it was served with."""
MAX_SAMPLES = 2**48
"""The round function reduces 40 bits of hash to a coordinate of at most 24 bits."""

_ROUNDS = 8
_BLOCK = 2**15  # positions per pass: the temporaries of one block stay in the processor's cache
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S24, _S40 = (np.uint64(shift) for shift in (30, 27, 31, 24, 40))


def make_order(name: str, *, num_samples: int, seed: int, epoch: int) -> Order:
    """Return one epoch's order.

    Args:
        name: "feistel", "numpy" or "sequential".
        num_samples: N, the samples of the epoch.
        seed: The run's seed, any integer of at least 0.
        epoch: The epoch, at least 0.

    Returns:
        A function from positions to indices, both int64 in [0, N), any shape. "feistel" costs no memory;
        "numpy" builds the whole permutation, 8 N bytes.

    Raises:
        ValueError: If there is no such order.
    """
    if name == "sequential":
        return _sequential
    if name == "numpy":
        return numpy_order(num_samples, seed, epoch)
    if name == "feistel":
        return feistel_order(num_samples, seed, epoch)
    raise ValueError(f'order must be "feistel", "numpy" or "sequential", got {name!r}.')


def _sequential(positions: NDArray[np.int64]) -> NDArray[np.int64]:
    return positions


def numpy_order(num_samples: int, seed: int, epoch: int) -> Order:
    """Return the order of the reference loader: default_rng(seed + epoch * 1000003).permutation(N)."""
    permutation: NDArray[np.int64] = np.random.default_rng(seed + epoch * 1_000_003).permutation(num_samples)
    return permutation.__getitem__


def feistel_order(num_samples: int, seed: int, epoch: int) -> Order:
    """Return the order that this module's docstring describes; N up to 2^48."""
    if not 0 < num_samples <= MAX_SAMPLES:
        raise ValueError(f"the feistel order takes 1 to 2^48 samples, got {num_samples:,}.")
    left = math.isqrt(num_samples - 1) + 1
    right = -(-num_samples // left)
    keys = feistel_keys(seed, epoch)

    def order(positions: NDArray[np.int64]) -> NDArray[np.int64]:
        flat = positions.ravel()
        indices = np.empty(flat.shape, np.int64)
        for first in range(0, flat.size, _BLOCK):
            block = flat[first : first + _BLOCK].astype(np.uint64)
            indices[first : first + _BLOCK] = _walk(block, num_samples, left, right, keys)
        return indices.reshape(positions.shape)

    return order


def feistel_keys(seed: int, epoch: int) -> NDArray[np.uint64]:
    """Return the eight round keys, uint64; hashed, so that neighbouring seeds and epochs share nothing."""
    digest = hashlib.blake2b(f"tdstream feistel 1 {seed} {epoch}".encode(), digest_size=8 * _ROUNDS).digest()
    return np.frombuffer(digest, dtype="<u8").astype(np.uint64)


def _walk(
    cells: NDArray[np.uint64], num_samples: int, left: int, right: int, keys: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """Apply the rounds, and again to those that left [0, N), until none has."""
    cells = _rounds(cells, left, right, keys)
    outside = np.flatnonzero(cells >= num_samples)
    while outside.size:
        cells[outside] = _rounds(cells[outside], left, right, keys)
        outside = outside[cells[outside] >= num_samples]
    return cells


def _rounds(cells: NDArray[np.uint64], left: int, right: int, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply the eight rounds once; a bijection on [0, left * right)."""
    width = np.uint64(right)
    row = cells // width
    column = cells - row * width
    for key_row, key_column in keys.reshape(-1, 2):
        _add(row, column, left, key_row)
        _add(column, row, right, key_column)
    permuted: NDArray[np.uint64] = row * width + column
    return permuted


def _add(target: NDArray[np.uint64], other: NDArray[np.uint64], size: int, key: np.uint64) -> None:
    """Replace target by (target + hash(other, key)) mod size; target and the reduced hash are below size."""
    mixed = other ^ key
    mixed ^= mixed >> _S30
    mixed *= _M1
    mixed ^= mixed >> _S27
    mixed *= _M2
    mixed ^= mixed >> _S31
    mixed >>= _S24
    mixed *= np.uint64(size)  # 40 bits x at most 24 bits: no overflow
    mixed >>= _S40
    target += mixed
    target -= np.uint64(size) * (target >= size)
