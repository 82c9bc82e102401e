"""Rows as they travel from the reader to the collation: tokens in storage type, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.row_segments import Segments, SegmentTable

Tokens = NDArray[np.unsignedinteger[Any]]
"""Token ids in the type they are stored in, uint16 or uint32."""


@dataclass(frozen=True, slots=True)
class RowEnds:
    """Where documents end in rows, just behind their end-of-text tokens: from an index, not told from ids."""

    counts: NDArray[np.int64]
    """Shape [B]: documents that end in each row, among its T inputs."""
    places: NDArray[np.int64]
    """Shape [sum of counts], one row after the other, ascending in each: 1 (the first input is a document's
    last token) to T (the last input is, and the row's last label belongs to the next document)."""
    known: Segments | None = None
    """The segments of these rows, where they have been worked out already."""

    @classmethod
    def of_lengths(cls, lengths: NDArray[np.int32], seq_len: int) -> RowEnds:
        """Return the ends of rows that hold one document each, by MarkedRows' lengths, [B]."""
        ends = lengths <= seq_len
        return cls(ends.astype(np.int64), lengths[ends].astype(np.int64))

    def segments(self, seq_len: int) -> Segments:
        """Return what the rows fall into."""
        return self.known or SegmentTable(self.counts, self.places, seq_len, len(self.counts)).batch(0)


@dataclass(frozen=True, slots=True)
class DocumentRows:
    """Rows of the plain cut, and where documents end in them."""

    tokens: Tokens
    """Shape [B, T + 1]."""
    ends: RowEnds

    def __len__(self) -> int:
        """Rows."""
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class MarkedRows:
    """Rows of which some places are padding, made by cuts that respect documents.

    A row has T + 1 places: T inputs, and one more for the label of the last input.
    """

    tokens: Tokens
    """Shape [B, T + 1]; places behind a row's length hold the pad id."""
    lengths: NDArray[np.int32]
    """Shape [B]: how many of a row's T + 1 places are tokens, counted, never told from ids. T + 1 where the
    document goes on behind the inputs; at most T where it ends with them."""
    overlaps: NDArray[np.int32]
    """Shape [B]: how many of a row's first labels an earlier row of the document has already."""
    stops: NDArray[np.bool_]
    """Shape [B]: whether the row is its document's last; of a packed row, whether its last document ends."""
    ends: RowEnds | None = None
    """Where documents end in the rows, if that was asked for: padding follows the last one."""

    def __len__(self) -> int:
        """Rows."""
        return len(self.tokens)


SourceRows = Tokens | DocumentRows | MarkedRows
"""What readers return."""


@dataclass(frozen=True, slots=True)
class SourcedRows:
    """Rows of a mixture, and which source each is of."""

    rows: SourceRows
    source_ids: NDArray[np.int32]
    """Shape [B]."""

    def __len__(self) -> int:
        """Rows."""
        return len(self.source_ids)


AnyRows = SourceRows | SourcedRows
"""What a splitter hands on."""
