"""Several ordered sources as one, interleaved by weight; each keeps its own order and epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import StateError
from tdstream.core.state import check_differences, differences
from tdstream.corpus.shard_reader import Tokens
from tdstream.nodes.base import Ints, Node, OrderedNode, ReadByPlanning, ReadPlan, TokenStream
from tdstream.nodes.rows import AnyRows, DocumentRows, EndsPlan, MarkedRows, RowEnds, SourcedRows, SourceRows
from tdstream.schedule.mixture_plan import MixturePlan, PlanEntry
from tdstream.schedule.mixture_schedule import Weights
from tdstream.schedule.order import JointOrder
from tdstream.schedule.partition import global_batches

VERSION = 1
"""Rises when the order of a mixture changes."""


@dataclass(frozen=True, kw_only=True)
class PlainRows:
    """Sources whose samples are windows of one stream, the concatenation of their tokens."""

    stream: TokenStream
    firsts: Ints
    """The first token of each source's sample 0."""
    stride: int
    seq_len: int


@dataclass(frozen=True, kw_only=True)
class Part:
    """One source of a mixture."""

    name: str
    source: Node
    ordered: OrderedNode
    dtype: np.dtype[Any]
    """The storage type of its tokens."""
    fingerprint: str
    find_ends: Callable[[Ints], RowEnds] | None = None
    """Finds where documents end in samples, by the source's own indices; None if rows do not mark ends."""
    max_epochs: int = 0


