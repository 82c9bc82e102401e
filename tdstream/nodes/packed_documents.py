"""Rows packed with whole documents, as a plan says: read anywhere, nothing of the plan is held in memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.state import IdentityState
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.corpus.pack_plan import PackOptions, PackPlan
from tdstream.nodes.base import MarkedRows, RowEnds, Rows, TokenStream
from tdstream.nodes.lookahead import EndsAhead, Lookahead, Ragged
from tdstream.schedule.packing import VERSION


class PackedDocuments(IdentityState):
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
        self._foresight = Lookahead(self._pieces, partial(PiecesAhead, options.seq_len))
        self._padding: Rows = np.full(options.seq_len + 1, pad_id, tokens.dtype)

    def __repr__(self) -> str:
        return f"PackedDocuments({len(self):,} rows of {self.seq_len:,} tokens)"

    def __len__(self) -> int:
        """Rows of the plan."""
        return self.plan.num_rows

    def read(self, indices: NDArray[np.int64]) -> MarkedRows:
        """Return the rows at indices [n], as rows [n, seq_len + 1]."""
        found = self._foresight.of(indices)
        starts, lengths = found.pieces.entries
        pieces = self.tokens.slices(starts.tolist(), lengths.tolist())
        after, padding, parts = found.pieces.after.tolist(), self._padding, [self._padding[:0]]
        for number, length in enumerate(found.lengths.tolist()):
            parts += (*pieces[after[number] : after[number + 1]], padding[length:])
        tokens: Rows = np.concatenate(parts).reshape(-1, self.seq_len + 1)
        overlaps = np.zeros(len(indices), np.int32)
        return MarkedRows(tokens, found.lengths, overlaps, found.stops, found.ends)

    def expect(self, indices: NDArray[np.int64]) -> None:
        """Be told which samples are read next."""
        self._foresight.expect(indices)

    def stretches(self, index: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return a sample's stretches: first tokens, tokens, and the numbers of their documents."""
        starts, lengths = self._pieces(np.array([index])).pieces.entries
        starts = starts.astype(np.int64)
        return starts, lengths, self.ends.until(starts)

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

    def _pieces(self, indices: NDArray[np.int64]) -> RowPieces:
        """Return what the rows at indices [n] hold."""
        firsts, starts, lengths = self.plan.arrays()
        low = firsts[indices]
        counts = firsts[indices + 1] - low
        after = counts.cumsum()
        pieces = (low - after + counts).repeat(counts)
        pieces += np.arange(len(pieces))
        return RowPieces.of(Ragged.of(counts, starts[pieces], lengths[pieces].astype(np.int64)), self.seq_len)


@dataclass(frozen=True, slots=True)
class RowPieces:
    """What some rows hold."""

    pieces: Ragged
    """Where the pieces of each row start in the stream, and their tokens."""
    lengths: NDArray[np.int32]
    """Shape [n]: tokens of each row."""
    stops: NDArray[np.bool_]
    """Shape [n]: whether the last document ends in the row; else it is the only one, and goes on behind."""
    ends: RowEnds
    """Where documents end in each row."""

    @classmethod
    def of(cls, pieces: Ragged, seq_len: int) -> RowPieces:
        """Return what rows of such pieces hold."""
        upto = pieces.entries[1].cumsum()
        row_ends = upto[pieces.after[1:] - 1]  # of all rows' pieces up to each row's last
        lengths = np.diff(row_ends, prepend=0)
        places = upto - (row_ends - lengths).repeat(pieces.counts)
        stops = lengths <= seq_len
        ends = RowEnds(np.where(stops, pieces.counts, 0), places[places <= seq_len])
        return cls(pieces, lengths.astype(np.int32), stops, ends)


class PiecesAhead:
    """What many rows hold, of which batches are taken.

    Args:
        seq_len: T.
        rows: What they hold.
        size: Rows of a batch.
    """

    def __init__(self, seq_len: int, rows: RowPieces, size: int) -> None:
        self._rows, self._ends = rows, EndsAhead(seq_len, rows.ends, size)

    def part(self, first: int, last: int) -> RowPieces:
        """Return the same of rows first .. last - 1."""
        pieces, own, rows = self._rows.pieces.part(first, last), slice(first, last), self._rows
        return RowPieces(pieces, rows.lengths[own], rows.stops[own], self._ends.part(first, last))
