"""Read ranges of tokens from memory-mapped shards, whose borders they may cross."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.corpus.open_maps import Mapped, OpenMaps
from tdstream.corpus.tokens import Tokens
from tdstream.errors import CorpusError


class ShardMaps:
    """The shards of a corpus as one stream; each is mapped when it is first read, in each process.

    Args:
        directory: The corpus directory.
        files: File names of the shards, in order.
        offsets: int64 [num_shards + 1]; shard i holds tokens offsets[i] .. offsets[i + 1] - 1.
        dtype: The storage type.
    """

    def __init__(
        self, directory: Path, files: Sequence[str], offsets: NDArray[np.int64], dtype: np.dtype[Any]
    ) -> None:
        self.dtype = dtype
        self._borders = offsets
        self.offsets: list[int] = offsets.tolist()  # a list: bisect on it beats numpy for a few rows
        self._directory, self._files = directory, files
        self._maps = OpenMaps()

    def shard_of(self, place: int) -> int:
        """Return the number of the shard that holds the token at a place of the stream."""
        return bisect_right(self.offsets, place) - 1

    def path(self, shard: int) -> Path:
        """Return where a shard lies."""
        return self._directory / self._files[shard]

    def map(self, shard: int) -> Tokens:
        """Return a shard's tokens as an array over the mapped file.

        Raises:
            CorpusError: If the shard has changed since the corpus was opened.
        """
        return self._mapped(shard).tokens

    def rows(self, starts: NDArray[np.int64], length: int) -> Tokens:
        """Return a copy of stretches of one length, [n, length], by their first tokens' places, [n]."""
        size, shards = self.dtype.itemsize, np.searchsorted(self._borders, starts, side="right") - 1
        firsts, wanted = (starts - self._borders[shards]) * size, length * size
        numbers = shards.tolist()
        views = {shard: self._mapped(shard).bytes for shard in set(numbers)}
        pairs = zip(numbers, firsts.tolist(), strict=True)
        pieces = [views[shard][first : first + wanted] for shard, first in pairs]
        together = bytearray().join(pieces)
        if len(together) < len(pieces) * wanted:  # some go on in the next shard
            for row, piece in enumerate(pieces):
                if len(piece) < wanted:
                    pieces[row] = np.concatenate(self._pieces(int(starts[row]), length)).view(np.uint8).data
            together = bytearray().join(pieces)
        rows: Tokens = np.ndarray((len(starts), length), self.dtype, together)
        return rows

    def slices(self, starts: Iterable[int], lengths: Iterable[int]) -> list[Tokens]:
        """Return stretches of the stream, each an array [length] that may be part of a map.

        Args:
            starts: Their first tokens' places in the stream.
            lengths: Their tokens.
        """
        found, offsets = [], self.offsets
        first = after = 0  # of the shard that was read last: often the next stretch lies there, too
        for start, length in zip(starts, lengths, strict=False):
            if not first <= start < after:
                shard = bisect_right(offsets, start) - 1
                first, after = offsets[shard], offsets[shard + 1]
                tokens = self.map(shard)
            begin = start - first
            part = tokens[begin : begin + length]
            found.append(part if start + length <= after else np.concatenate(self._pieces(start, length)))
        return found

    def _pieces(self, start: int, length: int) -> list[Tokens]:
        """Return tokens start, start + 1, ... of the stream from as many shards as it takes."""
        parts = []
        while length:
            shard = bisect_right(self.offsets, start) - 1  # never one without tokens: there is no map of it
            part = self.map(shard)[start - self.offsets[shard] :][:length]
            parts.append(part)
            start, length = start + len(part), length - len(part)
        return parts

    def _mapped(self, shard: int) -> Mapped:
        found = self._maps.get(shard)
        if found is None:
            tokens = self._open(shard)
            found = Mapped(tokens, tokens.view(np.uint8).data)
            self._maps.add(shard, found)
        return found

    def _open(self, shard: int) -> Tokens:
        path = self.path(shard)
        expected = self.offsets[shard + 1] - self.offsets[shard]
        try:
            mapped = np.memmap(path, dtype=self.dtype, mode="r")
        except (OSError, ValueError) as error:
            raise CorpusError(
                f"{path} cannot be read any more: {error}. Was the corpus moved or deleted?"
            ) from error
        if len(mapped) != expected:
            raise CorpusError(
                f"{path} had {expected:,} tokens when the corpus was opened, has {len(mapped):,} now."
            )
        return np.asarray(mapped)  # a plain view: slicing np.memmap itself costs several times more

    def __getstate__(self) -> dict[str, Any]:
        # Maps are opened per process: a pickled memmap is a copy of the whole shard.
        return {**self.__dict__, "_maps": OpenMaps()}
