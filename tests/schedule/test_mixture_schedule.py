"""Schedules of mixtures, against going through a run sample by sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tdstream.core.errors import ConfigError
from tdstream.schedule.mixture_schedule import STOPS, Schedule, Stage


@st.composite
def mixtures(draw: st.DrawFn) -> dict[str, Any]:
    """Return the arguments of a schedule of few, small sources."""
    count = draw(st.integers(1, 5))
    weights = st.lists(st.integers(0, 9), min_size=count, max_size=count).filter(any)
    gaps = draw(st.lists(st.integers(1, 700), max_size=3))
    starts = np.cumsum([0, *gaps]).tolist()
    return {
        "sizes": draw(st.lists(st.integers(1, 300), min_size=count, max_size=count)),
        "stages": [Stage(start, np.array(draw(weights))) for start in starts],
        "stop": draw(st.sampled_from(STOPS)),
        "max_epochs": draw(st.lists(st.sampled_from([None, None, 1, 2, 3]), min_size=count, max_size=count)),
        "seed": draw(st.sampled_from([None, 5])),
    }


class Walk:
    """A run of a mixture, one sample at a time; only which source comes next is the schedule's own."""

    def __init__(self, sizes: Any, stages: list[Stage], stop: str, max_epochs: Any, seed: int | None) -> None:
        self.sizes, self.stages, self.stop = np.array(sizes), stages, stop
        default = 10**9 if stop == "all" else 1
        limits = [
            size * (default if most is None else most) for size, most in zip(sizes, max_epochs, strict=True)
        ]
        self.limits = np.array(limits)
        self.sample = 0
        self.given, self.in_epoch = np.zeros(len(sizes), int), np.zeros(len(sizes), int)

    def weights(self, sample: int) -> np.ndarray:
        """Return the weights of the stage that a sample is in."""
        return [stage.weights for stage in self.stages if stage.start <= sample][-1]

    def take(self, source: int) -> int:
        """Give a sample of a source, which must be one that takes part; return its number."""
        assert self.weights(self.sample)[source] > 0
        assert self.in_epoch[source] < self.limits[source]
        self.sample += 1
        self.given[source] += 1
        self.in_epoch[source] += 1
        return int(self.given[source]) - 1

    def is_over(self) -> bool:
        """Whether the epoch ends here, by the stage until here or by the one that begins."""
        done = self.in_epoch >= (self.sizes if self.stop == "all" else self.limits)
        here = [done[self.weights(self.sample - back) > 0] for back in (1, 0)]
        return any(present.any() if self.stop == "first" else present.all() for present in here)


@settings(deadline=None, max_examples=60)
@given(mixture=mixtures(), picked=st.integers(0, 10**6))
def test_a_schedule_is_what_a_walk_finds(mixture: dict[str, Any], picked: int) -> None:
    """Epochs end where their rule says; no source gives a number twice or leaves one out; counts agree."""
    schedule, walk = Schedule(**mixture), Walk(**mixture)
    for epoch in range(4):
        length = schedule.num_samples(epoch)
        assert schedule.base(epoch) == walk.sample
        walk.in_epoch[:] = 0
        sources, numbers = schedule.at(np.arange(length), epoch)
        place = picked % length
        assert [int(found[0]) for found in schedule.at(np.array([place]), epoch)] == [
            sources[place], numbers[place],
        ]  # fmt: skip
        for position, (source, number) in enumerate(zip(sources.tolist(), numbers.tolist(), strict=True)):
            if position == place:
                assert (schedule.used(epoch, position) == walk.given).all()
            assert walk.take(source) == number
            assert walk.is_over() == (position == length - 1)
        assert (schedule.used(epoch, length) == walk.given).all()


@settings(deadline=None, max_examples=40)
@given(mixture=mixtures())
def test_a_late_epoch_is_found_as_by_going_there(mixture: dict[str, Any]) -> None:
    """An epoch that is asked for first is the one that is found after all epochs before it."""
    late, step_by_step = Schedule(**mixture), Schedule(**mixture)
    for epoch in range(12):
        step_by_step.num_samples(epoch)
    positions = np.arange(late.num_samples(11))
    for one, other in zip(late.at(positions, 11), step_by_step.at(positions, 11), strict=True):
        assert (one == other).all()
    change = late.next_change(3)
    if change is not None:
        assert all(late.num_samples(epoch) == late.num_samples(3) for epoch in range(3, change))


def schedule(stop: str, max_epochs: list[int | None] | None = None, **options: Any) -> Schedule:
    """Return a schedule of 60 and 20 samples, half and half."""
    settings = {"stages": [Stage(0, np.array([1, 1]))], "seed": None} | options
    return Schedule([60, 20], stop=stop, max_epochs=max_epochs or [None, None], **settings)


