"""Windows of a long stream of tokens, read from memory-mapped shards whose borders they may cross."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.checks import whole
from tdstream.errors import ConfigError, CorpusError
from tdstream.node import Rows
from tdstream.nodes.shard_source import ShardSource
from tdstream.state import differences, refuse

_MAX_OPEN_MAPS = 128  # each holds a file descriptor, of which a process may have only 1,024
_MANY_ROWS = 32  # from which on asking whether they lie in one shard costs less than it saves


class MemmapReader:
    """Samples of a corpus: sample i is tokens i * stride .. i * stride + seq_len of the whole stream.

    Args:
        source: The shards.
        seq_len: Tokens of a sample's input; the sample has one more, for the last label.
        stride: Tokens from one sample's start to the next one's, 1 to seq_len + 1. With the default,
            seq_len + 1, no token is in two samples; with seq_len each token is a label once.

    Raises:
        ConfigError: If seq_len or stride is out of range.
        CorpusError: If the corpus is too small for one sample.
    """

    name = "reader"

    def __init__(self, source: ShardSource, *, seq_len: int, stride: int | None = None) -> None:
        self.source = source
        self.seq_len = seq_len = whole("seq_len", seq_len, at_least=1)
        self.stride = seq_len + 1 if stride is None else whole("stride", stride, at_least=1)
        if self.stride > seq_len + 1:
            raise ConfigError(f"stride must be 1 to seq_len + 1 = {seq_len + 1}, got {stride}.")
        if source.total_tokens < seq_len + 1:
            raise CorpusError(
                f"{source.directory} holds {source.total_tokens:,} tokens, fewer than "
                f"the {seq_len + 1:,} of one sample (seq_len + 1). Use a smaller seq_len or a larger corpus."
            )
        self._offsets: list[int] = source.offsets.tolist()  # a list: bisect on it beats numpy for a few rows
        self._maps: dict[int, Rows] = {}

    def __repr__(self) -> str:
        return f"MemmapReader({len(self):,} samples of {self.seq_len + 1:,} tokens)"

    def __len__(self) -> int:
        """Samples in the corpus; an incomplete one at the end is left out."""
        return (self.source.total_tokens - self.seq_len - 1) // self.stride + 1

    def read(self, indices: NDArray[np.int64]) -> Rows:
        """Return the samples at indices [n], as rows [n, seq_len + 1] in the storage type.

        Raises:
            CorpusError: If a shard has changed since the corpus was opened.
        """
        starts = indices * self.stride
        shard = self._shard_of_all(starts) if len(starts) >= _MANY_ROWS else None
        return self._read_each(starts) if shard is None else self._read_from(shard, starts)

    def state_dict(self) -> dict[str, Any]:
        """Return what decides where samples begin and end."""
        return {"seq_len": self.seq_len, "stride": self.stride}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Compare a saved identity with this reader's.

        Raises:
            StateError: If a field differs.
        """
        refuse(self.differences(state))

    def differences(self, saved: dict[str, Any]) -> list[str]:
        """Return a phrase for each field of a saved identity that is not this node's."""
        return differences(self.name, saved, self.state_dict())

    def _read_each(self, starts: NDArray[np.int64]) -> Rows:
        """Return the samples that begin at starts [n], wherever they lie."""
        offsets, maps, length = self._offsets, self._maps, self.seq_len + 1
        places, windows = starts.tolist(), []
        for start in places:
            shard = bisect_right(offsets, start) - 1
            tokens = maps[shard] if shard in maps else self._map(shard)
            first = start - offsets[shard]
            windows.append(tokens[first : first + length])
        rows: Rows = np.concatenate([np.empty(0, self.source.dtype), *windows])
        if len(rows) < len(places) * length:
            rows = np.concatenate([self._joined(start) for start in places])  # some go on in the next shard
        return rows.reshape(-1, length)

    def _shard_of_all(self, starts: NDArray[np.int64]) -> int | None:
        """Return the shard that holds all the samples that begin at starts whole, if there is one."""
        shard = bisect_right(self._offsets, int(starts[0])) - 1
        first, after = self._offsets[shard : shard + 2]
        if not first <= starts[-1] < after:
            return None  # the usual case with many shards, found without looking at the other rows
        fits = first <= starts.min() and starts.max() + self.seq_len + 1 <= after
        return shard if fits else None

    def _read_from(self, shard: int, starts: NDArray[np.int64]) -> Rows:
        """Return the samples that begin at starts [n], all in one shard, in one call of numpy."""
        tokens, length, step = self._map(shard), self.seq_len + 1, self.source.dtype.itemsize
        windows: Rows = np.ndarray(
            (len(tokens) - length + 1, length), tokens.dtype, tokens, strides=(step, step)
        )  # [windows of the shard, seq_len + 1], which overlap
        rows: Rows = windows[starts - self._offsets[shard]]
        return rows

    def _joined(self, start: int) -> Rows:
        """Return tokens start, start + 1, ... of the stream, one sample, from as many shards as it takes."""
        row: Rows = np.empty(self.seq_len + 1, self.source.dtype)
        done = 0
        while done < len(row):
            shard = bisect_right(self._offsets, start + done) - 1  # never one without tokens: no map of it
            part = self._map(shard)[start + done - self._offsets[shard] :][: len(row) - done]
            row[done : done + len(part)] = part
            done += len(part)
        return row

    def _map(self, shard: int) -> Rows:
        """Return a shard's tokens as an array over the mapped file; beyond some, the oldest is closed."""
        if shard not in self._maps:
            self._maps[shard] = self._open(shard)
            if len(self._maps) > _MAX_OPEN_MAPS:
                del self._maps[next(iter(self._maps))]
        return self._maps[shard]

    def _open(self, shard: int) -> Rows:
        path = self.source.directory / self.source.files[shard]
        expected = int(self.source.offsets[shard + 1] - self.source.offsets[shard])
        try:
            mapped = np.memmap(path, dtype=self.source.dtype, mode="r")
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
        return {**self.__dict__, "_maps": {}}
