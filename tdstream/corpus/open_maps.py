"""Keep few files mapped at a time, whatever the number of corpora that a process reads."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_OPEN_MAPS = 128
"""Each holds a file descriptor, of which a process may have only 1,024."""


class OpenMaps(dict[int, NDArray[np.unsignedinteger[Any]]]):
    """The mapped shards of one reader; beyond MAX_OPEN_MAPS of all readers, the oldest is closed."""

    def add(self, shard: int, tokens: NDArray[np.unsignedinteger[Any]]) -> None:
        """Keep a shard."""
        self[shard] = tokens
        _opened.append((weakref.ref(self), shard))
        while len(_opened) > MAX_OPEN_MAPS:
            _close_oldest()

    def __reduce__(self) -> tuple[type[OpenMaps], tuple[()]]:
        # Maps are opened per process: a pickled one is a copy of the whole shard.
        return OpenMaps, ()


_opened: deque[tuple[weakref.ref[OpenMaps], int]] = deque()


def _close_oldest() -> None:
    """Forget what belongs to readers that are gone; if there is nothing, close the oldest map."""
    living = [entry for entry in _opened if entry[0]() is not None]
    if len(living) == len(_opened):
        owner, shard = living.pop(0)
        maps = owner()
        if maps is not None:
            maps.pop(shard, None)
    _opened.clear()
    _opened.extend(living)
