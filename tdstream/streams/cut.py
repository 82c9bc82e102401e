"""Samples cut from a stream of documents as it arrives, by the same rules as from shards."""

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
class RecordBlock:
    """Some records of a stream; a stream can resume at a block that has samples waiting."""

    place: Place
    """Where they begin in the source."""
    tokens: int
    """Tokens of this stream's epoch before the block."""
    samples: int
    """Samples cut before the block."""
    left_out: int = 0
    """Documents, or ends of documents, too short for a sample, before the block."""
    waiting: int = 0
    """Samples that begin in the block and have not been served, including one that is still incomplete."""


@dataclass(slots=True)
class Sample:
    """One row, and what its place in the order depends on."""

    number: int
    """Samples of this stream's epoch before it."""
    record: int
    """The record of this stream in which it ends."""
    block: RecordBlock
    """The block in which it begins."""
    tokens: Tokens
    """Shape [seq_len + 1]."""
    length: int
    """Tokens that are not padding."""
    overlap: int
    """How many of its first labels the sample before it has already."""
    stops: bool
    """Whether its document ends with it; unknown, and False, where samples cross documents."""


class StreamCut(IdentityState):
    """Sample i is tokens i * stride .. i * stride + seq_len of a stream's documents, joined.

    The stride is 1 to seq_len + 1, the default; other values raise ConfigError.
    """

    name = "chunk"
    is_marked = False
    """Whether samples can have padding."""
    document_cut = None

    def __init__(self, *, seq_len: int, stride: int | None = None, dtype: np.dtype[Any]) -> None:
        self.seq_len = seq_len = check_int("seq_len", seq_len, at_least=1)
        self.stride = seq_len + 1 if stride is None else check_int("stride", stride, at_least=1)
        if self.stride > seq_len + 1:
            raise ConfigError(f"stride must be 1 to seq_len + 1 = {seq_len + 1}, got {stride}.")
        self._dtype = dtype

    def __repr__(self) -> str:
        return f"StreamCut({self.seq_len + 1:,} tokens)"

    def begin(self, block: RecordBlock) -> StreamCutter:
        """Begin at a block that comes before every sample still to be served."""
        return StreamCutter(self.seq_len + 1, self.stride, block, self._dtype)

    def state_dict(self) -> dict[str, Any]:
        """Return what decides where samples begin and end."""
        return {"cut": "stream", "seq_len": self.seq_len, "stride": self.stride}


