"""Say where documents end in samples that are cut from the stream wherever they fall."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.state import IdentityState
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.nodes.base import DocumentRows, RowEnds, StreamReader
from tdstream.nodes.lookahead import EndsAhead, Lookahead


class DocumentMarks(IdentityState):
    """The samples of a reader, with the ends of documents in them.

    Args:
        upstream: The samples, windows of a stream.
        ends: Where the stream's documents end.
    """

    name = "reader"

    def __init__(self, upstream: StreamReader, ends: DocumentEnds) -> None:
        self.upstream, self.ends = upstream, ends
        self.seq_len = upstream.seq_len
        self._foresight = Lookahead(self.ends_in, partial(EndsAhead, self.seq_len))

    def __repr__(self) -> str:
        return f"{self.upstream!r} > DocumentMarks({self.ends.num_documents:,} documents)"

    def __len__(self) -> int:
        """Samples in the corpus."""
        return len(self.upstream)

    def read(self, indices: NDArray[np.int64]) -> DocumentRows:
        """Return the samples at indices [n], as rows [n, seq_len + 1], and where documents end in them."""
        ends = self._foresight.of(indices)
        return DocumentRows(self.upstream.read(indices), ends)

    def expect(self, indices: NDArray[np.int64]) -> None:
        """Be told which samples are read next."""
        self._foresight.expect(indices)

    def ends_in(self, indices: NDArray[np.int64]) -> RowEnds:
        """Return where documents end in the samples at indices [n]."""
        return RowEnds(*self.ends.within(self.upstream.first_tokens(indices), self.seq_len))

    def state_dict(self) -> dict[str, Any]:
        """Return what decides where samples and documents begin and end."""
        return {**self.upstream.state_dict(), **self.ends.identity()}
