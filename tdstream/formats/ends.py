"""The document ends of described files: read from their index, or found by a scan for a token.

Ends of many documents are kept in one file in the user's cache, raw little-endian int64: the ends of each
piece in turn, then their number in each piece. Empty documents, whose end repeats the one before, are left
out.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tdstream.core.errors import ConfigError, CorpusError
from tdstream.corpus.derived import (
    find_place_elsewhere,
    find_writable_place,
    list_places,
    taking_turns,
    whole_file,
)
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.corpus.mapped_array import MappedArray, open_array
from tdstream.corpus.shard_reader import PIECE_BYTES
from tdstream.formats.description import DelimiterEnds, Description, Ends, IndexedEnds, Piece, UnknownEnds

logger = logging.getLogger(__name__)

MANY_DOCUMENTS = 1 << 22
"""The fewest documents of an index whose ends are kept in a file."""
MANY_TOKENS = 1 << 26
"""The fewest tokens whose scan is kept in a file."""
_DTYPE = np.dtype("<i8")
_VERSION = 1


def open_ends(description: Description) -> DocumentEnds:
    """Return where the documents of described files end.

    Raises ConfigError if nothing tells, CorpusError if an index is damaged, and OutputError if a result that
    has to be kept cannot be stored.
    """
    rule, tokens = description.ends, [piece.tokens for piece in description.pieces]
    if isinstance(rule, UnknownEnds):
        raise ConfigError(rule.ask)
    numbers: Ends | MappedArray
    many = (
        rule.num_documents >= MANY_DOCUMENTS if isinstance(rule, IndexedEnds) else sum(tokens) >= MANY_TOKENS
    )
    key = _make_key(description)
    if many:
        numbers = MappedArray(_find_file(description, key), _DTYPE)
    else:
        numbers = np.concatenate([np.zeros(0, np.int64), *_list_numbers(description)])
    counts = np.array(open_array(numbers)[-len(tokens) :])
    load = _PieceEnds(numbers, np.concatenate([[0], np.cumsum(counts)]).tolist())
    offsets = np.cumsum([0, *tokens], dtype=np.int64)
    return DocumentEnds(offsets, counts, load, key=key, hold_token=description.ends_with_token)


class _PieceEnds:
    """The ends in each piece, of all that are kept."""

    def __init__(self, numbers: Ends | MappedArray, firsts: list[int]) -> None:
        self._numbers, self._firsts = numbers, firsts

    def __call__(self, piece: int) -> Ends:
        return open_array(self._numbers)[self._firsts[piece] : self._firsts[piece + 1]]


def _make_key(description: Description) -> str:
    """Return a hash of all that decides the ends."""
    rule = description.ends
    files = rule.files if isinstance(rule, IndexedEnds) else {piece.path for piece in description.pieces}
    versions = sorted((file, (status := os.stat(file)).st_size, status.st_mtime_ns) for file in files)
    how = () if isinstance(rule, IndexedEnds) else (rule,)
    facts = (_VERSION, description.format, description.stored_dtype, description.pieces, versions, how)
    return hashlib.sha256(repr(facts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _find_file(description: Description, key: str) -> Path:
    """Return the file with the ends, made if it is missing."""
    directory, name = find_place_elsewhere(description.path), f"ends-{key}.i8"
    path = next((place / name for place in list_places(directory) if (place / name).exists()), None)
    if path is None:
        path = find_writable_place(directory) / name
        with taking_turns(path.parent, name):
            if not path.exists():  # another process may have been quicker
                logger.info("Reading the document ends of %s.", description.path)
                with whole_file(path) as file:
                    for numbers in _list_numbers(description):
                        file.write(numbers.astype(_DTYPE, copy=False).data)
    return path


def _list_numbers(description: Description) -> Iterator[Ends]:
    """Yield what is kept, in turn: the ends of each piece, then their number in each piece."""
    rule = description.ends
    counts = np.zeros(len(description.pieces), np.int64)
    found = _scan(description, rule) if isinstance(rule, DelimiterEnds) else _read_index(description)
    for piece, ends in found:
        counts[piece] += len(ends)
        yield ends
    yield counts


def _read_index(description: Description) -> Iterator[tuple[int, Ends]]:
    """Yield the ends in each piece, without those of empty documents."""
    rule, dropped = description.ends, 0
    if not isinstance(rule, IndexedEnds):
        return
    for number, piece in enumerate(description.pieces):
        ends = rule.read(number)
        steps = np.diff(ends, prepend=0)
        if len(ends) and (steps.min() < 0 or ends[-1] > piece.tokens):
            raise CorpusError(
                f"the index of {piece.path} lists document ends that do not ascend, or lie after its "
                f"{piece.tokens:,} tokens. It was damaged, or is of another run; copy it again."
            )
        dropped += int((steps == 0).sum())
        yield number, ends[steps > 0]
    if dropped:
        logger.info("%s: %s empty documents are left out.", description.path, f"{dropped:,}")


def _scan(description: Description, rule: DelimiterEnds) -> Iterator[tuple[int, Ends]]:
    """Yield the ends in each piece, a part at a time.

    With the token 0 first in each document, the pieces 0 5 6 0 7 | 0 8 have the ends 3 5 | none: the token
    that begins the second piece ends a document at the end of the first one.
    """
    from tqdm import tqdm  # noqa: PLC0415 - the command line refuses flags without it

    total = sum(piece.tokens for piece in description.pieces) * description.dtype.itemsize
    last = -1  # the last piece with tokens
    with tqdm(
        total=total, unit="B", unit_scale=True, desc="ends of documents", disable=None, leave=False, delay=1
    ) as bar:
        for number, piece in enumerate(description.pieces):
            done = 0
            for tokens in read_piece(piece, description):
                places = np.flatnonzero(tokens == rule.token_id) + done
                if rule.first and not done and len(places) and not places[0]:
                    if last >= 0:
                        yield last, np.array([description.pieces[last].tokens], np.int64)
                    places = places[1:]
                yield number, places if rule.first else places + 1
                done += len(tokens)
                bar.update(tokens.nbytes)
            last = number if done else last


def read_piece(piece: Piece, description: Description, piece_bytes: int = PIECE_BYTES) -> Iterator[Ends]:
    """Yield the tokens of a piece in parts."""
    dtype, left, at = description.dtype, piece.tokens, piece.offset
    while left:
        count = min(left, max(piece_bytes // dtype.itemsize, 1))
        tokens = np.fromfile(piece.path, dtype, count, offset=at)
        if len(tokens) < count:
            raise CorpusError(f"{piece.path} has become shorter since it was opened.")
        yield tokens
        left, at = left - count, at + tokens.nbytes