class StreamCutter:
    """Cuts block after block; tokens that do not fill a sample yet are kept.

    Samples of 5 tokens with stride 4, blocks of 6 tokens: the first block gives sample 0, tokens 0 .. 4, and
    tokens 4, 5 are kept; the second gives sample 1, tokens 4 .. 8, and tokens 8 .. 11 are kept.
    """

    def __init__(self, length: int, stride: int, begin: RecordBlock, dtype: np.dtype[Any]) -> None:
        self._length, self._stride = length, stride
        self.number = -(-begin.tokens // stride)
        """Of the next sample."""
        self.left_out = 0
        self._rest: Tokens = np.empty(0, dtype)
        self._rest_from = begin.tokens
        self._blocks: list[RecordBlock] = []  # those that the rest is from
        self._open: RecordBlock | None = None  # the one in which the next sample has begun

    def feed(self, block: RecordBlock, documents: TokenizedDocuments) -> list[Sample]:
        """Return the samples that end in a block; each now waits in the block in which it begins."""
        tokens = np.concatenate([self._rest, documents.tokens])
        end, ends = self._rest_from + len(tokens), block.tokens + documents.ends
        self._blocks.append(block)
        samples = []
        while self._start + self._length <= end:
            samples.append(self._cut(tokens, block, ends))
            self.number += 1
        self._keep(tokens, end)
        return samples

    @property
    def _start(self) -> int:
        """The first token of the next sample."""
        return self.number * self._stride

    def _cut(self, tokens: Tokens, block: RecordBlock, ends: NDArray[np.int64]) -> Sample:
        first = self._start - self._rest_from
        row = tokens[first : first + self._length].copy()  # a view would keep the tokens of the whole block
        record = int(np.searchsorted(ends, self._start + self._length - 1, side="right"))
        begins = self._find_block(self._start)
        begins.waiting += 1
        return Sample(self.number, block.place.records + record, begins, row, self._length, 0, False)

    def _keep(self, tokens: Tokens, end: int) -> None:
        """Keep the beginning of the next sample, which now waits in its block."""
        start = min(self._start, end)
        self._rest, self._rest_from = tokens[start - self._rest_from :].copy(), start
        begun = self._find_block(start) if len(self._rest) else None
        if begun is not None:
            begun.waiting += 1  # first, so that its block is never without it
        if self._open is not None:
            self._open.waiting -= 1
        self._open = begun
        self._blocks = [] if self._open is None else self._blocks[self._blocks.index(self._open) :]

    def _find_block(self, token: int) -> RecordBlock:
        return self._blocks[bisect_right([block.tokens for block in self._blocks], token) - 1]


def stack_samples(samples: Sequence[Sample], *, marked: bool) -> Tokens | MarkedRows:
    """Return samples as rows [B, seq_len + 1]; marked where they can have padding."""
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
    """Windows of single documents, by the rules of `schedule.windows`, filled with pad_token_id."""

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
        self.document_cut = DocumentCut.of(self.seq_len, stride, min_tail_len)
        self.stride, self.pad_token_id, self._dtype = self.document_cut.stride, pad_token_id, dtype

    def __repr__(self) -> str:
        return f"StreamDocumentCut({self.seq_len:,} tokens)"

    def begin(self, block: RecordBlock) -> DocumentCutter:
        """Begin at a block."""
        return DocumentCutter(self.document_cut, block, self.pad_token_id, self._dtype)

    def state_dict(self) -> dict[str, Any]:
        """Return what decides where samples begin and end, and what fills them."""
        return {
            "cut": "document",
            "seq_len": self.seq_len,
            "stride": self.stride,
            "min_tail_len": self.document_cut.min_tail,
            "pad_token_id": self.pad_token_id,
        }


class DocumentCutter:
    """Cuts block after block; nothing is kept in between."""

    def __init__(self, cut: DocumentCut, begin: RecordBlock, pad_token_id: int, dtype: np.dtype[Any]) -> None:
        self._cut, self._pad, self._dtype = cut, pad_token_id, dtype
        self.number = begin.samples
        """Of the next sample."""
        self.left_out = begin.left_out
        """Documents, and ends of documents, too short for a sample."""

    def feed(self, block: RecordBlock, documents: TokenizedDocuments) -> list[Sample]:
        """Return the samples of a block, which now wait in it.

        Documents end with their end-of-text tokens. With seq_len 4, document ends [6, 7, 12] make sizes
        [6, 1, 5]: documents 0 and 2 are kept, with 2 windows each at tokens 0, 4 and 7, 11, so owners is
        [0, 0, 2, 2] and numbers [0, 1, 0, 1].
        """
        begins = np.concatenate([[0], documents.ends[:-1]]).astype(np.int64)
        sizes = documents.ends - begins
        kept = np.flatnonzero(self._cut.is_kept(sizes - 1))
        counts = self._cut.count(sizes[kept])
        owners = np.repeat(kept, counts)
        numbers = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        windows = self._cut.windows(sizes[owners], numbers)
        self.left_out += len(sizes) - len(kept) + _count_short_ends(windows, sizes[owners])
        first, block.waiting = self.number, block.waiting + len(owners)
        self.number += len(owners)
        rows = self._make_rows(documents.tokens, begins[owners] + windows.starts, windows.lengths)
        marks = (part.tolist() for part in (windows.lengths, windows.overlaps, windows.stops))
        facts = zip(owners.tolist(), rows, *marks, strict=True)
        record = block.place.records
        return [
            Sample(first + number, record + owner, block, row, length, overlap, stops)
            for number, (owner, row, length, overlap, stops) in enumerate(facts)
        ]

    def _make_rows(
        self, tokens: Tokens, starts: NDArray[np.int64], lengths: NDArray[np.int32]
    ) -> list[Tokens]:
        rows = []
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            row: Tokens = np.full(self._cut.seq_len + 1, self._pad, self._dtype)
            row[:length] = tokens[start : start + length]
            rows.append(row)
        return rows


def _count_short_ends(windows: Windows, sizes: NDArray[np.int64]) -> int:
    """Return how many documents have tokens after their last window."""
    return int(np.count_nonzero(windows.stops & (windows.starts + windows.lengths < sizes)))
