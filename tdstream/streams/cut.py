"""Cut a stream of documents into samples wherever they end, as the shards' reader does."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.checks import check_int
from tdstream.core.errors import ConfigError
from tdstream.core.state import IdentityState
from tdstream.corpus.shard_reader import Tokens
from tdstream.nodes.rows import MarkedRows
from tdstream.schedule.windows import DocumentCut, Windows
from tdstream.text.records import Place
from tdstream.text.tokenize import TokenizedDocuments


@dataclass(slots=True)
class SampleBlock:
    """Some records of a stream; if a sample of it is still to be served, the stream can go on from here."""

    place: Place
    """Where they begin in the source."""
    tokens: int
    """Tokens of this stream's epoch that lie before."""
    samples: int
    """Samples that were cut before."""
    left_out: int = 0
    """Documents, or ends of documents, that were too short for a sample, before."""
    waiting: int = 0
    """Samples that begin in it and have not been served, the one that is being put together included."""


@dataclass(slots=True)
class Sample:
    """One row, and what its place in the order depends on."""

    number: int
    """Samples of this stream's epoch before it."""
    record: int
    """The record of this stream in which it ends."""
    block: SampleBlock
    """The block in which it begins."""
    tokens: Tokens
    """Shape [seq_len + 1]."""
    length: int
    """How many of them are tokens, not padding."""
    overlap: int
    """How many of its first labels the sample before it has already."""
    stops: bool
    """Whether its document ends with it; not known, and False, where samples cross documents."""


class StreamCut(IdentityState):
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
        self.seq_len = seq_len = check_int("seq_len", seq_len, at_least=1)
        self.stride = seq_len + 1 if stride is None else check_int("stride", stride, at_least=1)
        if self.stride > seq_len + 1:
            raise ConfigError(f"stride must be 1 to seq_len + 1 = {seq_len + 1}, got {stride}.")
        self._dtype = dtype

    def __repr__(self) -> str:
        return f"StreamCut({self.seq_len + 1:,} tokens)"

    is_marked = False
    """Whether samples can have padding."""

    def begin(self, block: SampleBlock) -> Chunking:
        """Begin to cut at a block whose samples lie, or begin, behind all that were served."""
        return Chunking(self.seq_len + 1, self.stride, block, self._dtype)

    def state_dict(self) -> dict[str, Any]:
        """Return what decides where samples begin and end."""
        return {"cut": "stream", "seq_len": self.seq_len, "stride": self.stride}


