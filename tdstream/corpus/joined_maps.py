"""Read several corpora as if their shards, one corpus after the other, were one stream."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tdstream.corpus.shard_maps import ShardMaps


class JoinedMaps(ShardMaps):
    """The shards of corpora of one storage type.

    Args:
        corpora: Each corpus's shards.

    Attributes:
        firsts: Where in the stream each corpus begins.
    """

    def __init__(self, corpora: Sequence[ShardMaps]) -> None:
        sizes = np.concatenate([np.diff(corpus.offsets) for corpus in corpora])
        offsets = np.cumsum([0, *sizes], dtype=np.int64)
        super().__init__(Path(), (), offsets, corpora[0].dtype)
        self._corpora = corpora
        self._shards: list[int] = np.cumsum([0, *(len(corpus.offsets) - 1 for corpus in corpora)]).tolist()
        self.firsts: list[int] = offsets[self._shards[:-1]].tolist()

    def path(self, shard: int) -> Path:
        """Return where a shard lies."""
        corpus = bisect_right(self._shards, shard) - 1
        return self._corpora[corpus].path(shard - self._shards[corpus])
