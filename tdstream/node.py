"""What the nodes of a pipeline promise each other: the two kinds, and what a stored sample is."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.unsignedinteger[Any]]
"""Samples in the type they are stored in, uint16 or uint32, [n, seq_len + 1]."""


class Node(Protocol):
    """Anything in a pipeline; it can say what it is and refuse to be mistaken for something else."""

    @property
    def name(self) -> str:
        """The key of this node's part in a state."""

    def state_dict(self) -> dict[str, Any]:
        """Return the node's identity, and its position if it has one; JSON types, built fresh."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Compare a saved identity with this node's, and take over the position if it has one."""

    def differences(self, saved: dict[str, Any]) -> list[str]:
        """Return a phrase for each way in which a saved identity is not this node's."""


class IndexedNode(Node, Protocol):
    """Readable anywhere: the same settings and index give the same sample on every machine."""

    def __len__(self) -> int:
        """Samples that can be read."""

    def read(self, indices: NDArray[np.int64]) -> Rows:
        """Return the samples at the indices [n] as rows [n, seq_len + 1]."""


class OrderedNode(IndexedNode, Protocol):
    """An indexed node whose order differs from epoch to epoch."""

    def indices(self, positions: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Return the indices that stand at positions of an epoch; same shape, cheap, nothing is read."""
