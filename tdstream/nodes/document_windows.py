"""Windows that lie inside one document each, found by arithmetic: no list of windows is held.

Documents are taken in blocks; of each block only the number of its first window is held, 8 bytes for
8 documents. A window's block is searched among them, then its document in the block's own ends.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import CorpusError
from tdstream.core.state import IdentityState
from tdstream.corpus.derived import WindowCounts, count_windows, windows_of
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.nodes.base import MarkedRows, RowEnds, Rows, TokenStream
from tdstream.nodes.lookahead import EndsAhead, Lookahead
from tdstream.schedule.windows import DocumentCut, Windows

Ints = NDArray[np.int64]


class DocumentWindows(IdentityState):
    """Samples of a corpus that never cross a document's end, padded where the document is shorter.

    Args:
        tokens: The stream of tokens.
        ends: Where its documents end.
        cut: How a document is cut.
        pad_id: Stands at places behind a window's tokens.
        documents: (first, last): only documents first .. last - 1; None means all.
        mark_ends: Whether rows say where documents end.
        counts: How many windows these documents have, if that is known, else they are counted.

    Raises:
        CorpusError: If there is no window at all.
    """

    name = "reader"

    def __init__(
        self,
        tokens: TokenStream,
        ends: DocumentEnds,
        cut: DocumentCut,
        *,
        pad_id: int = 0,
        documents: tuple[int, int] | None = None,
        mark_ends: bool = False,
        counts: WindowCounts | None = None,
    ) -> None:
        self.tokens, self.ends, self.cut, self.pad_id = tokens, ends, cut, pad_id
        self._padding: Rows = np.full(cut.seq_len + 1, pad_id, tokens.dtype)
        self.seq_len, self._mark_ends, self._part = cut.seq_len, mark_ends, documents
        self._first, self._last = (0, ends.num_documents) if documents is None else documents
        self._foresight = Lookahead(self._found, partial(FoundAhead, cut.seq_len))
        self.counts = counts or WindowCounts(count_windows(ends, cut, (self._first, self._last)))
        if len(self) == 0:
            raise CorpusError(
                f"none of the {self._last - self._first:,} documents has the {max(cut.min_tail, 1):,} tokens "
                f"that make one worth a window; use a smaller min_tail_len."
            )

    def __repr__(self) -> str:
        return f"DocumentWindows({len(self):,} windows of up to {self.seq_len:,} tokens)"

    def __len__(self) -> int:
        """Windows of all documents."""
        return int(self.counts.firsts[-1])

    def read(self, indices: Ints) -> MarkedRows:
        """Return the windows at indices [n], as rows [n, seq_len + 1]."""
        windows, ends = self._foresight.of(indices)
        lengths, padding, parts = windows.lengths.tolist(), self._padding, [self._padding[:0]]
        for part, length in zip(self.tokens.slices(windows.starts.tolist(), lengths), lengths, strict=True):
            parts += (part, padding[length:])
        tokens: Rows = np.concatenate(parts).reshape(-1, self.seq_len + 1)
        return MarkedRows(tokens, windows.lengths, windows.overlaps, windows.stops, ends)

    def expect(self, indices: Ints) -> None:
        """Be told which samples are read next."""
        self._foresight.expect(indices)

    def locate(self, indices: Ints) -> Windows:
        """Return the windows at indices [n]; they start at places in the stream."""
        firsts, size = self.counts.firsts, self.counts.block
        order = indices.argsort()  # a search for many is several times faster in their order
        blocks = np.empty_like(indices)
        blocks[order] = firsts.searchsorted(indices[order], side="right") - 1
        own = (self._first + blocks * size)[:, None] + np.arange(-1, size)
        numbers = np.minimum(own, self._last - 1)  # [n, block + 1]
        ends = self.ends.at(numbers.ravel()).reshape(numbers.shape)
        counts = windows_of(self.ends, self.cut, np.diff(ends, axis=1), numbers[:, 1:])
        upto = counts.cumsum(axis=1)  # [n, block]
        inside = indices - firsts[blocks]  # among the block's windows
        document = (upto <= inside[:, None]).sum(axis=1)
        rows = np.arange(len(indices))
        before = np.where(document > 0, upto[rows, document - 1], 0)
        begins = ends[rows, document]
        windows = self.cut.windows(ends[rows, document + 1] - begins, inside - before)
        return replace(windows, starts=begins + windows.starts)

    def stretches(self, index: int) -> tuple[Ints, Ints, Ints]:
        """Return a sample's only stretch: its first token, its tokens, and its document's number."""
        found = self.locate(np.array([index]))
        return found.starts, found.lengths.astype(np.int64), self.ends.until(found.starts)

    def _found(self, indices: Ints) -> Found:
        windows = self.locate(indices)
        return windows, RowEnds.of_lengths(windows.lengths, self.seq_len) if self._mark_ends else None

    def state_dict(self) -> dict[str, Any]:
        """Return what decides where windows begin and end."""
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


Found = tuple[Windows, RowEnds | None]
"""Windows, and where documents end in them, if that was asked for."""


class FoundAhead:
    """Many windows, of which batches are taken.

    Args:
        seq_len: T.
        found: The windows.
        size: Windows of a batch.
    """

    def __init__(self, seq_len: int, found: Found, size: int) -> None:
        self._windows, ends = found
        self._ends = None if ends is None else EndsAhead(seq_len, ends, size)

    def part(self, first: int, last: int) -> Found:
        """Return windows first .. last - 1."""
        ends = None if self._ends is None else self._ends.part(first, last)
        return self._windows.part(first, last), ends
