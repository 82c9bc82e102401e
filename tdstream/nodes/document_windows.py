"""Windows inside single documents, found by arithmetic, without a list of windows.

Documents form blocks of 8. For each block, only the number of its first window is stored, in 8 bytes. A
window is found by searching these numbers for its block, and the block's documents for its document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tdstream.core.errors import CorpusError
from tdstream.core.state import IdentityState
from tdstream.corpus.derived import WindowCounts, count_document_windows, count_windows
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.corpus.shard_reader import Tokens
from tdstream.nodes.base import Ints, LazyStream, ReadByPlanning, TokenSource, TokenStream
from tdstream.nodes.rows import EndsPlan, MarkedRows, RowEnds
from tdstream.schedule.windows import DocumentCut, Windows


class DocumentWindows(ReadByPlanning, IdentityState):
    """Samples that never cross the end of a document, padded where a document is shorter.

    Args:
        source: The source of the tokens.
        ends: Where its documents end.
        cut: How a document is cut into windows.
        pad_id: The id at places after a window's tokens.
        documents: (first, last): only documents first .. last - 1; None means all.
        mark_ends: Whether rows mark the ends of documents.
        counts: The windows of these documents, if they are counted already.

    Raises:
        CorpusError: If no document is long enough for a window.
    """

    name = "reader"

    def __init__(
        self,
        source: TokenSource,
        ends: DocumentEnds,
        cut: DocumentCut,
        *,
        pad_id: int = 0,
        documents: tuple[int, int] | None = None,
        mark_ends: bool = False,
        counts: WindowCounts | None = None,
    ) -> None:
        self.ends, self.cut, self.pad_id = ends, cut, pad_id
        self._stream = LazyStream(source)
        self._padding: Tokens = np.full(cut.seq_len + 1, pad_id, source.dtype)
        self.seq_len, self._mark_ends, self._part = cut.seq_len, mark_ends, documents
        self._first, self._last = (0, ends.num_documents) if documents is None else documents
        self.counts = counts or WindowCounts(count_windows(ends, cut, (self._first, self._last)))
        if len(self) == 0:
            raise CorpusError(
                f"none of the {self._last - self._first:,} documents has the {max(cut.min_tail, 1):,} tokens "
                f"that a window needs; use a smaller min_tail_len."
            )

    def __repr__(self) -> str:
        return f"DocumentWindows({len(self):,} windows of up to {self.seq_len:,} tokens)"

    def __len__(self) -> int:
        """Windows of all documents."""
        return int(self.counts.firsts[-1])

    def plan(self, indices: Ints, bounds: Sequence[int]) -> _WindowsPlan:
        """Return a plan, after finding all its windows."""
        windows = self.locate(indices)
        ends = None
        if self._mark_ends:
            ends = EndsPlan(RowEnds.from_lengths(windows.lengths, self.seq_len), self.seq_len, bounds)
        return _WindowsPlan(self._stream, self._padding, windows, ends, bounds)

    def locate(self, indices: Ints) -> Windows:
        """Return the windows at the indices [n]; their starts are places in the stream.

        With blocks of 2 documents that have 3 0 | 1 2 windows, `firsts` is 0 3 6. Index 4 is window 1 of
        block 1; the cumulative counts of that block are 1 3, so it is window 0 of the block's document 1.
        """
        firsts, size = self.counts.firsts, self.counts.block
        order = indices.argsort()  # searching for many numbers is several times faster in ascending order
        blocks = np.empty_like(indices)
        blocks[order] = firsts.searchsorted(indices[order], side="right") - 1
        own = (self._first + blocks * size)[:, None] + np.arange(-1, size)
        numbers = np.minimum(own, self._last - 1)  # [n, block + 1]
        ends = self.ends.at(numbers.ravel()).reshape(numbers.shape)
        counts = count_document_windows(self.ends, self.cut, np.diff(ends, axis=1), numbers[:, 1:])
        upto = counts.cumsum(axis=1)  # [n, block]
        inside = indices - firsts[blocks]  # among the block's windows
        document = (upto <= inside[:, None]).sum(axis=1)
        rows = np.arange(len(indices))
        before = np.where(document > 0, upto[rows, document - 1], 0)
        begins = ends[rows, document]
        windows = self.cut.windows(ends[rows, document + 1] - begins, inside - before)
        return replace(windows, starts=begins + windows.starts)

    def stretches(self, index: int) -> tuple[Ints, Ints, Ints]:
        """Return the only part of the stream in a sample."""
        found = self.locate(np.array([index]))
        return found.starts, found.lengths.astype(np.int64), self.ends.until(found.starts)

    def state_dict(self) -> dict[str, Any]:
        """Return the settings that decide where windows begin and end."""
        part = {} if self._part is None else {"first_document": self._first}
        return {
            "cut": "document",
            "seq_len": self.seq_len,
            "stride": self.cut.stride,
            "min_tail_len": self.cut.min_tail,
            "pad_id": self.pad_id,
            "samples": len(self),
            **self.ends.identity(),
            **part,
        }


@dataclass(frozen=True, slots=True)
class _WindowsPlan:
    stream: TokenStream
    padding: Tokens
    windows: Windows
    ends: EndsPlan | None
    bounds: Sequence[int]

    def read(self, item: int) -> MarkedRows:
        windows = self.windows.part(self.bounds[item], self.bounds[item + 1])
        lengths, padding, parts = windows.lengths.tolist(), self.padding, [self.padding[:0]]
        for part, length in zip(self.stream.slices(windows.starts.tolist(), lengths), lengths, strict=True):
            parts += (part, padding[length:])
        tokens: Tokens = np.concatenate(parts).reshape(-1, len(padding))
        ends = None if self.ends is None else self.ends.read(item)
        return MarkedRows(tokens, windows.lengths, windows.overlaps, windows.stops, ends)
