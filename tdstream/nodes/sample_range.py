"""A range of a reader's samples, such as the part of a corpus that is held out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tdstream.core.errors import ConfigError
from tdstream.core.state import IdentityState
from tdstream.nodes.base import Ints, ReadByPlanning, ReaderNode, ReadPlan
from tdstream.nodes.rows import AnyRows


class SampleRange(ReadByPlanning, IdentityState):
    """Samples first .. last - 1 of a reader, as samples 0, 1, ...

    Args:
        upstream: The reader.
        first: The first sample.
        last: One more than the last sample.

    Raises:
        ConfigError: If the range is empty or reaches beyond the reader's samples.
    """

    name = "reader"

    def __init__(self, upstream: ReaderNode, first: int, last: int) -> None:
        if not 0 <= first < last <= len(upstream):
            raise ConfigError(
                f"samples {first:,} to {last:,} of {len(upstream):,} are not a range; choose other samples."
            )
        self.upstream, self.first, self.last = upstream, first, last
        self.seq_len = upstream.seq_len

    def __repr__(self) -> str:
        return f"{self.upstream!r} > SampleRange({self.first:,}:{self.last:,})"

    def __len__(self) -> int:
        """Samples of the range."""
        return self.last - self.first

    def plan(self, indices: Ints, bounds: Sequence[int]) -> ReadPlan[AnyRows]:
        """Return the reader's plan for the same samples."""
        return self.upstream.plan(indices + self.first, bounds)

    def stretches(self, index: int) -> tuple[Ints, Ints, Ints]:
        """Return the reader's parts of the stream in a sample."""
        return self.upstream.stretches(index + self.first)

    def state_dict(self) -> dict[str, Any]:
        """Return the reader's identity and the range."""
        return {**self.upstream.state_dict(), "first_sample": self.first, "samples": len(self)}
