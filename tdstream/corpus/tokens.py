"""Read the tokens of shards from end to end in pieces of bounded size, or some of them from anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.corpus.meta import Chunk

PIECE_BYTES = 16 << 20
"""Bytes that are read at once; memory is a small multiple of it."""

Tokens = NDArray[np.unsignedinteger[Any]]


def byte_pieces(path: Path, piece_bytes: int = PIECE_BYTES) -> Iterator[NDArray[np.uint8]]:
    """Yield the bytes of a file, from its beginning to its end.

    Args:
        path: The file.
        piece_bytes: Bytes of each piece but the last; rounded down to whole tokens of either type.
    """
    whole = max(piece_bytes // 4, 1) * 4
    with path.open("rb", buffering=0) as file:
        while True:
            piece = np.fromfile(file, np.uint8, whole)
            if len(piece):
                yield piece
            if len(piece) < whole:
                return


def as_tokens(piece: NDArray[np.uint8], dtype: np.dtype[Any]) -> Tokens:
    """Return the whole tokens of a piece; bytes of a last incomplete one are left out."""
    tokens: Tokens = piece[: len(piece) // dtype.itemsize * dtype.itemsize].view(dtype)
    return tokens


class TokenFiles:
    """The shards of a corpus as one stream of tokens; files are open only while they are read.

    Args:
        directory: The corpus directory.
        dtype: The storage type.
        chunks: The shards, in order.
    """

    def __init__(self, directory: Path, dtype: np.dtype[Any], chunks: Sequence[Chunk]) -> None:
        self.directory = directory
        self.dtype = dtype
        self.chunks = tuple(chunks)
        self.offsets = np.cumsum([0, *(chunk.tokens for chunk in chunks)], dtype=np.int64)

    def pieces(self, piece_bytes: int = PIECE_BYTES) -> Iterator[Tokens]:
        """Yield all tokens, in order; no piece holds tokens of two shards."""
        for chunk in self.chunks:
            for piece in byte_pieces(self.directory / chunk.file, piece_bytes):
                yield as_tokens(piece, self.dtype)

    def files_of(self, first: int, num_tokens: int) -> list[str]:
        """Return the names of the shards that hold a range of tokens."""
        low, high = self._numbers(first, num_tokens)
        return [chunk.file for chunk in self.chunks[low:high]]

    def read(self, first: int, num_tokens: int) -> Tokens:
        """Return a range of tokens, shape [num_tokens], which may lie in several shards.

        Args:
            first: Place of the first one in the stream.
            num_tokens: How many.
        """
        parts = []
        low, high = self._numbers(first, num_tokens)
        for number in range(low, high):
            begin = max(first, int(self.offsets[number])) - int(self.offsets[number])
            end = min(first + num_tokens, int(self.offsets[number + 1])) - int(self.offsets[number])
            path = self.directory / self.chunks[number].file
            parts.append(np.fromfile(path, self.dtype, end - begin, offset=begin * self.dtype.itemsize))
        joined: Tokens = np.concatenate(parts) if parts else np.empty(0, self.dtype)
        return joined

    def _numbers(self, first: int, num_tokens: int) -> tuple[int, int]:
        """Return the first of the shards that hold a range, and the one behind the last."""
        if num_tokens < 1:
            return 0, 0
        low = int(np.searchsorted(self.offsets, first, side="right")) - 1
        return low, int(np.searchsorted(self.offsets, first + num_tokens, side="left"))
