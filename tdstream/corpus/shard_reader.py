"""The shards of a corpus as one token stream: in pieces from start to end, or mapped and read anywhere."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import CorpusError
from tdstream.corpus.mapped_array import FileVersion, OpenArrays, map_array
from tdstream.corpus.meta import Shard

PIECE_BYTES = 16 << 20
"""Bytes read at a time; memory use is a small multiple of it."""

Tokens = NDArray[np.unsignedinteger[Any]]


def byte_pieces(path: Path, piece_bytes: int = PIECE_BYTES) -> Iterator[NDArray[np.uint8]]:
    """Yield the bytes of a file in pieces, rounded down to whole tokens of either type."""
    whole = max(piece_bytes // 4, 1) * 4
    with path.open("rb", buffering=0) as file:
        while True:
            piece = np.fromfile(file, np.uint8, whole)
            if len(piece):
                yield piece
            if len(piece) < whole:
                return


def as_tokens(piece: NDArray[np.uint8], dtype: np.dtype[Any]) -> Tokens:
    """Return the tokens of a piece, without an incomplete one at its end."""
    tokens: Tokens = piece[: len(piece) // dtype.itemsize * dtype.itemsize].view(dtype)
    return tokens


class TokenFiles:
    """The shards of a corpus as one token stream; files are open only while they are read."""

    def __init__(self, directory: Path, dtype: np.dtype[Any], chunks: Sequence[Shard]) -> None:
        self.directory = directory
        self.dtype = dtype
        self.chunks = tuple(chunks)
        self.offsets = np.cumsum([0, *(chunk.tokens for chunk in chunks)], dtype=np.int64)

    def pieces(self, piece_bytes: int = PIECE_BYTES) -> Iterator[Tokens]:
        """Yield all tokens in order; no piece holds tokens of two shards."""
        for chunk in self.chunks:
            for piece in byte_pieces(self.directory / chunk.file, piece_bytes):
                yield as_tokens(piece, self.dtype)

    def find_files(self, first: int, num_tokens: int) -> list[str]:
        """Return the names of the shards that hold a range of tokens."""
        low, high = self._numbers(first, num_tokens)
        return [chunk.file for chunk in self.chunks[low:high]]

    def read(self, first: int, num_tokens: int) -> Tokens:
        """Return a range of tokens, [num_tokens], which may span shards."""
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
        """Return the range of shards that hold a range of tokens."""
        if num_tokens < 1:
            return 0, 0
        low = int(np.searchsorted(self.offsets, first, side="right")) - 1
        return low, int(np.searchsorted(self.offsets, first + num_tokens, side="left"))


_MANY_ROWS = 32  # with fewer, looking for one shard that holds all costs more than it saves


class Mapped(NamedTuple):
    """A mapped shard."""

    tokens: Tokens
    bytes: memoryview
    """The same tokens; slicing a memoryview costs a third of slicing an array."""


class ShardMaps:
    """The shards of a corpus as one token stream; each is mapped at its first read, in each process.

    Offsets are int64 [num_shards + 1]; shard i holds tokens offsets[i] .. offsets[i + 1] - 1. `mtimes` are
    the modification times of the files when the corpus was opened, in ns, [num_shards]: a file that was
    replaced since is refused, unless `is_same(i)` says that its content is the same.
    """

    signed = False
    """Whether files could hold negative ids, which are refused where they are met; `verify` finds all."""

    def __init__(
        self,
        directory: Path,
        files: Sequence[str],
        offsets: NDArray[np.int64],
        dtype: np.dtype[Any],
        *,
        mtimes: NDArray[np.int64] | None = None,
        is_same: Callable[[int], bool] | None = None,
    ) -> None:
        self.dtype = dtype
        self._mtimes, self._is_same = mtimes, is_same
        self._borders = offsets
        self.offsets: list[int] = offsets.tolist()  # a list: bisect on it beats numpy for a few rows
        self._directory, self._files = directory, files
        self._maps, self._reads = OpenArrays(), 0

    def path(self, shard: int) -> Path:
        """Return the path of a shard."""
        return self._directory / self._files[shard]

    def map(self, shard: int) -> Tokens:
        """Return a shard's tokens; raise CorpusError if it has changed since the corpus was opened."""
        return self._mapped(shard).tokens

    def rows(self, starts: NDArray[np.int64], length: int) -> Tokens:
        """Return the `length` tokens from each start [n], as a copy [n, length]."""
        rows = self._read_rows(starts, length)
        if self.signed and len(rows) and self._is_looked_at():
            self._check_ids(rows, int(starts[0]))
        return rows

    def _is_looked_at(self) -> bool:
        """Return whether the ids of this read are checked: of the first reads, then of each sixteenth."""
        self._reads += 1
        return self._reads < 256 or not self._reads % 16

    def _check_ids(self, tokens: Tokens, near: int) -> None:
        """Raise CorpusError for a negative id, which as an unsigned number has the highest bit."""
        if not tokens.size or int(tokens.view(f"<i{tokens.itemsize}").min()) >= 0:
            return
        path = self.path(bisect_right(self.offsets, near) - 1)
        raise CorpusError(
            f"{path} holds a negative id. It is no plain stream of token ids: some tools keep a loss mask in "
            f"the highest bit. Run tdstream verify to find it."
        )

    def _read_rows(self, starts: NDArray[np.int64], length: int) -> Tokens:
        if len(starts) >= _MANY_ROWS:
            shard = self._find_shard_of_all(starts, length)
            if shard is not None:
                return self._gather(shard, starts, length)
        size, shards = self.dtype.itemsize, np.searchsorted(self._borders, starts, side="right") - 1
        firsts, wanted = (starts - self._borders[shards]) * size, length * size
        numbers = shards.tolist()
        views = {shard: self._mapped(shard).bytes for shard in set(numbers)}
        pairs = zip(numbers, firsts.tolist(), strict=True)
        pieces = [views[shard][first : first + wanted] for shard, first in pairs]
        joined = bytearray().join(pieces)
        if len(joined) < len(pieces) * wanted:  # some rows continue in the next shard
            for row, piece in enumerate(pieces):
                if len(piece) < wanted:
                    pieces[row] = np.concatenate(self._pieces(int(starts[row]), length)).view(np.uint8).data
            joined = bytearray().join(pieces)
        rows: Tokens = np.ndarray((len(starts), length), self.dtype, joined)
        return rows

    def _find_shard_of_all(self, starts: NDArray[np.int64], length: int) -> int | None:
        """Return the shard that holds all tokens of all rows, or None."""
        shard = bisect_right(self.offsets, int(starts[0])) - 1
        first, after = self.offsets[shard : shard + 2]
        if not first <= starts[-1] < after:
            return None  # the usual case with many shards; the other rows need no look
        return shard if first <= starts.min() and starts.max() + length <= after else None

    def _gather(self, shard: int, starts: NDArray[np.int64], length: int) -> Tokens:
        """Return rows of one shard in one numpy call, from a view of all its overlapping windows."""
        tokens, step = self.map(shard), self.dtype.itemsize
        shape = (len(tokens) - length + 1, length)
        windows: Tokens = np.ndarray(shape, tokens.dtype, tokens, strides=(step, step))
        rows: Tokens = windows[starts - self.offsets[shard]]
        return rows

    def slices(self, starts: Iterable[int], lengths: Iterable[int]) -> list[Tokens]:
        """Return the tokens from each start, each an array [length] that may be part of a map."""
        found, offsets = [], self.offsets
        first = after = 0  # the last slice's shard, which often holds the next one, too
        for start, length in zip(starts, lengths, strict=True):
            if not first <= start < after:
                shard = bisect_right(offsets, start) - 1
                first, after = offsets[shard], offsets[shard + 1]
                tokens = self.map(shard)
            begin = start - first
            part = tokens[begin : begin + length]
            part = part if start + length <= after else np.concatenate(self._pieces(start, length))
            if self.signed and self._is_looked_at():
                self._check_ids(part, start)
            found.append(part)
        return found

    def _pieces(self, start: int, length: int) -> list[Tokens]:
        """Return `length` tokens from a start, in one piece per shard."""
        parts = []
        while length:
            shard = bisect_right(self.offsets, start) - 1  # never an empty one, which cannot be mapped
            part = self.map(shard)[start - self.offsets[shard] :][:length]
            parts.append(part)
            start, length = start + len(part), length - len(part)
        return parts

    def open_shard(self, shard: int) -> Tokens:
        """Map a shard; raise CorpusError if it has changed since the corpus was opened."""
        count, version, is_same = self.offsets[shard + 1] - self.offsets[shard], None, None
        if self._mtimes is not None:
            version = FileVersion(count * self.dtype.itemsize, int(self._mtimes[shard]))
        if self._is_same is not None:
            is_same = partial(self._is_same, shard)
        tokens: Tokens = map_array(self.path(shard), self.dtype, count, version=version, is_same=is_same)
        return tokens

    def _mapped(self, shard: int) -> Mapped:
        found = self._maps.get(shard)
        if found is None:
            tokens = self.open_shard(shard)
            found = Mapped(tokens, tokens.view(np.uint8).data)
            self._maps.add(shard, found)
        return found


