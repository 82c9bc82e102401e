"""Orders of an epoch's samples: order(seed, epoch, position) -> index, a bijection computed on demand.

"feistel", version 1, is a keyed bijection on [0, N) that needs no memory and computes any position directly.
[0, N) is laid out in a rectangle of left x right cells that is as square as possible (left = ceil(sqrt(N))).
A position is split into the coordinates of its cell; eight rounds add a hash of one coordinate to the other,
in turn; a result outside [0, N) passes through the rounds again until it is inside ("cycle walking"). The
rectangle has fewer than sqrt(N) spare cells, so walking is rare.

    N = 10: 4 x 3 cells. Position 7 is row 2, column 1. The rounds may move it to row 3, column 2, which is
    place 11, outside; the next pass may move it to row 0, column 2: index 2.

"block", version 1, is the same arithmetic on two levels, for storage that is slow at random reads: the corpus
is cut into blocks of K neighbouring samples (the last one has up to 2 K - 1); the blocks are permuted, and so
are the samples inside each. Any W K consecutive positions touch at most W + 1 stored blocks.

References:
    M. Luby, C. Rackoff: How to construct pseudorandom permutations from pseudorandom functions (1988).
    J. Black, P. Rogaway: Ciphers with arbitrary finite domains (2002): the rectangle, cycle walking.
    D. Stafford: Better bit mixing (2011), variant 13, used by SplitMix64: the round function.
    D. Lemire: Fast random integer generation in an interval (2019): the hash's reduction to a coordinate.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

Order = Callable[[Ints], Ints]
"""Maps positions of one epoch to indices, both int64 and of the same shape."""

ORDER_VERSIONS = {"feistel": 1, "block": 1, "numpy": 1, "sequential": 1}
"""An order's version rises when its values change; states name the version they were made with."""
MAX_SAMPLES = 2**48
"""The round function reduces 40 bits of hash to a coordinate of at most 24 bits."""

_ROUNDS = 8
_PIECE = 2**15  # positions at a time
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S24, _S40, _S32 = (np.uint64(shift) for shift in (30, 27, 31, 24, 40, 32))


def splitmix64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the hash of each value by SplitMix64's finaliser; overwrites the values."""
    values ^= values >> _S30
    values *= _M1
    values ^= values >> _S27
    values *= _M2
    values ^= values >> _S31
    return values


def make_order(name: str, *, num_samples: int, seed: int, epoch: int, block_samples: int = 1024) -> Order:
    """Return one epoch's order by name; "numpy" takes 8 bytes per sample, the others no memory."""
    if name == "sequential":
        return _sequential
    if name == "numpy":
        return numpy_order(num_samples, seed, epoch)
    if name == "feistel":
        return feistel_order(num_samples, seed, epoch)
    if name == "block":
        return block_order(num_samples, seed, epoch, block_samples)
    raise ValueError(f'order must be "feistel", "block", "numpy" or "sequential", got {name!r}.')


def _sequential(positions: Ints) -> Ints:
    return positions


def numpy_order(num_samples: int, seed: int, epoch: int) -> Order:
    """Return the order of the reference loader: default_rng(seed + epoch * 1000003).permutation(N)."""
    permutation: Ints = np.random.default_rng(seed + epoch * 1_000_003).permutation(num_samples)
    return permutation.__getitem__


def feistel_order(num_samples: int, seed: int, epoch: int) -> Order:
    """Return the order "feistel" of the module docstring; N up to 2^48."""
    if not 0 < num_samples <= MAX_SAMPLES:
        raise ValueError(f"the feistel order takes 1 to 2^48 samples, got {num_samples:,}.")
    keys, cells = round_keys("feistel", seed, epoch), Cells.most_square(num_samples)

    def permuted(positions: Ints) -> Ints:
        return walk(positions.astype(np.uint64), cells, keys).astype(np.int64)

    return _in_pieces(permuted)


