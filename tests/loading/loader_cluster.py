"""Simulated ranks: one loader for each, in one process; their workers are real."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from loader_truth import SEED, SEQ_LEN, Geometry, Ids, ids_of

import tdstream


def make_loader(corpus: Path, geometry: Geometry, rank: int = 0, **options: Any) -> tdstream.Loader:
    """Return a fresh loader of one rank."""
    workers = {"num_workers": geometry.workers, "persistent_workers": geometry.persistent}
    settings = {"seq_len": SEQ_LEN, "shuffle": True, "order": "numpy", "seed": SEED} | workers | options
    settings["order"] = settings["order"].removeprefix("mixed ")
    return tdstream.loader(
        corpus, batch_size=geometry.batch_size, dp_rank=rank, dp_world_size=geometry.world, **settings
    )


def through_file(state: Any) -> Any:
    """Send a state through a checkpoint as a careful trainer writes and reads it."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def as_bytes(state: dict[str, Any]) -> bytes:
    """Return a state as JSON, keys in order."""
    return json.dumps(state, sort_keys=True).encode()


class Cluster:
    """All ranks of a geometry, stepped together.

    Args:
        corpus: The corpus.
        geometry: The ranks, and what each one's loader is like.
        state: Loaded by every rank; None begins anew.
        ids: Returns the samples of a batch, having looked at all of it.
        busy: The rank that has the geometry's workers while all others have none; None gives them to all.
        **options: Further arguments of the loaders.
    """

    def __init__(
        self,
        corpus: Path,
        geometry: Geometry,
        state: dict[str, Any] | None = None,
        *,
        ids: Callable[[Any], Ids] = ids_of,
        busy: int | None = None,
        **options: Any,
    ) -> None:
        self.geometry, self._ids = geometry, ids
        idle = Geometry(geometry.world, 0, geometry.batch_size)
        self.loaders = [
            make_loader(corpus, geometry if busy in (None, rank) else idle, rank, **options)
            for rank in range(geometry.world)
        ]
        if state is not None:
            for loader in self.loaders:
                loader.load_state_dict(state)
        self.iterators: list[Iterator[Any]] = []

    def open(self) -> None:
        """Begin a loop on every rank."""
        self.iterators = [iter(loader) for loader in self.loaders]

    def step(self) -> Ids | None:
        """Return the next global batch, or None at the epoch's end, which all ranks must reach together."""
        parts = [next(iterator, None) for iterator in self.iterators]
        if all(part is None for part in parts):
            return None
        return tuple(sample for part in parts for sample in self._rows(part))

    def take(self, count: int) -> list[Ids]:
        """Return the next global batches of the running loop."""
        batches = [self.step() for _ in range(count)]
        assert None not in batches
        return [batch for batch in batches if batch is not None]

    def loop(self) -> list[Ids]:
        """Return the global batches of a whole loop."""
        self.open()
        return list(iter(self.step, None))

    def state(self) -> dict[str, Any]:
        """Return the state, which must be the same bytes on every rank, through a file."""
        states = [loader.state_dict() for loader in self.loaders]
        assert {as_bytes(state) for state in states} == {as_bytes(states[0])}
        return through_file(states[-1])

    def each(self, name: str) -> Any:
        """Return an attribute that must be the same on every rank."""
        values = [len(loader) if name == "len" else getattr(loader, name) for loader in self.loaders]
        assert len(set(values)) == 1
        return values[0]

    def close(self) -> None:
        """Let all workers go."""
        self.iterators.clear()
        self.loaders.clear()

    def _rows(self, part: Any) -> Ids:
        assert part is not None, "a rank ended before the others"
        ids = self._ids(part)
        assert len(ids) == self.geometry.batch_size
        return ids


@contextlib.contextmanager
def cluster(corpus: Path, geometry: Geometry, *args: Any, **options: Any) -> Iterator[Cluster]:
    """Return a cluster whose workers go at the end."""
    made = Cluster(corpus, geometry, *args, **options)
    try:
        yield made
    finally:
        made.close()
