"""Keep few files mapped at a time, whatever the number of corpora that a process reads."""

from __future__ import annotations

import weakref
from collections import deque
from typing import NamedTuple

from tdstream.corpus.tokens import Tokens

MAX_OPEN_MAPS = 128
"""Each holds a file descriptor, of which a process may have only 1,024."""


class Mapped(NamedTuple):
    """A mapped shard."""

    tokens: Tokens
    bytes: memoryview
    """The same; a part of it, to be copied, costs a third of a part of an array."""


class OpenMaps(dict[int, Mapped]):
    """The mapped shards of one reader; beyond MAX_OPEN_MAPS of all readers, the oldest is closed."""

    def add(self, shard: int, mapped: Mapped) -> None:
        """Keep a shard."""
        self[shard] = mapped
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
