"""The protocols between the nodes of a pipeline, and base classes for nodes of your own.

    TokenSource > ReaderNode > OrderedNode > Splitter > Collate
    tokens        samples      order of an   share of   tensors
                               epoch         a process

Nodes left of the splitter are *indexed*: the same settings and index give the same sample on every machine.
Their state is an identity, which loading compares. Only the splitter has a position.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tdstream.core.state import Identified
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.corpus.shard_reader import Tokens
from tdstream.nodes.rows import AnyRows
from tdstream.schedule.partition import EpochLengths

Ints = NDArray[np.int64]
Rows_co = TypeVar("Rows_co", covariant=True)


class Node(Identified, Protocol):
    """Anything in a pipeline: it has a name and a state, and recognises states of other nodes."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Compare a saved identity with this node's; restore the position if the node has one."""


class TokenStream(Protocol):
    """A token stream that can be read anywhere; callers do not write to the arrays it returns.

    A subclass that defines `slices` inherits `rows`.
    """

    def rows(self, starts: Ints, length: int) -> Tokens:
        """Return the `length` tokens from each start [n], as a copy [n, length]."""
        return np.stack(self.slices(starts.tolist(), [length] * len(starts)))

    def slices(self, starts: Iterable[int], lengths: Iterable[int]) -> list[Tokens]:
        """Return the tokens from each start, one array [length] for each."""
        raise NotImplementedError


@runtime_checkable
class TokenSource(Node, Protocol):
    """The origin of tokens; implement it for your own token files or database.

    The source is pickled to workers. Its name is "source", and its identity includes "total_tokens". Loaders
    show its `vocab_size`, `eos_token_id` and `tokenizer_name_or_path`, if it has them.
    """

    @property
    def what(self) -> str:
        """The source's name in error messages, such as its path."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The storage type, uint16 or uint32."""

    @property
    def total_tokens(self) -> int:
        """Tokens of the whole stream."""

    def open(self) -> TokenStream:
        """Return the stream.

        Readers call this at the first read in each process. A stream is never pickled, and a forked process
        does not use its parent's, so a stream may hold open files and connections.
        """


@runtime_checkable
class DocumentSource(TokenSource, Protocol):
    """A token source that knows its documents, for samples that depend on them."""

    @property
    def pad_id(self) -> int:
        """The id for padding."""

    def ends(self) -> DocumentEnds:
        """Return where documents end; `DocumentEnds.of` makes this from an array."""


class LazyStream(TokenStream):
    """A source's stream, opened at the first read in each process."""

    def __init__(self, source: TokenSource) -> None:
        self._source, self._inherited = source, list[TokenStream]()
        self._stream: TokenStream | None = None
        _lazy_streams.add(self)

    def rows(self, starts: Ints, length: int) -> Tokens:
        """Return the rows of the source's stream."""
        return self._opened().rows(starts, length)

    def slices(self, starts: Iterable[int], lengths: Iterable[int]) -> list[Tokens]:
        """Return the slices of the source's stream."""
        return self._opened().slices(starts, lengths)

    def leave_to_parent(self) -> None:
        """Open another stream at the next read; keep the parent's, since closing it could disturb it."""
        if self._stream is not None:
            self._inherited.append(self._stream)
            self._stream = None

    def _opened(self) -> TokenStream:
        if self._stream is None:
            self._stream = self._source.open()
        return self._stream

    def __reduce__(self) -> tuple[type[LazyStream], tuple[TokenSource]]:
        return LazyStream, (self._source,)


_lazy_streams: weakref.WeakSet[LazyStream] = weakref.WeakSet()


def _leave_streams_to_parent() -> None:
    for stream in _lazy_streams:
        stream.leave_to_parent()


os.register_at_fork(after_in_child=_leave_streams_to_parent)


class ReadPlan(Protocol[Rows_co]):
    """The reads of several items: prepared together, carried out one by one."""

    def read(self, item: int) -> Rows_co:
        """Return the rows of an item; every call returns the same."""


class IndexedNode(Node, Protocol):
    """Samples that can be read anywhere; the same index gives the same sample on every machine."""

    def __len__(self) -> int:
        """The number of samples."""

    def read(self, indices: Ints) -> AnyRows:
        """Return the samples at the indices [n] as rows [n, seq_len + 1]."""

    def plan(self, indices: Ints, bounds: Sequence[int]) -> ReadPlan[AnyRows]:
        """Return a plan whose item k reads the samples indices[bounds[k]:bounds[k + 1]], at least one.

        A subclass of PlanByReading inherits this.
        """


class ReaderNode(IndexedNode, Protocol):
    """An indexed node that makes samples from a token stream; its name is "reader"."""

    @property
    def seq_len(self) -> int:
        """T, the tokens of a sample's input."""

    def stretches(self, index: int) -> tuple[Ints, Ints, Ints]:
        """Return the parts of the stream in a sample: first tokens, tokens, numbers of documents, all [n].

        The numbers are -1 if samples ignore documents.
        """


class StreamReader(ReaderNode, Protocol):
    """A reader whose samples are windows of the stream, regardless of documents."""

    def first_tokens(self, indices: Ints) -> Ints:
        """Return the places of samples' first tokens in the stream, int64 [n]."""

    def read(self, indices: Ints) -> Tokens:
        """Return the samples at the indices [n] as rows [n, seq_len + 1]."""

    def plan(self, indices: Ints, bounds: Sequence[int]) -> ReadPlan[Tokens]:
        """Return a plan, as IndexedNode.plan does."""


class OrderedNode(IndexedNode, EpochLengths, Protocol):
    """An indexed node with an order for each epoch."""

    def indices(self, positions: Ints, epoch: int) -> Ints:
        """Return the indices at positions of an epoch, in the same shape, without reading anything."""


class _Reads(Protocol[Rows_co]):
    def read(self, indices: Ints) -> Rows_co: ...


class _Plans(Protocol[Rows_co]):
    def plan(self, indices: Ints, bounds: Sequence[int]) -> ReadPlan[Rows_co]: ...


class PlanByReading:
    """A base of nodes with `read`: adds a `plan` that reads item by item."""

    def plan(self: _Reads[Rows_co], indices: Ints, bounds: Sequence[int]) -> ReadPlan[Rows_co]:
        """Return a plan, as IndexedNode.plan does."""
        return _ItemByItem(self, indices, bounds)


class ReadByPlanning:
    """A base of nodes with `plan`: adds a `read` that is a plan of one item."""

    def read(self: _Plans[Rows_co], indices: Ints) -> Rows_co:
        """Return the samples at the indices [n]."""
        return self.plan(indices, (0, len(indices))).read(0)


@dataclass(frozen=True, slots=True)
class _ItemByItem(Generic[Rows_co]):
    node: _Reads[Rows_co]
    indices: Ints
    bounds: Sequence[int]

    def read(self, item: int) -> Rows_co:
        return self.node.read(self.indices[self.bounds[item] : self.bounds[item + 1]])


class TokenArray(TokenStream):
    """Tokens in memory, an array [n] of uint16 or uint32, as a token stream."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def rows(self, starts: Ints, length: int) -> Tokens:
        """Return the `length` tokens from each start [n], [n, length]."""
        return np.lib.stride_tricks.sliding_window_view(self._tokens, length)[starts]

    def slices(self, starts: Iterable[int], lengths: Iterable[int]) -> list[Tokens]:
        """Return the tokens from each start."""
        pairs = zip(starts, lengths, strict=True)
        return [self._tokens[start : start + length] for start, length in pairs]
