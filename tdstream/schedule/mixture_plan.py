"""The sources of a mixture and their weights over the whole run, as stored in a state.

They determine the source of every sample of the run; no source is opened.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tdstream.core.errors import StateError
from tdstream.core.state_schema import COUNT, LISTED, NUMBER, SIZE, TEXT, listed, one_of, read_fields
from tdstream.schedule.mixture_schedule import STOPS, Ints, Schedule, Stage, Weights, whole_weights


class PlanEntry(NamedTuple):
    """A source that the run uses, or used earlier."""

    name: str
    samples: int
    """N, its samples."""
    fingerprint: str
    """A digest of its content and cut."""
    max_epochs: int
    """Passes over it that an epoch of the mixture may take; 0 for the default of `Schedule`."""


@dataclass(frozen=True)
class MixturePlan:
    """A mixture's sources and stages, and the order that follows from them."""

    entries: tuple[PlanEntry, ...]
    """Sorted by name, so that the order does not depend on how the mixture was written."""
    stages: tuple[tuple[int, Weights], ...]
    """(samples of the run before the stage, weights), the first at 0."""
    stop: str
    seed: int | None
    """Changes the order from period to period; None keeps one order."""
    has_parts: bool = False
    """Whether sources are, or were, parts of corpora, whose first samples the state does not hold."""

    @cached_property
    def names(self) -> list[str]:
        """The sources' names."""
        return [entry.name for entry in self.entries]

    @cached_property
    def schedule(self) -> Schedule:
        """The order."""
        return Schedule(
            [entry.samples for entry in self.entries],
            [Stage(start, whole_weights(weights, self.names)) for start, weights in self.stages],
            stop=self.stop,
            max_epochs=[entry.max_epochs or None for entry in self.entries],
            seed=self.seed,
        )

    def own_places(self, sources: Ints, numbers: Ints) -> tuple[Ints, Ints]:
        """Return the epochs and positions of samples in their own sources, by their numbers in the run."""
        return np.divmod(numbers, self.schedule.sizes[sources])

    def to_state(self) -> dict[str, Any]:
        """Return sources and stages as JSON types, built anew."""
        return {
            "stop": self.stop,
            **({"has_parts": True} if self.has_parts else {}),
            "sources": [list(entry) for entry in self.entries],
            "stages": [
                [start, [weights.get(name, 0) for name in self.names]] for start, weights in self.stages
            ],
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], seed: int | None) -> MixturePlan:
        """Return the plan in a state; raise StateError if it was truncated or changed."""
        found = read_fields("mixture", state, {"stop": one_of(*STOPS), "sources": LISTED, "stages": LISTED})
        try:
            entries = tuple(_read_entry(*entry) for entry in enumerate(found["sources"]))
            stages = tuple(_read_stage(entries, *stage) for stage in enumerate(found["stages"]))
            _check(entries, stages)
            return cls(entries, stages, found["stop"], seed, state.get("has_parts") is True)
        except StateError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise StateError(
                f"the state's mixture does not fit, or was cut or changed ({type(error).__name__}: {error})."
            ) from None

    def weights_at(self, sample: int) -> Weights:
        """Return the weights at a sample of the run."""
        return dict(self.stages)[self.find_stage_start(sample)]

    def find_stage_start(self, sample: int) -> int:
        """Return the start of the stage that holds a sample of the run."""
        return max(start for start, _ in self.stages if start <= sample)

    def after(self, saved: MixturePlan, sample: int) -> MixturePlan:
        """Return the saved plan up to a sample of the run, continued by this one."""
        known = {entry.name: entry for entry in (*saved.entries, *self.entries)}  # this run's entries win
        entries = tuple(sorted(known.values()))
        kept = [stage for stage in saved.stages if stage[0] < sample]
        names, weights = [entry.name for entry in entries], self.weights_at(sample)
        if not kept or not _same(kept[-1][1], weights, names):
            kept.append((sample, weights))
        later = [stage for stage in self.stages if stage[0] > sample]
        has_parts = saved.has_parts or self.has_parts
        return MixturePlan(entries, (*kept, *later), self.stop, self.seed, has_parts)

    def differences(self, saved: MixturePlan) -> list[str]:
        """Return a phrase for each way in which a saved mixture cannot continue as this one."""
        found = [] if saved.stop == self.stop else [f"mixture.stop was {saved.stop!r}, is {self.stop!r}"]
        entries = {entry.name: entry for entry in self.entries}
        for was in saved.entries:
            now = entries.get(was.name, was)
            if now.samples != was.samples:
                found.append(f"source {was.name} had {was.samples:,} samples, has {now.samples:,}")
            elif now.fingerprint != was.fingerprint:
                found.append(f"source {was.name} is another corpus, or cut in another way")
            if now.max_epochs != was.max_epochs:
                found.append(
                    f"max_epochs of {was.name} was {was.max_epochs or None}, is {now.max_epochs or None}"
                )
        return found

    def changes(self, saved: MixturePlan) -> list[str]:
        """Return a phrase for each source or weight that differs from the saved ones."""
        before, now = set(saved.names), set(self.names)
        found = [f"source {name} was added" for name in sorted(now - before)]
        found += [f"source {name} is missing" for name in sorted(before - now)]
        starts = [start for start, _ in saved.stages]
        if starts != [start for start, _ in self.stages]:
            return [*found, f"stages began at {starts}, begin at {[start for start, _ in self.stages]}"]
        names = sorted(before | now)
        pairs = zip(saved.stages, self.stages, strict=True)
        return [
            *found,
            *(
                f"the weights from sample {was[0]:,} on differ"
                for was, is_ in pairs
                if not _same(was[1], is_[1], names)
            ),
        ]


_ENTRY = {"name": TEXT, "samples": SIZE, "fingerprint": TEXT, "max_epochs": COUNT}


def _read_entry(number: int, entry: Any) -> PlanEntry:
    if not isinstance(entry, (list, tuple)) or len(entry) != len(_ENTRY):
        raise ValueError(f"source {number} is no list of {len(_ENTRY)}")
    found = read_fields(f"mixture.sources[{number}]", dict(zip(_ENTRY, entry, strict=True)), _ENTRY)
    return PlanEntry(**found)


def _read_stage(entries: Sequence[PlanEntry], number: int, stage: Any) -> tuple[int, Weights]:
    if not isinstance(stage, (list, tuple)) or len(stage) != 2:
        raise ValueError(f"stage {number} is no list of 2")
    fields = {"start": COUNT, "weights": listed(NUMBER, len(entries), len(entries))}
    found = read_fields(f"mixture.stages[{number}]", dict(zip(fields, stage, strict=True)), fields)
    return found["start"], _named(entries, found["weights"])


def _named(entries: Sequence[PlanEntry], weights: Sequence[float]) -> Weights:
    return {entry.name: weight for entry, weight in zip(entries, weights, strict=True) if weight}


def _same(one: Weights, other: Weights, names: Sequence[str]) -> bool:
    """Whether weights stand for the same shares."""
    return one == other or np.array_equal(whole_weights(one, names), whole_weights(other, names))


def _check(entries: Sequence[PlanEntry], stages: Sequence[tuple[int, Weights]]) -> None:
    starts = [start for start, _ in stages]
    names = [entry.name for entry in entries]
    if not stages or starts[0] != 0 or sorted(set(starts)) != starts or sorted(set(names)) != names:
        raise ValueError("invalid stages, or sources that are not in order")
    shares = [list(weights.values()) for _, weights in stages]
    if not all(own and min(own) > 0 and max(own) < math.inf for own in shares):
        raise ValueError("a stage without sources, or an invalid weight")
