"""Samples that ignore documents, with marks where documents end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tdstream.core.state import IdentityState
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.corpus.shard_reader import Tokens
from tdstream.nodes.base import Ints, ReadByPlanning, ReadPlan, StreamReader
from tdstream.nodes.rows import DocumentRows, EndsPlan, RowEnds


class DocumentMarks(ReadByPlanning, IdentityState):
    """The samples of a reader, with the ends of documents in them.

    Args:
        upstream: A reader of windows of the stream.
        ends: Where the stream's documents end.
    """

    name = "reader"

    def __init__(self, upstream: StreamReader, ends: DocumentEnds) -> None:
        self.upstream, self.ends = upstream, ends
        self.seq_len = upstream.seq_len

    def __repr__(self) -> str:
        return f"{self.upstream!r} > DocumentMarks({self.ends.num_documents:,} documents)"

    def __len__(self) -> int:
        """Samples of the reader."""
        return len(self.upstream)

    def plan(self, indices: Ints, bounds: Sequence[int]) -> _MarksPlan:
        """Return the reader's plan, with the ends in all its rows."""
        ends = EndsPlan(self.find_ends(indices), self.seq_len, bounds)
        return _MarksPlan(self.upstream.plan(indices, bounds), ends)

    def find_ends(self, indices: Ints) -> RowEnds:
        """Return where documents end in the samples at the indices [n]."""
        return RowEnds(*self.ends.within(self.upstream.first_tokens(indices), self.seq_len))

    def stretches(self, index: int) -> tuple[Ints, Ints, Ints]:
        """Return the reader's parts of the stream in a sample."""
        return self.upstream.stretches(index)

    def state_dict(self) -> dict[str, Any]:
        """Return the identities of the reader and of the documents."""
        return {**self.upstream.state_dict(), **self.ends.identity()}


@dataclass(frozen=True, slots=True)
class _MarksPlan:
    tokens: ReadPlan[Tokens]
    ends: EndsPlan

    def read(self, item: int) -> DocumentRows:
        return DocumentRows(self.tokens.read(item), self.ends.read(item))
