"""Say where samples lie: in which shards, from which token on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tdstream.errors import ConfigError
from tdstream.node import Stretched

Shards = tuple[Sequence[str], Sequence[int]]
"""File names, and offsets in the stream of tokens with one more entry."""
_NONE: Shards = ((), ())


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive tokens of one shard."""

    shard: str
    """The shard's file name."""
    first: int
    """The first token's place in the shard."""
    tokens: int
    document: int = -1
    """The number of the document that they are of, where documents decide what a row holds; else -1."""


Place = Callable[[str, int], tuple[int, tuple[Piece, ...]]]
"""Returns, of a source's sample, its first token and its pieces."""


def by_stride(reader: dict[str, Any], shards: Mapping[str, Shards] | None) -> Place:
    """Return where samples lie that begin at multiples of a stride.

    Args:
        reader: The reader's identity.
        shards: Of each source by name, its shards; None where it is not known where a source begins.
    """
    stride = int(reader["stride"])
    begin = reader.get("first_token", 0) + reader.get("first_sample", 0) * stride

    def place(name: str, index: int) -> tuple[int, tuple[Piece, ...]]:
        if shards is None:
            return -1, ()
        first = begin + index * stride
        return first, _pieces(shards.get(name, _NONE), first, reader["seq_len"] + 1)

    return place


def by_documents(
    reader: dict[str, Any],
    shards: Mapping[str, Shards],
    readers: Mapping[str, Stretched] | None,
    *,
    nameable: bool = True,
) -> Place:
    """Return where samples lie if documents decide that.

    Args:
        reader: The reader's identity.
        shards: Of each source by name, its shards.
        readers: Of each source, what tells where its samples lie.
        nameable: Whether the command line can name the source: one corpus, or a range of its samples.

    Raises:
        ConfigError: If nobody tells.
    """
    if readers is None:
        by_data = "Name the corpus with --data, or ask" if nameable else "Ask"
        raise ConfigError(
            f'samples of cut="{reader["cut"]}" begin where documents do, which the state does not tell. '
            f"{by_data} loader.locate."
        )

    def place(name: str, index: int) -> tuple[int, tuple[Piece, ...]]:
        if name not in readers:
            return -1, ()
        starts, lengths, documents = (part.tolist() for part in readers[name].stretches(index))
        pieces = [
            replace(piece, document=document)
            for start, tokens, document in zip(starts, lengths, documents, strict=True)
            for piece in _pieces(shards.get(name, _NONE), start, tokens)
        ]
        return starts[0], tuple(pieces)

    return place


def _pieces(shards: Shards, first: int, tokens: int) -> tuple[Piece, ...]:
    """Return where tokens first, first + 1, ... of the stream lie."""
    names, offsets = shards
    pieces = []
    while tokens and len(names):
        shard = bisect_right(offsets, first) - 1
        here = min(offsets[shard + 1] - first, tokens)
        pieces.append(Piece(names[shard], first - offsets[shard], here))
        first, tokens = first + here, tokens - here
    return tuple(pieces)