def block_order(num_samples: int, seed: int, epoch: int, block_samples: int) -> Order:
    """Return the order "block" of the module docstring; K = block_samples, at least 1.

    With N = 23 and K = 4, there are 4 full blocks and a longer one of 7 (samples 16 to 22), which may begin
    at position 0, 4, 8, 12 or 16.
    """
    if not 0 < num_samples <= MAX_SAMPLES or block_samples < 1:
        raise ValueError(f"a block order takes 1 to 2^48 samples in blocks, got {num_samples:,}.")
    full = max(num_samples // block_samples, 1) - 1  # blocks of exactly K samples; the longer one follows
    rest = num_samples - full * block_samples
    keys = round_keys("block", seed, epoch)
    blocks = feistel_order(full, seed, epoch) if full else _sequential
    first = int(keys[-1] % np.uint64(full + 1)) * block_samples  # the position where the longer block begins
    in_block, in_last = Cells.most_square(block_samples), Cells.most_square(rest)

    def in_full(places: Ints) -> Ints:
        block = blocks(places // block_samples)
        salt = splitmix64(block.astype(np.uint64) + np.uint64(1))
        inner = walk((places % block_samples).astype(np.uint64), in_block, keys, salt)
        return block * block_samples + inner.astype(np.int64)

    def permuted(positions: Ints) -> Ints:
        in_rest = (positions >= first) & (positions < first + rest)
        places = np.where(positions < first, positions, positions - rest)  # among the full blocks' samples
        indices = np.empty(positions.shape, np.int64)
        indices[~in_rest] = in_full(places[~in_rest])
        last = walk((positions[in_rest] - first).astype(np.uint64), in_last, keys)
        indices[in_rest] = full * block_samples + last.astype(np.int64)
        return indices

    return _in_pieces(permuted)


def round_keys(name: str, seed: int, epoch: int) -> NDArray[np.uint64]:
    """Return the eight round keys, uint64; hashed, so that neighbouring seeds and epochs share nothing."""
    digest = hashlib.blake2b(f"tdstream {name} 1 {seed} {epoch}".encode(), digest_size=8 * _ROUNDS).digest()
    return np.frombuffer(digest, dtype="<u8").astype(np.uint64)


def uniform_32(numbers: NDArray[np.uint64], key: np.uint64) -> Ints:
    """Return a pseudorandom number in [0, 2^32) for each number [n]; every key gives another sequence."""
    drawn: Ints = (splitmix64(splitmix64(numbers + np.uint64(1)) ^ key) >> _S32).astype(np.int64)
    return drawn


def _in_pieces(order: Order) -> Order:
    """Return an order that takes arrays of any shape, in pieces that fit into the processor's cache."""

    def whole(positions: Ints) -> Ints:
        flat = positions.ravel()
        indices = np.empty(flat.shape, np.int64)
        for first in range(0, flat.size, _PIECE):
            indices[first : first + _PIECE] = order(flat[first : first + _PIECE])
        return indices.reshape(positions.shape)

    return whole


class Cells(NamedTuple):
    """[0, size) and its rectangle: numbers, or arrays with an entry for each place."""

    size: np.uint64 | NDArray[np.uint64]
    left: np.uint64 | NDArray[np.uint64]
    right: np.uint64 | NDArray[np.uint64]

    @classmethod
    def most_square(cls, size: int) -> Cells:
        """Return [0, size) in its most square rectangle."""
        left = math.isqrt(size - 1) + 1
        return cls(np.uint64(size), np.uint64(left), np.uint64(-(-size // left)))

    def some(self, places: Ints) -> Cells:
        """Return the entries of some places."""
        if isinstance(self.size, np.uint64):
            return self
        return Cells(*(np.asarray(part)[places] for part in self))


def walk(
    places: NDArray[np.uint64], cells: Cells, keys: NDArray[np.uint64], salt: NDArray[np.uint64] | None = None
) -> NDArray[np.uint64]:
    """Permute places in [0, size), uint64 [n]: apply the rounds until all are inside.

    Keys are [8], or [8, n] with a column for each place; a salt [n] selects a permutation for each place.
    """
    places = _rounds(places, cells, keys, salt)
    outside = np.flatnonzero(places >= cells.size)
    while outside.size:
        some, salted = cells.some(outside), None if salt is None else salt[outside]
        some_keys = keys if keys.ndim == 1 else keys[:, outside]
        places[outside] = _rounds(places[outside], some, some_keys, salted)
        outside = outside[places[outside] >= some.size]
    return places


def _rounds(
    places: NDArray[np.uint64], cells: Cells, keys: NDArray[np.uint64], salt: NDArray[np.uint64] | None
) -> NDArray[np.uint64]:
    """Apply the eight rounds once."""
    _, left, right = cells
    row = places // right
    column = places - row * right
    for key_row, key_column in zip(keys[0::2], keys[1::2], strict=True):
        _add(row, column, left, key_row if salt is None else salt ^ key_row)
        _add(column, row, right, key_column if salt is None else salt ^ key_column)
    permuted: NDArray[np.uint64] = row * right + column
    return permuted


def _add(
    target: NDArray[np.uint64],
    other: NDArray[np.uint64],
    size: np.uint64 | NDArray[np.uint64],
    key: np.uint64 | NDArray[np.uint64],
) -> None:
    """Replace target by (target + hash(other, key)) mod size; target and the reduced hash are below size."""
    hashed = splitmix64(other ^ key)
    hashed >>= _S24
    hashed *= size  # 40 bits x at most 24 bits: no overflow
    hashed >>= _S40
    target += hashed
    target -= size * (target >= size)


_NEAR = 64  # epochs: within this range, making all keys costs less than sorting the numbers


class JointOrder:
    """The "feistel" orders of several sources with one seed, for samples of all of them at once.

    A mixture takes few samples from each source at a time, and numpy is slow on small arrays.
    """

    def __init__(self, sizes: Sequence[int], seed: int) -> None:
        self._seed = seed
        self._cells = Cells(*np.array([Cells.most_square(size) for size in sizes], np.uint64).T.copy())

    def indices(self, sources: Ints, epochs: Ints, positions: Ints) -> Ints:
        """Return the indices of samples, by their sources and the epochs and positions in those, all [n]."""
        places, cells = positions.astype(np.uint64), self._cells.some(sources)
        return walk(places, cells, self._keys(epochs)).astype(np.int64)

    def _keys(self, epochs: Ints) -> NDArray[np.uint64]:
        """Return the round keys of epochs [n]: [8, n], or [8] if all epochs are equal."""
        first, last = int(epochs.min()), int(epochs.max())
        if first == last:
            return round_keys("feistel", self._seed, first)
        if last - first < _NEAR:
            found, which = np.arange(first, last + 1), epochs - first
        else:
            found, which = np.unique(epochs, return_inverse=True)
        keys = np.array([round_keys("feistel", self._seed, epoch) for epoch in found.tolist()])
        each: NDArray[np.uint64] = keys.T.copy().take(which, axis=1)
        return each
