"""Windows of a token stream at the multiples of a stride; they may cross shards."""

from __future__ import annotations

from typing import Any

import numpy as np

from tdstream.core.checks import check_int
from tdstream.core.errors import ConfigError, CorpusError
from tdstream.core.state import IdentityState
from tdstream.corpus.shard_reader import Tokens
from tdstream.nodes.base import Ints, LazyStream, PlanByReading, TokenSource


class MemmapReader(PlanByReading, IdentityState):
    """Windows of a token stream: sample i is tokens i * stride .. i * stride + seq_len.

    Args:
        source: The source of the tokens, such as a ShardSource.
        seq_len: Tokens of a sample's input; the sample has one more, for the last label.
        stride: Tokens from the start of a sample to that of the next, 1 to seq_len + 1. With the default,
            seq_len + 1, no token is in two samples; with seq_len, each token is a label once.
        part: (first, last): only tokens first .. last - 1; None means all.

    Raises:
        ConfigError: If seq_len or stride is out of range.
        CorpusError: If there are not enough tokens for one sample.
    """

    name = "reader"

    def __init__(
        self,
        source: TokenSource,
        *,
        seq_len: int,
        stride: int | None = None,
        part: tuple[int, int] | None = None,
    ) -> None:
        self.source = source
        self.seq_len = seq_len = check_int("seq_len", seq_len, at_least=1)
        self.stride = seq_len + 1 if stride is None else check_int("stride", stride, at_least=1)
        if self.stride > seq_len + 1:
            raise ConfigError(f"stride must be 1 to seq_len + 1 = {seq_len + 1}, got {stride}.")
        self._part = part
        self._first, last = (0, source.total_tokens) if part is None else part
        self._tokens = last - self._first
        if self._tokens < seq_len + 1:
            raise CorpusError(
                f"{source.what}{', this part of it,' * bool(part)} holds {self._tokens:,} tokens, fewer "
                f"than the {seq_len + 1:,} of one sample (seq_len + 1). "
                f"Use a smaller seq_len or a larger corpus."
            )
        self._stream = LazyStream(source)

    def __repr__(self) -> str:
        return f"MemmapReader({len(self):,} samples of {self.seq_len + 1:,} tokens)"

    def __len__(self) -> int:
        """Samples; an incomplete one at the end is left out."""
        return (self._tokens - self.seq_len - 1) // self.stride + 1

    def first_tokens(self, indices: Ints) -> Ints:
        """Return the places of samples' first tokens in the stream, int64 [n]."""
        return indices * self.stride + self._first

    def read(self, indices: Ints) -> Tokens:
        """Return the samples at the indices [n], as rows [n, seq_len + 1] in the storage type."""
        return self._stream.rows(self.first_tokens(indices), self.seq_len + 1)

    def stretches(self, index: int) -> tuple[Ints, Ints, Ints]:
        """Return the only part of the stream in a sample, of no known document."""
        return self.first_tokens(np.array([index])), np.array([self.seq_len + 1]), np.array([-1])

    def state_dict(self) -> dict[str, Any]:
        """Return the settings that decide where samples begin and end."""
        part = {} if self._part is None else {"first_token": self._first, "tokens": self._tokens}
        return {"seq_len": self.seq_len, "stride": self.stride, **part}
