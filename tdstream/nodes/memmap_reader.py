"""Windows of a long stream of tokens, read from memory-mapped shards whose borders they may cross."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.errors import ConfigError, CorpusError
from tdstream.node import Rows
from tdstream.nodes.shard_source import ShardSource
from tdstream.state import differences, refuse

_MAX_OPEN_MAPS = 128  # each holds a file descriptor, of which a process may have only 1,024


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
        if seq_len < 1:
            raise ConfigError(f"seq_len must be at least 1, got {seq_len}.")
        self.source = source
        self.seq_len = seq_len
        self.stride = seq_len + 1 if stride is None else stride
        if not 1 <= self.stride <= seq_len + 1:
            raise ConfigError(f"stride must be 1 to seq_len + 1 = {seq_len + 1}, got {stride}.")
        if source.total_tokens < seq_len + 1:
            raise CorpusError(
                f"{source.directory} holds {source.total_tokens:,} tokens, fewer than "
                f"the {seq_len + 1:,} of one sample (seq_len + 1). Use a smaller seq_len or a larger corpus."
            )
        self._maps: OrderedDict[int, Rows] = OrderedDict()

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
        starts = indices * self.stride  # [n]
        shards = np.searchsorted(self.source.offsets, starts, side="right") - 1  # [n]
        rows: Rows = np.empty((len(indices), self.seq_len + 1), self.source.dtype)  # [n, seq_len + 1]
        for row, start, shard in zip(rows, starts.tolist(), shards.tolist(), strict=True):
            self._fill(row, start, shard)
        return rows

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

    def _fill(self, row: Rows, start: int, shard: int) -> None:
        """Copy tokens start, start + 1, ... into a row [seq_len + 1], going on in the next shards."""
        filled = 0
        while filled < len(row):
            size = int(self.source.offsets[shard + 1] - self.source.offsets[shard])
            first = start + filled - int(self.source.offsets[shard])
            count = min(size - first, len(row) - filled)
            if count:  # a shard without tokens cannot be mapped
                row[filled : filled + count] = self._map(shard)[first : first + count]
            filled += count
            shard += 1

    def _map(self, shard: int) -> Rows:
        """Return a shard's tokens as an array over the mapped file; the least recently used one is closed."""
        tokens = self._maps.get(shard)
        if tokens is None:
            tokens = self._maps[shard] = self._open(shard)
            if len(self._maps) > _MAX_OPEN_MAPS:
                self._maps.popitem(last=False)
        else:
            self._maps.move_to_end(shard)
        return tokens

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
        return {**self.__dict__, "_maps": OrderedDict()}
