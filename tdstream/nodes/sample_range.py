"""Some of the samples of a reader, from one to another: a part of a corpus for training, or held out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import ConfigError
from tdstream.core.state import IdentityState
from tdstream.nodes.base import AnyRows, Foresighted, ReaderNode, Stretched


class SampleRange(IdentityState):
    """Samples first .. last - 1 of a reader, which are samples 0, 1, ... here.

    Args:
        upstream: The samples.
        first: The first one.
        last: The one behind the last.

    Raises:
        ConfigError: If none is left.
    """

    name = "reader"

    def __init__(self, upstream: ReaderNode, first: int, last: int) -> None:
        if not 0 <= first < last <= len(upstream):
            raise ConfigError(f"samples {first:,} to {last:,} of {len(upstream):,} are none; choose others.")
        self.upstream, self.first, self.last = upstream, first, last
        self.seq_len = upstream.seq_len

    def __repr__(self) -> str:
        return f"{self.upstream!r} > SampleRange({self.first:,}:{self.last:,})"

    def __len__(self) -> int:
        """Samples of the range."""
        return self.last - self.first

    def read(self, indices: NDArray[np.int64]) -> AnyRows:
        """Return the samples at indices [n] of the range."""
        return self.upstream.read(indices + self.first)

    def expect(self, indices: NDArray[np.int64]) -> None:
        """Be told which samples are read next."""
        if isinstance(self.upstream, Foresighted):
            self.upstream.expect(indices + self.first)

    def stretches(self, index: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return a sample's stretches, as the reader tells them.

        Raises:
            ConfigError: If it tells none.
        """
        if not isinstance(self.upstream, Stretched):
            raise ConfigError("these samples are not made of stretches that documents decide.")
        return self.upstream.stretches(index + self.first)

    def state_dict(self) -> dict[str, Any]:
        """Return what the samples are, and which of them these are."""
        return {**self.upstream.state_dict(), "first_sample": self.first, "samples": len(self)}
