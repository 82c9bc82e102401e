"""Whatever a trainer does with a loader, it is where a model of twenty lines says."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from resume_loaders import Setup, make_loader, name_of, through_file
from resume_truth import MODES, Model, ids_of, truth

# Short, so that walks cross the ends of epochs; long enough for a break outside the prefetched end.
DATA = dataclasses.replace(MODES["batch"], batch_size=6)
LENGTH = len(truth(DATA, 0))
ACTIONS = st.one_of(
    st.tuples(st.just("step"), st.integers(1, LENGTH)),
    st.tuples(st.just("save"), st.just(0)),
    st.tuples(st.sampled_from(["load", "load_into_new"]), st.integers(0, 9)),
    st.tuples(st.just("set_epoch"), st.integers(0, 5)),
    st.tuples(st.sampled_from(["leave", "new_loader"]), st.integers(0, 5)),
)


class Trainer:
    """A loader and the model of where it is, moved together."""

    def __init__(self, corpus: Path, setup: Setup) -> None:
        self.corpus, self.setup = corpus, setup
        self.states: list[dict[str, Any]] = []
        self.model = Model()
        self.loader = make_loader(corpus, DATA, setup)
        self.iterator: Any = None

    def step(self, count: int) -> None:
        """Take batches, over the ends of epochs, and compare each with the model."""
        for _ in range(count):
            if self.iterator is None:
                self.iterator = iter(self.loader)
                self.model.open()
            batch, position = next(self.iterator, None), self.model.position
            if position == LENGTH:
                assert batch is None
                self.model.finish()
                self.iterator = None
            else:
                assert batch is not None
                assert ids_of(batch, DATA) == truth(DATA, self.model.epoch)[position]
                self.model.position += 1

    def save(self, _: int) -> None:
        """Save in mid-pass; what is saved before a pass is another matter and has its own tests."""
        if self.iterator is not None:
            self.states.append(through_file(self.loader.state_dict()))
            self.model.saved.append((self.model.epoch, self.model.position, False))

    def load(self, which: int) -> None:
        """Load the newest state, or an older one."""
        if self.states:
            which = -1 - which % len(self.states)
            self.loader.load_state_dict(self.states[which])
            self.iterator = None
            self.model.epoch, self.model.position, _ = self.model.saved[which]
            self.model.asked, self.model.loaded = None, True

    def load_into_new(self, which: int) -> None:
        """Load in what stands for a new process."""
        if self.states:
            self.loader = make_loader(self.corpus, DATA, self.setup)
            self.load(which)

    def set_epoch(self, epoch: int) -> None:
        """Choose the next pass's epoch, between passes."""
        if self.iterator is None:
            self.loader.dataset.set_epoch(epoch)
            self.model.asked = epoch

    def leave(self, epoch: int) -> None:
        """Break off a pass, and say which epoch comes next."""
        if self.iterator is not None:
            self.iterator = None
            self.model.position = 0
            self.set_epoch(epoch)

    def new_loader(self, epoch: int) -> None:
        """Begin anew at an epoch."""
        self.loader, self.iterator = make_loader(self.corpus, DATA, self.setup), None
        self.model.epoch, self.model.position, self.model.loaded = 0, 0, False
        self.set_epoch(epoch)


def walk(corpus: Path, setup: Setup, actions: list[tuple[str, int]]) -> None:
    """Do what the actions say, and in the end serve a whole epoch more."""
    trainer = Trainer(corpus, setup)
    for name, value in actions:
        getattr(trainer, name)(value)
    trainer.step(LENGTH + 2)


@pytest.mark.parametrize(
    ("setup", "examples"),
    [(Setup(), 120), (Setup(2, False, 5), 8), (Setup(2, True), 8), (Setup(3, True, 1, 4), 8)],
    ids=["w0", "w2", "w2p", "w3p"],
)
def test_a_random_walk_stays_with_the_model(setup: Setup, examples: int, corpus: Path) -> None:
    """After every step, save, load, set_epoch, break and restart the next batch must be the model's."""

    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip
    @given(st.lists(ACTIONS, min_size=3, max_size=14))
    def check(actions: list[tuple[str, int]]) -> None:
        walk(corpus, setup, actions)

    check()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "setup", [Setup(), Setup(2, False, 5), Setup(2, True), Setup(3, True, 1, 4)], ids=name_of
)
def test_many_random_walks_stay_with_the_model(setup: Setup, corpus: Path) -> None:
    """The same must be true of many and longer walks."""

    @settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(ACTIONS, min_size=5, max_size=30))
    def check(actions: list[tuple[str, int]]) -> None:
        walk(corpus, setup, actions)

    check()
