"""What the nodes of a pipeline promise each other: the two kinds, and what a stored sample is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tdstream.rows import AnyRows

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
