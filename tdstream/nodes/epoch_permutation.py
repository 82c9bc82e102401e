"""A new order of the same samples in each epoch, computed on demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tdstream.core.checks import check_int
from tdstream.core.errors import ConfigError
from tdstream.core.state import IdentityState
from tdstream.nodes.base import IndexedNode, Ints, ReadByPlanning, ReadPlan
from tdstream.nodes.rows import AnyRows
from tdstream.schedule.order import MAX_SAMPLES, ORDER_VERSIONS, Order, make_order
from tdstream.schedule.partition import EqualEpochs


class EpochPermutation(EqualEpochs, ReadByPlanning, IdentityState):
    """The samples of an indexed node, in an order that is a function of (seed, epoch, position).

    Args:
        upstream: The node whose samples are ordered.
        shuffle: Whether to permute; if not, position i is index i in every epoch. "block" permutes blocks of
            neighbouring samples, and the samples in each: less random, with far fewer random reads.
        seed: The run's seed, at least 0.
        order: "feistel" (no memory, up to 2^48 samples) or "numpy" (the reference loader's order, 8 bytes
            per sample in each process).
        block_samples: Samples of a block with shuffle="block", at least 1.

    Raises:
        ConfigError: If an argument is out of range, or there are too many samples for the order.
    """

    name = "permutation"

    def __init__(
        self,
        upstream: IndexedNode,
        *,
        shuffle: bool | str,
        seed: int = 42,
        order: str = "feistel",
        block_samples: int = 1024,
    ) -> None:
        check_order(order)
        if len(upstream) > MAX_SAMPLES:
            raise ConfigError(f"at most 2^48 samples can be ordered, the corpus has {len(upstream):,}.")
        self.upstream = upstream
        self.seed = check_int("seed", seed, at_least=0)
        self.order = _name_order(shuffle, order)
        self.block_samples = check_int("block_samples", block_samples, at_least=1)
        self._current: tuple[int, Order] | None = None

    def __repr__(self) -> str:
        return f"EpochPermutation({self.order}, seed={self.seed})"

    def __len__(self) -> int:
        """Samples of an epoch."""
        return len(self.upstream)

    def indices(self, positions: Ints, epoch: int) -> Ints:
        """Return the indices of the samples at positions of an epoch, int64 of the same shape."""
        if self._current is None or self._current[0] != epoch:
            size, blocks = len(self), self.block_samples
            order = make_order(
                self.order, num_samples=size, seed=self.seed, epoch=epoch, block_samples=blocks
            )
            self._current = (epoch, order)
        return self._current[1](positions)

    def plan(self, indices: Ints, bounds: Sequence[int]) -> ReadPlan[AnyRows]:
        """Return the upstream node's plan."""
        return self.upstream.plan(indices, bounds)

    def state_dict(self) -> dict[str, Any]:
        """Return the settings that decide the order; the seed is 0 where it does not matter."""
        return {
            "order": self.order,
            "version": ORDER_VERSIONS[self.order],
            "seed": 0 if self.order == "sequential" else self.seed,
            "block_samples": self.block_samples if self.order == "block" else 0,
        }

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_current": None}


def check_order(order: str) -> None:
    """Raise ConfigError unless an order is "feistel" or "numpy"."""
    if order not in ("feistel", "numpy"):
        raise ConfigError(f'order must be "feistel" or "numpy", got {order!r}.')


def _name_order(shuffle: bool | str, order: str) -> str:
    """Return the name of the order that `shuffle` and `order` select."""
    if not isinstance(shuffle, (bool, np.bool_)) and shuffle != "block":
        raise ConfigError(f'shuffle must be True, False or "block", got {shuffle!r}.')
    if shuffle == "block":
        if order != "feistel":
            raise ConfigError(f'shuffle="block" has its own order; leave order={order!r} out.')
        return "block"
    return order if shuffle else "sequential"