class Chunking:
    """Cutting that goes on from block to block; tokens that make no sample yet are kept."""

    def __init__(self, length: int, stride: int, begin: SampleBlock, dtype: np.dtype[Any]) -> None:
        self._length, self._stride = length, stride
        self.number = -(-begin.tokens // stride)
        """Of the next sample."""
        self.left_out = 0
        self._rest: Tokens = np.empty(0, dtype)
        self._rest_from = begin.tokens
        self._blocks: list[SampleBlock] = []  # those that the rest is from
        self._held: SampleBlock | None = None  # the one in which the next sample has begun

    def feed(self, block: SampleBlock, documents: TokenizedDocuments) -> list[Sample]:
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

    def _sample(self, tokens: Tokens, block: SampleBlock, ends: NDArray[np.int64]) -> Sample:
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

    def _block_of(self, token: int) -> SampleBlock:
        return self._blocks[bisect_right([block.tokens for block in self._blocks], token) - 1]


def rows_of(samples: Sequence[Sample], *, marked: bool) -> Tokens | MarkedRows:
    """Return samples as rows [B, seq_len + 1]; marked where they may have padding."""
    tokens: Tokens = np.stack([sample.tokens for sample in samples])
    if not marked:
        return tokens
    return MarkedRows(
        tokens,
        np.array([sample.length for sample in samples], np.int32),
        np.array([sample.overlap for sample in samples], np.int32),
        np.array([sample.stops for sample in samples], np.bool_),
    )


class StreamDocumentCut(IdentityState):
    """Windows of single documents, as `windows.DocumentCut` says.

    Args:
        seq_len: T, tokens of a full window.
        stride: Tokens from one full window's start to the next one's, 1 to seq_len, the default.
        min_tail_len: The fewest tokens that are worth a window; default seq_len // 4.
        pad_token_id: What stands behind a document's end.
        dtype: The storage type.

    Raises:
        ConfigError: If one is out of range.
    """

    name = "chunk"
    is_marked = True
    """Whether samples can have padding."""

    def __init__(
        self,
        *,
        seq_len: int,
        stride: int | None = None,
        min_tail_len: int | None = None,
        pad_token_id: int,
        dtype: np.dtype[Any],
    ) -> None:
        self.seq_len = check_int("seq_len", seq_len, at_least=1)
        self.cut = DocumentCut.of(self.seq_len, stride, min_tail_len)
        self.pad_token_id, self._dtype = pad_token_id, dtype

    def __repr__(self) -> str:
        return f"StreamDocumentCut({self.seq_len:,} tokens)"

    def begin(self, block: SampleBlock) -> DocumentChunking:
        """Begin to cut at a block."""
        return DocumentChunking(self.cut, block, self.pad_token_id, self._dtype)

    def state_dict(self) -> dict[str, Any]:
        """Return what decides where samples begin and end, and what they are filled with."""
        cut = self.cut
        return {
            "cut": "document",
            "seq_len": cut.seq_len,
            "stride": cut.stride,
            "min_tail_len": cut.min_tail,
            "pad_token_id": self.pad_token_id,
        }


class DocumentChunking:
    """Cutting that goes on from block to block; nothing is kept in between."""

    def __init__(self, cut: DocumentCut, begin: SampleBlock, pad_token_id: int, dtype: np.dtype[Any]) -> None:
        self._cut, self._pad, self._dtype = cut, pad_token_id, dtype
        self.number = begin.samples
        """Of the next sample."""
        self.left_out = begin.left_out
        """Documents, and ends of documents, that were too short for a sample."""

    def feed(self, block: SampleBlock, documents: TokenizedDocuments) -> list[Sample]:
        """Return the samples of a block, which wait in it from now on.

        Args:
            block: The block.
            documents: Its documents, each with its end-of-text token.
        """
        begins = np.concatenate([[0], documents.ends[:-1]]).astype(np.int64)
        sizes = documents.ends - begins
        kept = np.flatnonzero(self._cut.is_kept(sizes - 1))
        counts = self._cut.count(sizes[kept])
        owners = np.repeat(kept, counts)
        numbers = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        windows = self._cut.windows(sizes[owners], numbers)
        self.left_out += len(sizes) - len(kept) + self._ends_left_out(windows, sizes[owners])
        first, block.waiting = self.number, block.waiting + len(owners)
        self.number += len(owners)
        rows = self._rows(documents.tokens, begins[owners] + windows.starts, windows.lengths)
        facts = zip(owners.tolist(), rows, *(part.tolist() for part in _marks(windows)), strict=True)
        record = block.place.records
        return [
            Sample(first + number, record + owner, block, row, length, overlap, stops)
            for number, (owner, row, length, overlap, stops) in enumerate(facts)
        ]

    def _rows(self, tokens: Tokens, starts: NDArray[np.int64], lengths: NDArray[np.int32]) -> list[Tokens]:
        rows = []
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            row: Tokens = np.full(self._cut.seq_len + 1, self._pad, self._dtype)
            row[:length] = tokens[start : start + length]
            rows.append(row)
        return rows

    @staticmethod
    def _ends_left_out(windows: Windows, sizes: NDArray[np.int64]) -> int:
        """Return how many documents go on behind their last window."""
        return int(np.count_nonzero(windows.stops & (windows.starts + windows.lengths < sizes)))


def _marks(windows: Windows) -> tuple[NDArray[Any], ...]:
    return windows.lengths, windows.overlaps, windows.stops
