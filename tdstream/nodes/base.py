"""What the nodes of a pipeline promise each other: the two kinds, and what a stored sample is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tdstream.corpus.shard_reader import Tokens

# Stretches of one document in one row: of a batch, and of many batches at once.
#
# A batch is flattened, [B * T], and falls into *segments*. A document that goes on in the next row is another
# segment there, and padding at a row's end is one as well.

Ints = NDArray[np.int64]


class RowSegments(NamedTuple):
    """The segments of a batch."""

    borders: NDArray[np.int32]
    """Shape [segments + 1]: 0, and where each segment ends in the flattened batch, ascending."""
    starts: Ints
    """Shape [segments]: where each begins."""
    lengths: Ints
    """Shape [segments]: its tokens."""
    numbers: NDArray[np.int32]
    """Shape [segments]: 0, 1, 2, ... within its row."""
    lasts: Ints
    """Shape [ends]: the last tokens of documents that end."""
    longest: int
    """Tokens of the longest one."""

    @classmethod
    def of_borders(cls, borders: NDArray[np.int32], seq_len: int) -> RowSegments:
        """Return the segments between borders, of which the last may be repeated; without `lasts`."""
        starts = borders[:-1].astype(np.int64)
        lengths = borders[1:] - starts
        of_row = starts.searchsorted(starts // seq_len * seq_len)  # the first segment of each one's row
        numbers = (np.arange(len(starts)) - of_row).astype(np.int32)
        return cls(borders, starts, lengths, numbers, starts[:0], 0)


class SegmentTable:
    """The segments of many batches, worked out together: small arrays cost numpy far more per entry.

    Args:
        counts: DocumentCounts that end in each row, [rows].
        places: Where: 1 to T, one row after the other, ascending in each, [ends].
        seq_len: T.
        size: B; batches are rows 0 .. B - 1, B .. 2 B - 1, ...; the last one may have fewer.
    """

    def __init__(self, counts: Ints, places: Ints, seq_len: int, size: int) -> None:
        batch_rows = np.arange(0, len(counts), size)
        row = np.arange(len(counts)).repeat(counts)  # of each end
        base = row // size * (size * seq_len)  # the first token of its batch
        self._lasts = row * seq_len + places - 1 - base
        inside = places < seq_len  # an end at the row's end is a border anyway
        row, places = row[inside], places[inside]
        per_row = 1 + np.bincount(row, minlength=len(counts))
        firsts = per_row.cumsum() - per_row  # the first segment of each row
        starts = (np.arange(len(counts)) * seq_len).repeat(per_row)
        starts[np.arange(len(row)) + row + 1] += places
        self._lengths = np.diff(starts, append=len(counts) * seq_len)
        self._numbers = (np.arange(len(starts)) - firsts.repeat(per_row)).astype(np.int32)
        batch = starts // (size * seq_len)  # of each segment
        self._starts = starts - batch * (size * seq_len)
        self._borders = np.empty(len(starts) + len(batch_rows), np.int32)
        self._borders[np.arange(len(starts)) + batch] = self._starts
        self._bounds: list[int] = [*firsts[batch_rows].tolist(), len(starts)]
        last = np.array(self._bounds[1:]) - 1  # the last segment of each batch
        self._borders[last + np.arange(len(batch_rows)) + 1] = self._starts[last] + self._lengths[last]
        ends = np.concatenate(([0], counts.cumsum()))
        self._end_bounds: list[int] = [*ends[batch_rows].tolist(), int(ends[-1])]
        self._longest: list[int] = np.maximum.reduceat(self._lengths, firsts[batch_rows]).tolist()

    def batch(self, number: int) -> RowSegments:
        """Return the segments of one batch."""
        first, last = self._bounds[number : number + 2]
        first_end, last_end = self._end_bounds[number : number + 2]
        return RowSegments(
            self._borders[first + number : last + number + 1],
            self._starts[first:last],
            self._lengths[first:last],
            self._numbers[first:last],
            self._lasts[first_end:last_end],
            self._longest[number],
        )


@dataclass(frozen=True, slots=True)
class RowEnds:
    """Where documents end in rows, just behind their end-of-text tokens: from an index, not told from ids."""

    counts: NDArray[np.int64]
    """Shape [B]: documents that end in each row, among its T inputs."""
    places: NDArray[np.int64]
    """Shape [sum of counts], one row after the other, ascending in each: 1 (the first input is a document's
    last token) to T (the last input is, and the row's last label belongs to the next document)."""
    known: RowSegments | None = None
    """The segments of these rows, where they have been worked out already."""

    @classmethod
    def of_lengths(cls, lengths: NDArray[np.int32], seq_len: int) -> RowEnds:
        """Return the ends of rows that hold one document each, by MarkedRows' lengths, [B]."""
        ends = lengths <= seq_len
        return cls(ends.astype(np.int64), lengths[ends].astype(np.int64))

    def segments(self, seq_len: int) -> RowSegments:
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


Rows = NDArray[np.unsignedinteger[Any]]
"""Samples in the type they are stored in, uint16 or uint32, [n, seq_len + 1]."""


class Node(Protocol):
    """Anything in a pipeline; it can say what it is and refuse to be mistaken for something else."""

    @property
    def name(self) -> str:
        """The key of this node's part in a state."""

    def state_dict(self) -> dict[str, Any]:
        """Return the node's identity, and its position if it has one; JSON types, built fresh."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Compare a saved identity with this node's, and take over the position if it has one."""

    def differences(self, saved: dict[str, Any]) -> list[str]:
        """Return a phrase for each way in which a saved identity is not this node's."""


class IndexedNode(Node, Protocol):
    """Readable anywhere: the same settings and index give the same sample on every machine."""

    def __len__(self) -> int:
        """Samples that can be read."""

    def read(self, indices: NDArray[np.int64]) -> AnyRows:
        """Return the samples at the indices [n] as rows [n, seq_len + 1]."""


class ReaderNode(IndexedNode, Protocol):
    """An indexed node that cuts samples from a stream of tokens; its name is "reader"."""

    @property
    def seq_len(self) -> int:
        """T, the tokens of a sample's input."""


class StreamReader(ReaderNode, Protocol):
    """Samples that are windows of the stream, wherever documents end."""

    def first_tokens(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of samples' first tokens in the stream, int64 [n]."""

    def read(self, indices: NDArray[np.int64]) -> Rows:
        """Return the samples at the indices [n] as rows [n, seq_len + 1]."""


class TokenStream(Protocol):
    """A stream of tokens that can be read anywhere."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The storage type."""

    def slices(self, starts: Iterable[int], lengths: Iterable[int]) -> list[Rows]:
        """Return stretches of the stream, each [length], by first tokens and lengths; not to be written."""


class TokenMaps(TokenStream, Protocol):
    """A stream of tokens in shards, each of which is an array."""

    @property
    def offsets(self) -> list[int]:
        """Shard i holds tokens offsets[i] .. offsets[i + 1] - 1."""

    def shard_of(self, place: int) -> int:
        """Return the number of the shard that holds the token at a place of the stream."""

    def map(self, shard: int) -> Rows:
        """Return a shard's tokens, [n]; not to be written."""

    def rows(self, starts: NDArray[np.int64], length: int) -> Rows:
        """Return a copy of stretches of one length, [n, length], by their first tokens' places, [n]."""


class TokenSource(Protocol):
    """Where tokens come from."""

    @property
    def what(self) -> str:
        """What to call it in a sentence."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The storage type."""

    @property
    def total_tokens(self) -> int:
        """All tokens."""

    def open(self) -> TokenMaps:
        """Return the tokens, to be read."""


@runtime_checkable
class Foresighted(Protocol):
    """A node that reads faster if it knows what it will be asked for."""

    def expect(self, indices: NDArray[np.int64]) -> None:
        """Be told which samples are read next, in this order, [items, samples]; others may be, too."""


class OrderedNode(IndexedNode, Protocol):
    """An indexed node whose order differs from epoch to epoch; it is the EpochLengths of a pipeline."""

    def num_samples(self, epoch: int) -> int:
        """Return the positions of an epoch."""

    def next_change(self, epoch: int) -> int | None:
        """Return the first epoch after this one that may have another length; None if none has."""

    def fills_from(self, epoch: int) -> int:
        """Return the position whose sample is the first that fills an epoch's incomplete last batch."""

    def indices(self, positions: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Return the indices that stand at positions of an epoch; same shape, cheap, nothing is read."""


@runtime_checkable
class Stretched(Protocol):
    """A reader whose samples are made of stretches of the stream, as documents decide."""

    def stretches(self, index: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return a sample's stretches, [n] each: first tokens, tokens, and the numbers of their documents."""
