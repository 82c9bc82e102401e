"""Say which samples stand at positions of several sources' epochs at once, each in its own order.

What `order.feistel_order` says source by source. Small arrays cost numpy far more per entry than large ones,
and a mixture asks each of its sources for few.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tdstream.order import Cells, round_keys, walk

Ints = NDArray[np.int64]

_NEAR = 64  # epochs whose keys are made rather than the numbers sorted, which costs as much


class JointOrder:
    """The orders "feistel" of sources with one seed.

    Args:
        sizes: Samples of each source, 1 to 2^48.
        seed: The run's seed.
    """

    def __init__(self, sizes: Sequence[int], seed: int) -> None:
        self._seed = seed
        self._cells = Cells(*np.array([Cells.of(size) for size in sizes], np.uint64).T.copy())

    def indices(self, sources: Ints, epochs: Ints, positions: Ints) -> Ints:
        """Return the indices of samples, by their source, its own epoch and the position in it; all [n]."""
        places, cells = positions.astype(np.uint64), self._cells.some(sources)
        return walk(places, cells, self._keys(epochs)).astype(np.int64)

    def _keys(self, epochs: Ints) -> NDArray[np.uint64]:
        """Return the round keys of epochs [n], [8, n], or [8] where all are the same."""
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
