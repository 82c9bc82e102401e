"""RunCursor: where a run stands, against a model that takes one step at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from loader_truth import Model

from tdstream.schedule.run_cursor import RunCursor, RunSpan

SIZES = st.integers(1, 9)
ACTION = st.one_of(
    st.tuples(st.sampled_from(["take"] * 4 + ["begin", "leave", "fail"]), st.just(0)),
    st.tuples(st.just("choose"), st.integers(0, 4)),
    st.tuples(st.just("skip"), st.integers(1, 20)),
    st.tuples(st.just("move"), SIZES),
)


class Pair:
    """A cursor and the model beside it, driven together as a loader drives its cursor."""

    def __init__(self, num_samples: int, size: int) -> None:
        self.model = Model(size, num_samples)
        self.cursor = make(num_samples, size)
        self.bound: int | None = None  # the epoch of the running loop

    def act(self, name: str, value: int = 0) -> None:
        """Do one thing to both, and compare everything that a cursor says."""
        getattr(self, name)(value)
        model, cursor = self.model, self.cursor
        assert cursor.place == model.place
        assert (cursor.step, cursor.left, cursor.complete) == (model.step, model.left, model.over)
        assert (cursor.batches_done, cursor.num_batches) == (model.done, model.length)

    def take(self, _: int) -> None:
        """Take a batch of the running loop, or of a new one."""
        if self.bound is None:
            self.begin()
        elif self.cursor.resumes:
            if self.cursor.served_epoch != self.bound:
                self.leave()
                return
            self.model.held, self.model.running = False, True
            assert self.cursor.reopen() == (self.model.epoch, self.model.position)
        place = self.model.take()
        if place is None:
            assert self.cursor.left == 0
            self.leave()
        else:
            assert self.cursor.left > 0
            assert self.cursor.place == place
            self.cursor.count_batch()

    def begin(self, _: int = 0) -> None:
        """Ask for a new loop's first batch."""
        self.cursor.finish()
        self.model.open()
        assert self.cursor.begin() == (self.model.epoch, self.model.position)
        self.bound = self.model.epoch

    def leave(self, _: int = 0) -> None:
        """End the running loop."""
        self.cursor.finish()
        self.model.running = self.model.empty = False
        self.bound = None

    def fail(self, _: int) -> None:
        """End the running loop by an error; without one there is nothing to resume."""
        self.cursor.fail()
        self.model.held |= self.model.running
        self.model.running, self.bound = False, None
        self.model.empty = False

    def choose(self, epoch: int) -> None:
        """Choose the next loop's epoch, in a running loop or not."""
        self.cursor.choose(epoch)
        self.model.asked = epoch

    def skip(self, count: int) -> None:
        """Leave batches out."""
        self.cursor.skip(count)
        self.model.leave_out(count)

    def move(self, size: int) -> None:
        """Save, and load under another geometry."""
        saved, history = self.cursor, json.loads(json.dumps(self.cursor.history()))
        self.model = self.model.at(size)
        done = 0 if saved.place[1] == 0 else saved.batches_done
        self.cursor = make(saved.lengths.num_samples(0), size)
        self.cursor.restore(saved.place, saved.step, done, [RunSpan(*span) for span in history])
        self.bound = None


def make(num_samples: int, size: int, *, wrap: bool = False) -> RunCursor:
    """Return a cursor."""
    return RunCursor(num_samples=num_samples, global_batch=size, wrap=wrap)


def place_after(cursor: RunCursor, batches: int) -> tuple[int, int]:
    """Take batches, over epochs' ends, and return the place."""
    for _ in range(batches):
        if cursor.resumes or cursor.left == 0 or cursor.step == 0:
            cursor.begin()
        cursor.count_batch()
    return cursor.place


@settings(deadline=None, max_examples=300)
@example(  # what another G left out at an epoch's end stays left out when that epoch is chosen again
    9, 4, [("skip", 9), ("take", 0), ("move", 1), ("choose", 4), ("skip", 1)]
)
@example(  # behind batches left out a loop may stand in an epoch of the number that it began with
    9,
    2,
    [("choose", 1), *[("take", 0)] * 3, ("choose", 0), ("skip", 1), ("skip", 4), ("choose", 0), ("take", 0)],
)
@given(
    num_samples=st.integers(9, 60),
    size=SIZES,
    actions=st.lists(ACTION, max_size=40),
)
def test_any_sequence_of_actions_ends_where_single_steps_do(
    num_samples: int, size: int, actions: list[tuple[str, int]]
) -> None:
    """After each of any actions a cursor must stand where a model of single steps does."""
    pair = Pair(num_samples, size)
    for name, value in actions:
        pair.act(name, value)


