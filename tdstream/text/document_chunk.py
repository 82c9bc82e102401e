"""Cut each document by itself into samples, with padding where one ends."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.checks import whole
from tdstream.rows import Tokens
from tdstream.state import Compared
from tdstream.text.sample import Block, Sample
from tdstream.text.tokenize import Documents
from tdstream.windows import DocumentCut, Windows


class DocumentChunk(Compared):
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
        self.seq_len = whole("seq_len", seq_len, at_least=1)
        self.cut = DocumentCut.of(self.seq_len, stride, min_tail_len)
        self.pad_token_id, self._dtype = pad_token_id, dtype

    def __repr__(self) -> str:
        return f"DocumentChunk({self.seq_len:,} tokens)"

    def begin(self, block: Block) -> DocumentChunking:
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

    def __init__(self, cut: DocumentCut, begin: Block, pad_token_id: int, dtype: np.dtype[Any]) -> None:
        self._cut, self._pad, self._dtype = cut, pad_token_id, dtype
        self.number = begin.samples
        """Of the next sample."""
        self.left_out = begin.left_out
        """Documents, and ends of documents, that were too short for a sample."""

    def feed(self, block: Block, documents: Documents) -> list[Sample]:
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