class PieceMaps(ShardMaps):
    """Pieces of files as one token stream; a piece takes the place of a shard.

    Piece i begins at byte firsts[i] of files[i], a file of versions[i].
    """

    def __init__(
        self,
        files: Sequence[str],
        firsts: Sequence[int],
        versions: Sequence[FileVersion],
        offsets: NDArray[np.int64],
        dtype: np.dtype[Any],
        *,
        signed: bool = False,
    ) -> None:
        super().__init__(Path(), files, offsets, dtype)
        self._firsts, self._versions, self.signed = firsts, versions, signed

    def open_shard(self, shard: int) -> Tokens:
        """Map a piece; raise CorpusError if its file has changed since it was opened."""
        count = self.offsets[shard + 1] - self.offsets[shard]
        tokens: Tokens = map_array(
            self.path(shard), self.dtype, count, offset=self._firsts[shard], version=self._versions[shard]
        )
        return tokens


class JoinedMaps(ShardMaps):
    """The shards of several corpora of one storage type as one token stream."""

    def __init__(self, corpora: Sequence[ShardMaps]) -> None:
        sizes = np.concatenate([np.diff(corpus.offsets) for corpus in corpora])
        offsets = np.cumsum([0, *sizes], dtype=np.int64)
        super().__init__(Path(), (), offsets, corpora[0].dtype)
        self._corpora, self.signed = corpora, any(corpus.signed for corpus in corpora)
        self._shards: list[int] = np.cumsum([0, *(len(corpus.offsets) - 1 for corpus in corpora)]).tolist()
        self.firsts: list[int] = offsets[self._shards[:-1]].tolist()
        """Where in the stream each corpus begins."""

    def path(self, shard: int) -> Path:
        """Return the path of a shard."""
        corpus, own = self._find_corpus(shard)
        return corpus.path(own)

    def open_shard(self, shard: int) -> Tokens:
        """Map a shard as its corpus does."""
        corpus, own = self._find_corpus(shard)
        return corpus.open_shard(own)

    def _find_corpus(self, shard: int) -> tuple[ShardMaps, int]:
        number = bisect_right(self._shards, shard) - 1
        return self._corpora[number], shard - self._shards[number]