@settings(deadline=None, max_examples=200)
@given(
    num_samples=st.integers(9, 60),
    size=SIZES,
    actions=st.lists(ACTION, max_size=24),
)
def test_locate_tells_of_every_past_step_what_it_served(
    num_samples: int, size: int, actions: list[tuple[str, int]]
) -> None:
    """Steps of the past must be located where they were, those before the oldest known span refused."""
    pair = Pair(num_samples, size)
    for name, value in actions:
        pair.act(name, value)
    for step, (epoch, position, global_batch) in enumerate(pair.model.log):
        if step >= pair.cursor.spans[0].step:
            assert pair.cursor.locate(step) == RunSpan(step, epoch, position, global_batch)
        else:
            with pytest.raises(LookupError, match=f"step {step} is before step"):
                pair.cursor.locate(step)


@settings(deadline=None, max_examples=200)
@given(
    num_samples=st.integers(9, 60),
    sizes=st.lists(SIZES, min_size=1, max_size=4),
    takes=st.lists(st.integers(0, 20), min_size=4, max_size=4),
    ahead=st.integers(0, 40),
)
def test_locate_tells_of_every_future_step_what_it_will_serve(
    num_samples: int, sizes: list[int], takes: list[int], ahead: int
) -> None:
    """A step to come must be located where single steps arrive, an elastic change behind or not."""
    pair = Pair(num_samples, sizes[0])
    for size, count in zip(sizes, takes, strict=False):
        pair.act("move", size)
        for _ in range(count):
            pair.act("take", 0)
    told = [pair.cursor.locate(pair.cursor.step + step) for step in range(ahead)]
    begun = pair.model.step
    while len(pair.model.log) < begun + ahead:
        pair.act("take", 0)
    assert [(span.epoch, span.position, span.global_batch) for span in told] == pair.model.log[begun:]
    assert [span.step for span in told] == list(range(begun, begun + ahead))


@pytest.mark.parametrize(("num_samples", "size", "batches"), [(10, 4, 3), (12, 4, 3), (1, 4, 1), (9, 9, 1)])
def test_wrap_fills_the_last_batch(num_samples: int, size: int, batches: int) -> None:
    """With tail="wrap" an epoch must have its batches rounded up, and then the next begins."""
    cursor = make(num_samples, size, wrap=True)
    assert (cursor.num_batches, cursor.left) == (batches, batches)
    assert place_after(cursor, batches) == (0, batches * size)
    assert cursor.complete
    assert cursor.begin() == (1, 0)
    assert [cursor.locate(step).epoch for step in (batches - 1, batches)] == [0, 1]


def test_the_tail_that_was_left_out_stays_left_out() -> None:
    """Of 10 samples, 2 are left behind batches of 4; batches of 1 must begin the next epoch."""
    cursor = make(10, 1)
    cursor.restore((0, 8), 2, 2, [RunSpan(0, 0, 0, 4)])
    assert cursor.complete
    assert cursor.begin() == (1, 0)


def test_a_smaller_rest_than_one_batch_of_the_new_geometry_is_the_tail() -> None:
    """Of 10 samples, 2 are left in mid-epoch of batches of 1; batches of 4 must begin the next epoch."""
    cursor = make(10, 4)
    cursor.restore((0, 8), 8, 8, [RunSpan(0, 0, 0, 1)])
    assert cursor.begin() == (1, 0)


def test_the_empty_rest_of_an_epoch_is_served_only_when_it_is_chosen() -> None:
    """A place at an epoch's end must give nothing when that epoch is chosen, and then the next one."""
    cursor = make(8, 4)
    cursor.restore((3, 8), 8, 2, [RunSpan(0, 0, 0, 4)])
    cursor.choose(3)
    assert (cursor.begin(), cursor.left) == ((3, 8), 0)
    assert cursor.begin() == (4, 0)


def test_a_state_keeps_the_newest_spans_only() -> None:
    """However often a run is changed, its history must stay short, and old steps be refused."""
    pair = Pair(60, 1)
    for turn in range(100):
        pair.act("move", 1 + turn % 7)
        pair.act("take", 0)
    assert len(pair.cursor.history()) <= 24
    kept = [RunSpan(*span) for span in pair.cursor.history()]
    pair.cursor.restore(pair.cursor.place, pair.cursor.step, pair.cursor.batches_done, kept)
    with pytest.raises(LookupError, match="step 0 is before step"):
        pair.cursor.locate(0)
    assert pair.cursor.locate(99).position == pair.model.log[99][1]


def test_a_run_without_surprise_has_one_leg() -> None:
    """Epochs that follow one another, and reloads under the same G, must not lengthen the history."""
    pair = Pair(50, 4)
    for _ in range(40):
        pair.act("take", 0)
        pair.act("move", 4)
    assert [span[:4] for span in pair.cursor.history()] == [[0, 0, 0, 4]]


def test_far_steps_cost_nothing() -> None:
    """The place of a step 10^15 ahead must be plain arithmetic."""
    cursor = make(10**12 + 3, 1000)
    span: Any = cursor.locate(10**15)
    assert (span.epoch, span.position) == (10**15 // 10**9, 0)
