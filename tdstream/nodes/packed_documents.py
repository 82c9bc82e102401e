"""Rows packed with whole documents, according to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tdstream.core.state import IdentityState
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.corpus.pack_plan import PackOptions, PackPlan, plan_in_memory
from tdstream.corpus.shard_reader import Tokens
from tdstream.nodes.base import Ints, LazyStream, ReadByPlanning, TokenSource, TokenStream
from tdstream.nodes.rows import EndsPlan, MarkedRows, RowEnds
from tdstream.schedule.packing import VERSION


class PackedDocuments(ReadByPlanning, IdentityState):
    """Samples that hold whole documents, and full rows of documents that are longer than a row.

    Args:
        source: The source of the tokens.
        ends: Where its documents end.
        options: How documents are packed.
        plan: The documents of each row, if they are packed already.
        pad_id: The id at places after a row's tokens.
    """

    name = "reader"

    def __init__(
        self,
        source: TokenSource,
        ends: DocumentEnds,
        options: PackOptions,
        *,
        plan: PackPlan | None = None,
        pad_id: int = 0,
    ) -> None:
        self.ends, self.pack_plan, self.options = ends, plan or plan_in_memory(ends, options), options
        self.seq_len, self.pad_id = options.seq_len, pad_id
        self._stream = LazyStream(source)
        self._padding: Tokens = np.full(options.seq_len + 1, pad_id, source.dtype)

    def __repr__(self) -> str:
        return f"PackedDocuments({len(self):,} rows of {self.seq_len:,} tokens)"

    def __len__(self) -> int:
        """Rows of the plan."""
        return self.pack_plan.num_rows

    def plan(self, indices: Ints, bounds: Sequence[int]) -> _PackedPlan:
        """Return a plan, after finding the pieces of all its rows."""
        rows = self._find_pieces(indices)
        ends = EndsPlan(rows.find_ends(), self.seq_len, bounds)
        return _PackedPlan(self._stream, self._padding, rows, ends, bounds)

    def stretches(self, index: int) -> tuple[Ints, Ints, Ints]:
        """Return the parts of the stream in a row: first tokens, tokens, and numbers of documents."""
        rows = self._find_pieces(np.array([index]))
        starts = rows.starts.astype(np.int64)
        return starts, rows.lengths, self.ends.until(starts)

    def state_dict(self) -> dict[str, Any]:
        """Return the settings that decide the pieces of each row."""
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

    def _find_pieces(self, indices: Ints) -> _RowPieces:
        """Return the pieces of the rows at the indices [n].

        If rows 0, 1, 2 of the plan have pieces 0-1, 2, 3-5 (firsts 0 2 3 6), indices 2 0 have counts 3 2 and
        pieces 3 4 5 0 1, which is 0 1 2 3 4 plus low - after[:-1], 3 and -3.
        """
        firsts, starts, lengths = self.pack_plan.arrays()
        low = firsts[indices]
        counts = firsts[indices + 1] - low
        after = np.concatenate([[0], counts.cumsum()])
        pieces = (low - after[:-1]).repeat(counts) + np.arange(after[-1])
        piece_lengths = lengths[pieces].astype(np.int64)
        row_lengths = np.add.reduceat(piece_lengths, after[:-1]).astype(np.int32)
        return _RowPieces(after, starts[pieces], piece_lengths, row_lengths, row_lengths <= self.seq_len)


class _RowPieces(NamedTuple):
    """The pieces of some rows, row by row."""

    after: Ints
    """Shape [n + 1]: the pieces before each row, and all pieces."""
    starts: Ints
    """Shape [pieces]: first tokens."""
    lengths: Ints
    """Shape [pieces]: tokens."""
    row_lengths: NDArray[np.int32]
    """Shape [n]: tokens of each row."""
    stops: NDArray[np.bool_]
    """Shape [n]: whether the row's last document ends in it; if not, it is the row's only document."""

    def find_ends(self) -> RowEnds:
        """Return where documents end: at the last token of each piece, except in rows without `stops`."""
        counts, lengths = np.diff(self.after), self.row_lengths.astype(np.int64)
        before = lengths.cumsum() - lengths  # tokens of earlier rows
        places = self.lengths.cumsum() - before.repeat(counts)
        return RowEnds(np.where(self.stops, counts, 0), places[self.stops.repeat(counts)])


@dataclass(frozen=True, slots=True)
class _PackedPlan:
    stream: TokenStream
    padding: Tokens
    rows: _RowPieces
    ends: EndsPlan
    bounds: Sequence[int]

    def read(self, item: int) -> MarkedRows:
        first, last = self.bounds[item], self.bounds[item + 1]
        after = self.rows.after[first : last + 1].tolist()
        own = slice(after[0], after[-1])
        pieces = iter(self.stream.slices(self.rows.starts[own].tolist(), self.rows.lengths[own].tolist()))
        row_lengths, padding, parts = self.rows.row_lengths[first:last], self.padding, [self.padding[:0]]
        for number, length in enumerate(row_lengths.tolist()):
            parts += (*islice(pieces, after[number + 1] - after[number]), padding[length:])
        tokens: Tokens = np.concatenate(parts).reshape(-1, len(padding))
        overlaps = np.zeros(last - first, np.int32)
        return MarkedRows(tokens, row_lengths, overlaps, self.rows.stops[first:last], self.ends.read(item))
