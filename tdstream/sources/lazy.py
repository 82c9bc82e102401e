"""A dataset that is made when it is first needed, and in the main process, before workers exist."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor
from torch.utils.data import IterableDataset

from tdstream.pipeline import Pipeline


class LazyPipeline(IterableDataset[dict[str, Tensor]]):
    """A Pipeline over text that is tokenized at the first need: an iteration, a length, a state.

    Workers receive it ready: what a fork, or a spawned process, would make once more in each of them is made
    before. Everything that a Pipeline has, it has. Made by `build`.

    Args:
        make: Makes the pipeline.
    """

    def __init__(self, make: Callable[[], Pipeline]) -> None:
        self._make = make
        self._made: Pipeline | None = None
        _waiting.add(self)

    @property
    def made(self) -> Pipeline:
        """The pipeline."""
        if self._made is None:
            _waiting.discard(self)
            self._made = self._make()
        return self._made

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        """Open one pass over the next epoch."""
        return iter(self.made)

    def __bool__(self) -> bool:
        """Be true: to ask is no reason to tokenize."""
        return True

    def __len__(self) -> int:
        """Items that this rank yields per epoch: batches, or samples."""
        return len(self.made)

    def __repr__(self) -> str:
        """Return the nodes, from left to right, if they are there."""
        return "LazyPipeline(not tokenized yet)" if self._made is None else repr(self._made)

    def __getattr__(self, name: str) -> Any:
        """Return what the pipeline has."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.made, name)

    def __getstate__(self) -> dict[str, Any]:
        return {"_make": None, "_made": self.made}


_waiting: weakref.WeakSet[LazyPipeline] = weakref.WeakSet()


def _make_all() -> None:
    for pipeline in list(_waiting):
        pipeline.made  # noqa: B018 - made for its effect: a child would make it again, and so would each sibling


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_make_all)