class MixtureNode(ReadByPlanning):
    """An ordered node over ordered nodes; its indices number the samples of all sources, source by source.

    Stages, `stop` and `seed` are those of `Schedule`; `shared` is the part of the identities of readers and
    permutations that all sources have in common. `orders` and `plain` compute the same indices and rows as
    the sources' own nodes, for samples of all sources at once.
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
        orders: JointOrder | None = None,
        plain: PlainRows | None = None,
    ) -> None:
        entries = sorted(
            PlanEntry(part.name, len(part.ordered), part.fingerprint, part.max_epochs) for part in parts
        )
        self.parts, self.source_id = {part.name: part for part in parts}, source_id
        self.shared, self._orders, self._plain = shared, orders, plain
        self._own = MixturePlan(tuple(entries), tuple(stages), stop, seed, has_parts)
        self._dtype = max((part.dtype for part in parts), key=lambda dtype: dtype.itemsize)
        self._finds_ends = all(part.find_ends is not None for part in parts)
        self.follow(self._own)

    def __repr__(self) -> str:
        names = ", ".join(self.parts) if len(self.parts) <= 5 else f"{len(self.parts):,} sources"
        return f"MixtureNode({names})"

    def __len__(self) -> int:
        """Samples of all sources."""
        return int(self._borders[-1])

    def num_samples(self, epoch: int) -> int:
        """Return N, the positions of an epoch."""
        return self.mixture_plan.schedule.num_samples(epoch)

    def next_change(self, epoch: int) -> int | None:
        """Return the first epoch after this one whose length may differ; None if there is none."""
        return self.mixture_plan.schedule.next_change(epoch)

    def fills_from(self, epoch: int) -> int:
        """Return the position from which an epoch's incomplete last batch is filled."""
        return self.mixture_plan.schedule.fills_from(epoch)

    def indices(self, positions: Ints, epoch: int) -> Ints:
        """Return the indices at positions of an epoch; raise StateError if one is of a missing source."""
        sources, numbers = self.mixture_plan.schedule.at(positions.ravel(), epoch)
        own_epochs, own_positions = self.mixture_plan.own_places(sources, numbers)
        own = self._own_indices(sources, own_epochs, own_positions)
        return (own + self._borders[sources]).reshape(positions.shape)

    def plan(self, indices: Ints, bounds: Sequence[int]) -> ReadPlan[AnyRows]:
        """Return a plan whose rows have the widest storage type of the sources."""
        plan: ReadPlan[SourceRows]
        plan = self._plan_parts(indices, bounds) if self._plain is None else self._plan_plain(indices, bounds)
        if not self.source_id:
            return plan
        return _SourcedPlan(plan, self._ids[self._sources(indices)], bounds)

    def used(self, epoch: int, position: int) -> dict[str, int]:
        """Count the samples of each source in the run before a position of an epoch, by name."""
        position = min(position, self.num_samples(epoch))
        used = self.mixture_plan.schedule.used(epoch, position)
        return dict(zip(self.mixture_plan.names, used.tolist(), strict=True))

    def state_dict(self) -> dict[str, Any]:
        """Return the identity: the sources, and all stages of the run."""
        return {
            "version": VERSION,
            **{name: dict(part) for name, part in self.shared.items()},
            **self.mixture_plan.to_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Compare a saved identity with this mixture's, stages included; raise StateError if one differs."""
        check_differences([*self.differences(state), *self.changes(state)])

    def differences(self, saved: dict[str, Any]) -> list[str]:
        """Return a phrase for each way in which a saved mixture cannot continue as this one."""
        found = differences(self.name, {"version": saved.get("version")}, {"version": VERSION})
        for name, part in self.shared.items():
            was = saved.get(name)
            found += differences(name, was if isinstance(was, dict) else {}, part)
        return [*found, *self._own.differences(MixturePlan.from_state(saved, self._own.seed))]

    def changes(self, saved: dict[str, Any]) -> list[str]:
        """Return a phrase for each source or weight that differs from a saved mixture's."""
        return self.mixture_plan.changes(MixturePlan.from_state(saved, self._own.seed))

    def after(
        self, saved: dict[str, Any], place: tuple[int, int], global_batch: int, *, wrap: bool
    ) -> MixturePlan:
        """Return the saved plan up to a place (epoch, position), continued by this mixture's plan.

        An epoch with no batch left, by the saved `global_batch` and `wrap`, is kept to its end.
        """
        before, (epoch, position) = MixturePlan.from_state(saved, self._own.seed), place
        samples = before.schedule.num_samples(epoch)
        if not global_batches(samples - position, global_batch, wrap=wrap):
            position = samples
        return self._own.after(before, before.schedule.base(epoch) + position)

    def follow(self, plan: MixturePlan) -> None:
        """Adopt a plan, which may name sources that are missing in this mixture."""
        self.mixture_plan = plan
        self._borders = np.cumsum([0, *(entry.samples for entry in plan.entries)], dtype=np.int64)
        numbers = {name: number for number, name in enumerate(self.parts)}
        self._numbers = np.array([numbers.get(name, -1) for name in plan.names], np.int64)
        self._ids = self._numbers.astype(np.int32)
        if self._plain is not None:  # the first token of index i is i * stride + shift
            self._shifts = self._plain.firsts[self._numbers] - self._borders[:-1] * self._plain.stride

    def _sources(self, indices: Ints) -> Ints:
        return np.searchsorted(self._borders, indices, side="right") - 1

    def _part(self, source: int) -> Part:
        name = self.mixture_plan.names[source]
        if name not in self.parts:
            raise StateError(
                f"this place of the run has samples of {name}, which is not a source any more. "
                f"Build with it and the present weights: it takes part only in stages that name it."
            )
        return self.parts[name]

    def _own_indices(self, sources: Ints, epochs: Ints, positions: Ints) -> Ints:
        numbers = self._numbers[sources]
        if self._orders is not None and numbers.min(initial=0) >= 0:
            return self._orders.indices(numbers, epochs, positions)
        order, indices = np.lexsort((epochs, sources)), np.empty_like(positions)
        changes = (np.diff(sources[order]) != 0) | (np.diff(epochs[order]) != 0)
        for group in np.split(order, np.flatnonzero(changes) + 1):
            source, epoch = (int(values[group[0]]) for values in (sources, epochs))
            indices[group] = self._part(source).ordered.indices(positions[group], epoch)
        return indices

    def _plan_plain(self, indices: Ints, bounds: Sequence[int]) -> _PlainPlan:
        plain: Any = self._plain
        starts = indices * plain.stride + self._shifts[self._sources(indices)]
        found, groups = list[RowEnds](), list[Ints]()
        for part, group, own in self._by_part(indices) if self._finds_ends else ():
            if part.find_ends is not None:
                found.append(part.find_ends(own))
                groups.append(group)
        ends = EndsPlan(_join_ends(found, _invert(groups)), plain.seq_len, bounds) if found else None
        return _PlainPlan(plain, starts, ends, bounds)

    def _plan_parts(self, indices: Ints, bounds: Sequence[int]) -> _PartsPlan:
        """Return a plan made of the sources' own plans.

        If two items of 3 samples are of sources a b a | a a b, source a plans its samples 0 1 2 3 with bounds
        0 2 4: its item 0 goes to places 0 2 of the first item, its item 1 to places 0 1 of the second.
        """
        items = np.arange(len(bounds) - 1).repeat(np.diff(bounds))
        shares: list[list[_Share]] = [[] for _ in range(len(bounds) - 1)]
        for part, group, own in self._by_part(indices):
            its_items, firsts = np.unique(items[group], return_index=True)
            own_bounds = [*firsts.tolist(), len(group)]
            plan = part.ordered.plan(own, own_bounds)
            for number, item in enumerate(its_items.tolist()):
                places = group[own_bounds[number] : own_bounds[number + 1]] - bounds[item]
                shares[item].append((plan, number, places))
        return _PartsPlan(shares, self._dtype)

    def _by_part(self, indices: Ints) -> Iterator[tuple[Part, Ints, Ints]]:
        """Yield each source, the places of its samples in `indices`, and its own indices of them."""
        sources = self._sources(indices)
        order = np.argsort(sources, kind="stable")
        for group in np.split(order, np.flatnonzero(np.diff(sources[order])) + 1):
            source = int(sources[group[0]])
            yield self._part(source), group, indices[group] - self._borders[source]


_Share = tuple[ReadPlan[Any], int, Ints]
"""A source's plan, its item, and the places of its rows among those of an item of the mixture."""


@dataclass(frozen=True, slots=True)
class _PlainPlan:
    plain: PlainRows
    starts: Ints
    ends: EndsPlan | None
    bounds: Sequence[int]

    def read(self, item: int) -> Tokens | DocumentRows:
        starts = self.starts[self.bounds[item] : self.bounds[item + 1]]
        rows = self.plain.stream.rows(starts, self.plain.seq_len + 1)
        return rows if self.ends is None else DocumentRows(rows, self.ends.read(item))


@dataclass(frozen=True, slots=True)
class _PartsPlan:
    shares: list[list[_Share]]
    dtype: np.dtype[Any]

    def read(self, item: int) -> SourceRows:
        parts = [plan.read(number) for plan, number, _ in self.shares[item]]
        return _join(parts, [places for *_, places in self.shares[item]], self.dtype)


@dataclass(frozen=True, slots=True)
class _SourcedPlan:
    plan: ReadPlan[SourceRows]
    source_ids: NDArray[np.int32]
    bounds: Sequence[int]

    def read(self, item: int) -> SourcedRows:
        return SourcedRows(self.plan.read(item), self.source_ids[self.bounds[item] : self.bounds[item + 1]])


def _join(parts: Sequence[SourceRows], groups: Sequence[Ints], dtype: Any) -> SourceRows:
    """Join the rows of several parts, all of one kind; row i of a part becomes row group[i]."""
    tokens, order = _join_tokens(parts, groups, dtype), _invert(groups)
    marked = [part for part in parts if isinstance(part, MarkedRows)]
    if marked:
        lengths, overlaps, stops = (
            np.concatenate([getattr(part, field) for part in marked])[order]
            for field in ("lengths", "overlaps", "stops")
        )
        ends = [part.ends for part in marked if part.ends is not None]
        return MarkedRows(tokens, lengths, overlaps, stops, _join_ends(ends, order) if ends else None)
    ends = [part.ends for part in parts if isinstance(part, DocumentRows)]
    return DocumentRows(tokens, _join_ends(ends, order)) if ends else tokens


def _join_tokens(parts: Sequence[SourceRows], groups: Sequence[Ints], dtype: Any) -> Tokens:
    tokens = [part if isinstance(part, np.ndarray) else part.tokens for part in parts]
    joined: Tokens = np.empty((sum(map(len, groups)), tokens[0].shape[1]), dtype)
    for part, group in zip(tokens, groups, strict=True):
        joined[group] = part
    return joined


def _invert(groups: Sequence[Ints]) -> Ints:
    """Return the place of each joined row in the concatenated parts: groups 2 0 | 1 give 1 2 0."""
    there = np.concatenate(groups)
    order = np.empty_like(there)
    order[there] = np.arange(len(there))
    return order


def _join_ends(parts: Sequence[RowEnds], order: Ints) -> RowEnds:
    """Join the ends in rows of several parts; row i is row order[i] of the concatenated parts."""
    counts, places = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("counts", "places")
    )
    begins = np.cumsum(counts) - counts
    chosen = counts[order]
    new_begins = np.cumsum(chosen) - chosen
    return RowEnds(chosen, places[np.repeat(begins[order] - new_begins, chosen) + np.arange(len(places))])