@pytest.mark.parametrize(
    ("stop", "max_epochs", "length"),
    [
        ("first", [None, None], 40),  # the 20th sample of the second source
        ("first", [None, 3], 119),  # the 60th of the first
        ("all", [None, None], 119),
        ("all", [None, 2], 100),  # 40 of the second, all of the first
        ("drop", [None, None], 80),
        ("drop", [2, 3], 180),
    ],
)
def test_lengths_are_known_and_exact(stop: str, max_epochs: list[int | None], length: int) -> None:
    """Each way to stop gives the length that follows from sizes and weights."""
    assert schedule(stop, max_epochs).num_samples(0) == length


@pytest.mark.parametrize("stop", ["first", "drop"])
@pytest.mark.parametrize("most", [2**56, 10**17, 2**62])
def test_an_epoch_that_cannot_be_counted_is_refused(stop: str, most: int) -> None:
    """2^62 samples are too many, whether a limit alone is that large, or the samples of all sources are."""
    limits = [most, most * 3]  # used up together: the first source has three times as many
    assert schedule(stop, [2**51, 3 * 2**51]).num_samples(0) == 2 * 60 * 2**51 - (stop == "first")
    with pytest.raises(ConfigError, match="2\\^62 samples or more; choose a smaller max_epochs"):
        schedule(stop, [min(limit, 2**62) for limit in limits]).num_samples(0)


def test_a_limit_that_is_never_reached_is_none() -> None:
    """Of sources that begin anew until all have been used up."""
    assert schedule("all", [2**62, 2**62]).num_samples(0) == 119


def test_an_epoch_too_far_away_is_refused() -> None:
    """Its samples could not be numbered; the last one that can be is found."""
    last = 2**62 // 40 - 1
    _, numbers = schedule("first").at(np.arange(40), last)
    assert sorted(numbers.tolist()) == sorted([*range(20 * last, 20 * (last + 1))] * 2)
    with pytest.raises(ConfigError, match="would end after 2\\^62 samples"):
        schedule("first").at(np.arange(40), last + 1)


def test_a_thousand_epochs_in_one_stage_are_one_run() -> None:
    """Epochs that are alike are not gone through: the last of 10^9 is found at once."""
    found = schedule("first")
    assert found.num_samples(10**9) == found.num_samples(0)
    assert len(found._runs) == 1


def test_a_dropped_source_goes_on_where_it_was() -> None:
    """A source that pauses for a stage gives, when it comes back, the sample that would have come next."""
    stages = [Stage(0, np.array([1, 1])), Stage(10, np.array([1, 0])), Stage(30, np.array([1, 1]))]
    sources, numbers = schedule("first", stages=stages).at(np.arange(50), 0)
    assert set(sources[10:30].tolist()) == {0}
    assert numbers[sources == 1].tolist() == list(range(5 + 10))
    assert numbers[sources == 0].tolist() == list(range(5 + 20 + 10))


@pytest.mark.parametrize("start", range(1001, 1041))
def test_a_stage_may_begin_between_neighbours_that_changed_places(start: int) -> None:
    """Shuffled, a stage changes nothing before its start, and behind it no source repeats or leaves out."""
    stages = [Stage(0, np.array([7, 3])), Stage(start, np.array([3, 7]))]
    options: dict[str, Any] = {"stop": "first", "max_epochs": [None, None], "seed": 5}
    plain, staged = (Schedule([9000, 9000], stages[:count], **options) for count in (1, 2))
    sources, numbers = staged.at(np.arange(start + 50), 0)
    before = plain.at(np.arange(start), 0)
    assert (sources[:start] == before[0]).all()
    assert (numbers[:start] == before[1]).all()
    for source in (0, 1):
        own = numbers[sources == source]
        assert own.tolist() == list(range(len(own)))


@pytest.mark.parametrize(
    ("weights", "fills_from"),
    [
        ([[1, 1], [3, 1]], 0),  # nobody leaves
        ([[1, 1], [1, 0]], 10),
        ([[1, 0], [0, 1]], 10),
        ([[0, 1], [1, 1]], 0),  # one joins
        ([[1, 1], [1, 0], [1, 1]], 0),  # one comes back
        ([[1, 1], [1, 0], [2, 0]], 10),
        ([[0, 1], [1, 1], [1, 0]], 20),
        ([[1, 0], [0, 1], [1, 0]], 20),
    ],
)
def test_an_epoch_is_filled_with_samples_of_those_who_are_there(
    weights: list[list[int]], fills_from: int
) -> None:
    """What fills the last batch begins where the last one left that is not there at the end."""
    stages = [Stage(10 * number, np.array(pair)) for number, pair in enumerate(weights)]
    found = schedule("drop", stages=stages)
    assert found.num_samples(0) > 20
    assert found.fills_from(0) == fills_from
    assert found.fills_from(1) == 0
