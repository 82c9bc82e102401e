"""A new order of the same samples in each epoch, computed and not stored."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.errors import ConfigError
from tdstream.node import IndexedNode, Rows
from tdstream.order import FEISTEL_VERSION, MAX_SAMPLES, Order, make_order
from tdstream.state import differences, refuse


class EpochPermutation:
    """The samples of an indexed node, in an order that is a function of (seed, epoch, position).

    Args:
        upstream: The samples.
        shuffle: Whether to permute; if not, position i is index i in every epoch.
        seed: The run's seed, at least 0.
        order: "feistel" (no memory, any size up to 2^48 samples) or "numpy" (the reference loader's order;
            each process keeps 8 bytes per sample).

    Raises:
        ConfigError: If the order is unknown, the seed negative, or the corpus too large for the order.
    """

    name = "permutation"

    def __init__(
        self, upstream: IndexedNode, *, shuffle: bool, seed: int = 42, order: str = "feistel"
    ) -> None:
        if order not in ("feistel", "numpy"):
            raise ConfigError(f'order must be "feistel" or "numpy", got {order!r}.')
        if not isinstance(seed, int) or seed < 0:
            raise ConfigError(f"seed must be an integer of at least 0, got {seed!r}.")
        if len(upstream) > MAX_SAMPLES:
            raise ConfigError(f"at most 2^48 samples can be ordered, the corpus has {len(upstream):,}.")
        self.upstream = upstream
        self.seed = seed
        self.order = order if shuffle else "sequential"
        self._current: tuple[int, Order] | None = None

    def __repr__(self) -> str:
        return f"EpochPermutation({self.order}, seed={self.seed})"

    def __len__(self) -> int:
        """Samples of an epoch."""
        return len(self.upstream)

    def indices(self, positions: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Return the indices of the samples at positions of an epoch, int64 of the same shape."""
        if self._current is None or self._current[0] != epoch:
            order = make_order(self.order, num_samples=len(self), seed=self.seed, epoch=epoch)
            self._current = (epoch, order)
        return self._current[1](positions)

    def read(self, indices: NDArray[np.int64]) -> Rows:
        """Return the samples at indices [n] as rows [n, seq_len + 1] in the storage type."""
        return self.upstream.read(indices)

    def state_dict(self) -> dict[str, Any]:
        """Return what decides the order; the seed is 0 where it does not."""
        shuffled = self.order != "sequential"
        version = FEISTEL_VERSION if self.order == "feistel" else 1
        return {"order": self.order, "version": version, "seed": self.seed if shuffled else 0}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Compare a saved identity with this order's.

        Raises:
            StateError: If a field differs.
        """
        refuse(self.differences(state))

    def differences(self, saved: dict[str, Any]) -> list[str]:
        """Return a phrase for each field of a saved identity that is not this node's."""
        return differences(self.name, saved, self.state_dict())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_current": None}  # recomputed where it is needed
