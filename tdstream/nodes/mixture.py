"""Several ordered sources as one: interleaved in given shares, each in its own order and its own epochs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.errors import StateError
from tdstream.lengths import global_batches
from tdstream.mixtures.plan import Entry, MixturePlan
from tdstream.mixtures.weights import Weights
from tdstream.node import Node, OrderedNode, Rows
from tdstream.row_groups import joined
from tdstream.rows import AnyRows, SourcedRows, SourceRows
from tdstream.state import differences, refuse

VERSION = 1
"""It rises when the order of a mixture changes."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One source of a mixture."""

    name: str
    source: Node
    """What it reads."""
    ordered: OrderedNode
    """Its samples, in their order."""
    window: Callable[[int], Rows] | None
    """Returns one sample as a row that need not be a copy; None where the source has no such rows."""
    dtype: np.dtype[Any]
    """The type of its tokens."""
    fingerprint: str
    max_epochs: int = 0


class MixtureNode:
    """An ordered node over ordered nodes.

    Its indices number the samples of all sources, one source after the other.

    Args:
        parts: The sources.
        stages: (samples of the run before it, weights) of each stage, the first at 0.
        stop: What ends an epoch, one of `schedule.STOPS`.
        shared: The identity that all sources share: how samples are cut and ordered.
        seed: For another order in every period; None keeps one order.
        source_id: Whether rows say which source they are of.
        has_parts: Whether sources are parts of corpora.
    """

    name = "mixture"

    def __init__(
        self,
        parts: Sequence[Part],
        *,
        stages: Sequence[tuple[int, Weights]],
        stop: str,
        shared: dict[str, dict[str, Any]],
        seed: int | None,
        source_id: bool = False,
        has_parts: bool = False,
    ) -> None:
        entries = sorted(
            Entry(part.name, len(part.ordered), part.fingerprint, part.max_epochs) for part in parts
        )
        self.parts, self.source_id = {part.name: part for part in parts}, source_id
        self.shared = shared
        self._own = MixturePlan(tuple(entries), tuple(stages), stop, seed, has_parts)
        self._dtype = max((part.dtype for part in parts), key=lambda dtype: dtype.itemsize)
        self.follow(self._own)

    def __repr__(self) -> str:
        names = ", ".join(self.parts) if len(self.parts) <= 5 else f"{len(self.parts):,} sources"
        return f"MixtureNode({names})"

    def __len__(self) -> int:
        """Samples that all sources hold together."""
        return int(self._borders[-1])

    def num_samples(self, epoch: int) -> int:
        """Return the positions of an epoch."""
        return self.plan.schedule.num_samples(epoch)

    def next_change(self, epoch: int) -> int | None:
        """Return the first epoch after this one that may have another length; None if none has."""
        return self.plan.schedule.next_change(epoch)

    def indices(self, positions: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Return the indices of the samples at positions of an epoch, int64 of the same shape.

        Raises:
            StateError: If some are of a source that was dropped.
        """
        sources, numbers = self.plan.schedule.at(positions.ravel(), epoch)
        own_epochs, own_positions = self.plan.own_places(sources, numbers)
        indices = np.empty_like(numbers)
        order = np.lexsort((own_epochs, sources))
        changes = (np.diff(sources[order]) != 0) | (np.diff(own_epochs[order]) != 0)
        for group in np.split(order, np.flatnonzero(changes) + 1):
            source, own_epoch = (int(values[group[0]]) for values in (sources, own_epochs))
            own = self._part(source).ordered.indices(own_positions[group], own_epoch)
            indices[group] = own + self._borders[source]
        return indices.reshape(positions.shape)

    def read(self, indices: NDArray[np.int64]) -> AnyRows:
        """Return the samples at indices [n] as rows [n, seq_len + 1] in the widest of the storage types."""
        rows: SourceRows = self._read_each(indices) if self._windows else self._read_parts(indices)
        if not self.source_id:
            return rows
        return SourcedRows(rows, self._ids[self._sources(indices)])

    def used(self, epoch: int, position: int) -> dict[str, int]:
        """Return, by source, the samples that it has given to the run before a position of an epoch."""
        position = min(position, self.num_samples(epoch))
        used = self.plan.schedule.used(epoch, position)
        return dict(zip(self.plan.names, used.tolist(), strict=True))

    def state_dict(self) -> dict[str, Any]:
        """Return what decides content and order: what the sources are, and all stages of the run."""
        return {
            "version": VERSION,
            **{name: dict(part) for name, part in self.shared.items()},
            **self.plan.to_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Compare a saved identity with this mixture's, its stages included.

        Raises:
            StateError: If a field differs.
        """
        refuse([*self.differences(state), *self.changes(state)])

    def differences(self, saved: dict[str, Any]) -> list[str]:
        """Return a phrase for each way in which a saved mixture cannot become this one by other weights."""
        found = differences(self.name, {"version": saved.get("version")}, {"version": VERSION})
        for name, part in self.shared.items():
            found += differences(name, saved.get(name) or {}, part)
        return [*found, *self._own.differences(MixturePlan.of_state(saved, self._own.seed))]

    def changes(self, saved: dict[str, Any]) -> list[str]:
        """Return a phrase for each source or weight of a saved mixture that is another here."""
        return self.plan.changes(MixturePlan.of_state(saved, self._own.seed))

    def after(
        self, saved: dict[str, Any], place: tuple[int, int], global_batch: int, *, wrap: bool
    ) -> MixturePlan:
        """Return the plan that is as it was saved up to a place, and from there on as it is here.

        Args:
            saved: A state that has no differences.
            place: The epoch, and the position in it. An epoch of which nothing was left stays as it was.
            global_batch: G, the samples of a step as it was saved.
            wrap: Whether an epoch's last incomplete global batch was filled.
        """
        before, (epoch, position) = MixturePlan.of_state(saved, self._own.seed), place
        samples = before.schedule.num_samples(epoch)
        if not global_batches(samples - position, global_batch, wrap=wrap):
            position = samples
        return self._own.after(before, before.schedule.base(epoch) + position)

    def follow(self, plan: MixturePlan) -> None:
        """Take on a plan, which may name sources that this mixture does not have."""
        self.plan = plan
        self._borders = np.cumsum([0, *(entry.samples for entry in plan.entries)], dtype=np.int64)
        self._offsets: list[int] = self._borders.tolist()  # a list: bisect on it beats numpy for one row
        ids = {name: number for number, name in enumerate(self.parts)}
        self._ids = np.array([ids.get(name, -1) for name in plan.names], np.int32)
        windows = [self.parts[name].window if name in self.parts else None for name in plan.names]
        has_rows = all(part.window is not None for part in self.parts.values())
        self._windows = windows if has_rows else []

    def _sources(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(self._borders, indices, side="right") - 1

    def _part(self, source: int) -> Part:
        name = self.plan.names[source]
        if name not in self.parts:
            raise StateError(
                f"this place of the run has samples of {name}, which is no source any more. "
                f"Build with it, with the weights as they are: it takes part only where stages name it."
            )
        return self.parts[name]

    def _read_each(self, indices: NDArray[np.int64]) -> Rows:
        offsets, windows, rows = self._offsets, self._windows, []
        for index in indices.tolist():
            source = bisect_right(offsets, index) - 1
            rows.append(windows[source](index - offsets[source]))  # type: ignore[misc]  # see `indices`
        together: Rows = np.concatenate([np.empty(0, self._dtype), *rows])
        return together.reshape(len(indices), -1)

    def _read_parts(self, indices: NDArray[np.int64]) -> SourceRows:
        """Return rows that each source has read in one call."""
        sources = self._sources(indices)
        order = np.argsort(sources, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(sources[order])) + 1)
        parts: list[Any] = []
        for group in groups:
            source = int(sources[group[0]])
            parts.append(self._part(source).ordered.read(indices[group] - self._borders[source]))
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return joined(parts, back, self._dtype)
