"""Blocks of tokens with the documents that end in them, from files that are mapped and files that are not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import CorpusError
from tdstream.corpus.document_ends import Ends
from tdstream.exchange.row_files import RowFiles
from tdstream.exchange.source import find_ends
from tdstream.formats.description import DelimiterEnds, Description, EndsRule, IndexedEnds, Piece
from tdstream.formats.ends import read_piece

_NONE: Ends = np.zeros(0, np.int64)


class Block(NamedTuple):
    """Consecutive tokens."""

    ids: NDArray[Any]
    ends: Ends
    """Where documents end among them: 1 to their number, ascending."""


def list_blocks(source: Description | RowFiles, rule: EndsRule | None, first: int) -> Iterator[Block]:
    """Yield the tokens of a source from token `first` on; `rule` tells the documents, None that rows are."""
    if isinstance(source, RowFiles):
        blocks = _list_rows(source, with_ends=rule is None)
        if isinstance(rule, DelimiterEnds):
            blocks = _mark(blocks, rule)
        return _skip(blocks, first)
    blocks = _list_pieces(source, first)
    return _mark(blocks, rule) if isinstance(rule, DelimiterEnds) else blocks


def _list_rows(source: RowFiles, *, with_ends: bool) -> Iterator[Block]:
    for rows in source.read():
        ends = np.cumsum(rows.lengths[rows.lengths > 0])  # empty documents hold no token
        if len(rows.ids):
            yield Block(rows.ids, ends if with_ends else _NONE)


def _list_pieces(source: Description, first: int) -> Iterator[Block]:
    """Yield the tokens of pieces, with the ends of an index."""
    ends = find_ends(source) if isinstance(source.ends, IndexedEnds) else None
    itemsize, before = source.dtype.itemsize, 0
    for number, piece in enumerate(source.pieces):
        done = min(max(first - before, 0), piece.tokens)
        before += piece.tokens
        own = _NONE if ends is None else ends.in_part(number)
        rest = Piece(piece.path, piece.offset + done * itemsize, piece.tokens - done, piece.size)
        for ids in read_piece(rest, source):
            _check_signed(ids, source, piece)
            low, high = np.searchsorted(own, [done, done + len(ids)], side="right")
            yield Block(ids, own[low:high] - done)
            done += len(ids)


def _check_signed(ids: Ends, source: Description, piece: Piece) -> None:
    """Refuse ids that are negative in the files."""
    if source.signed and int(ids.view(f"<i{ids.itemsize}").min()) < 0:
        raise CorpusError(
            f"{piece.path} holds a negative id. It is no plain stream of token ids: some tools keep a loss "
            f"mask in the highest bit."
        )


def _mark(blocks: Iterator[Block], rule: DelimiterEnds) -> Iterator[Block]:
    """Yield blocks with the ends that a token marks.

    With the token 0 first in each document, the blocks 0 5 6 | 0 7 0 8 have the ends 3 | 2: a token that
    begins a block ends a document at the end of the block before.
    """
    held: Block | None = None
    for ids, _ in blocks:
        places = np.flatnonzero(ids == rule.token_id)
        if not rule.first:
            yield Block(ids, places + 1)
            continue
        if held is not None:
            begins = len(places) > 0 and places[0] == 0
            yield Block(held.ids, np.append(held.ends, len(held.ids)) if begins else held.ends)
        held = Block(ids, places[places > 0])
    if held is not None:
        yield held


def _skip(blocks: Iterator[Block], first: int) -> Iterator[Block]:
    for ids, ends in blocks:
        if first >= len(ids):
            first -= len(ids)
        elif first:
            yield Block(ids[first:], ends[ends > first] - first)
            first = 0
        else:
            yield Block(ids, ends)
