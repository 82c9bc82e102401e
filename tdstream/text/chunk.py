"""Cut a stream of documents into samples wherever they end, as the shards' reader does."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.checks import whole
from tdstream.errors import ConfigError
from tdstream.rows import Tokens
from tdstream.state import Compared
from tdstream.text.sample import Block, Sample
from tdstream.text.tokenize import Documents


class Chunk(Compared):
    """Sample i is tokens i * stride .. i * stride + seq_len of a stream's documents, joined.

    Args:
        seq_len: T, tokens of a sample's input; it has one more, for the last label.
        stride: Tokens from one sample's start to the next one's, 1 to seq_len + 1, the default.
        dtype: The storage type.

    Raises:
        ConfigError: If one is out of range.
    """

    name = "chunk"

    def __init__(self, *, seq_len: int, stride: int | None = None, dtype: np.dtype[Any]) -> None:
        self.seq_len = seq_len = whole("seq_len", seq_len, at_least=1)
        self.stride = seq_len + 1 if stride is None else whole("stride", stride, at_least=1)
        if self.stride > seq_len + 1:
            raise ConfigError(f"stride must be 1 to seq_len + 1 = {seq_len + 1}, got {stride}.")
        self._dtype = dtype

    def __repr__(self) -> str:
        return f"Chunk({self.seq_len + 1:,} tokens)"

    is_marked = False
    """Whether samples can have padding."""

    def begin(self, block: Block) -> Chunking:
        """Begin to cut at a block whose samples lie, or begin, behind all that were served."""
        return Chunking(self.seq_len + 1, self.stride, block, self._dtype)

    def state_dict(self) -> dict[str, Any]:
        """Return what decides where samples begin and end."""
        return {"cut": "stream", "seq_len": self.seq_len, "stride": self.stride}


class Chunking:
    """Cutting that goes on from block to block; tokens that make no sample yet are kept."""

    def __init__(self, length: int, stride: int, begin: Block, dtype: np.dtype[Any]) -> None:
        self._length, self._stride = length, stride
        self.number = -(-begin.tokens // stride)
        """Of the next sample."""
        self.left_out = 0
        self._rest: Tokens = np.empty(0, dtype)
        self._rest_from = begin.tokens
        self._blocks: list[Block] = []  # those that the rest is from
        self._held: Block | None = None  # the one in which the next sample has begun

    def feed(self, block: Block, documents: Documents) -> list[Sample]:
        """Return the samples that end in a block; each waits, from now on, in the block in which it begins.

        Args:
            block: The block.
            documents: Its documents.
        """
        tokens = np.concatenate([self._rest, documents.tokens])
        end, ends = self._rest_from + len(tokens), block.tokens + documents.ends
        self._blocks.append(block)
        samples = []
        while self._start + self._length <= end:
            samples.append(self._sample(tokens, block, ends))
            self.number += 1
        self._keep(tokens, end)
        return samples

    @property
    def _start(self) -> int:
        """The first token of the next sample."""
        return self.number * self._stride

    def _sample(self, tokens: Tokens, block: Block, ends: NDArray[np.int64]) -> Sample:
        first = self._start - self._rest_from
        row = tokens[first : first + self._length].copy()  # a view would keep the tokens of the whole block
        record = int(np.searchsorted(ends, self._start + self._length - 1, side="right"))
        begins = self._block_of(self._start)
        begins.waiting += 1
        return Sample(self.number, block.place.records + record, begins, row, self._length, 0, False)

    def _keep(self, tokens: Tokens, end: int) -> None:
        """Keep what the next sample begins with, and let it wait in its block."""
        start = min(self._start, end)
        self._rest, self._rest_from = tokens[start - self._rest_from :].copy(), start
        if self._held is not None:
            self._held.waiting -= 1
        self._held = self._block_of(start) if len(self._rest) else None
        if self._held is not None:
            self._held.waiting += 1
        self._blocks = [] if self._held is None else self._blocks[self._blocks.index(self._held) :]

    def _block_of(self, token: int) -> Block:
        return self._blocks[bisect_right([block.tokens for block in self._blocks], token) - 1]
