"""Rows packed with whole documents, as a plan says: read anywhere, nothing of the plan is held in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.corpus.document_ends import DocumentEnds
from tdstream.corpus.pack_plan import PackOptions, PackPlan
from tdstream.foresight import Foresight, Ragged
from tdstream.node import Rows, TokenStream
from tdstream.packing import VERSION
from tdstream.rows import MarkedRows, RowEnds
from tdstream.state import Compared


class PackedDocuments(Compared):
    """Samples that hold whole documents, and full rows of those that are longer than a row.

    Args:
        tokens: The stream of tokens.
        ends: Where its documents end.
        plan: Which of them each row holds.
        options: What decided the plan.
        pad_id: Stands at places behind a row's tokens.
    """

    name = "reader"

    def __init__(
        self,
        tokens: TokenStream,
        ends: DocumentEnds,
        plan: PackPlan,
        options: PackOptions,
        *,
        pad_id: int = 0,
    ) -> None:
        self.tokens, self.ends, self.plan, self.options = tokens, ends, plan, options
        self.seq_len, self.pad_id = options.seq_len, pad_id
        self._foresight = Foresight(self._pieces)
        self._padding: Rows = np.full(options.seq_len + 1, pad_id, tokens.dtype)

    def __repr__(self) -> str:
        return f"PackedDocuments({len(self):,} rows of {self.seq_len:,} tokens)"

    def __len__(self) -> int:
        """Rows of the plan."""
        return self.plan.num_rows

    def read(self, indices: NDArray[np.int64]) -> MarkedRows:
        """Return the rows at indices [n], as rows [n, seq_len + 1]."""
        pieces = self._foresight.of(indices)
        starts, lengths = pieces.entries
        upto = lengths.cumsum()
        row_ends = upto[pieces.after[1:] - 1]  # of all rows' pieces up to each row's last
        row_lengths = row_ends - np.concatenate([[0], row_ends[:-1]])
        ends = upto - (row_ends - row_lengths).repeat(pieces.counts)  # places in the row
        tokens = self._joined(self.tokens.slices(starts.tolist(), lengths.tolist()), pieces, row_lengths)
        stops = row_lengths <= self.seq_len
        marks = RowEnds(np.where(stops, pieces.counts, 0), ends[ends <= self.seq_len])
        overlaps = np.zeros(len(indices), np.int32)
        return MarkedRows(tokens, row_lengths.astype(np.int32), overlaps, stops, marks)

    def expect(self, indices: NDArray[np.int64]) -> None:
        """Be told which samples are read next."""
        self._foresight.expect(indices)

    def state_dict(self) -> dict[str, Any]:
        """Return what decides what is in which row."""
        first, last = self.options.documents
        part = {} if last - first == self.ends.num_documents else {"first_document": first}
        return {
            "cut": "pack",
            "version": VERSION,
            "seq_len": self.seq_len,
            "window": self.options.window,
            "pad_id": self.pad_id,
            "samples": len(self),
            **self.ends.identity(),
            **part,
        }

    def _pieces(self, indices: NDArray[np.int64]) -> Ragged:
        """Return where the pieces of rows start, and their tokens."""
        firsts, starts, lengths = self.plan.arrays()
        low = firsts[indices]
        counts = firsts[indices + 1] - low
        after = counts.cumsum()
        pieces = (low - after + counts).repeat(counts)
        pieces += np.arange(len(pieces))
        return Ragged.of(counts, starts[pieces], lengths[pieces].astype(np.int64))

    def _joined(self, parts: list[Rows], pieces: Ragged, row_lengths: Any) -> Rows:
        """Return rows [n, seq_len + 1] of their pieces' tokens, and padding behind them."""
        rows, after = [np.empty(0, self.tokens.dtype)], pieces.after.tolist()
        for number, length in enumerate(row_lengths.tolist()):
            rows += (*parts[after[number] : after[number + 1]], self._padding[length:])
        joined: Rows = np.concatenate(rows).reshape(-1, self.seq_len + 1)
        return joined
