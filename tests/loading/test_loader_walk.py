"""Random walks: whatever a caller does, in whatever order, a loader is where a model of a few lines is."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loader_cluster import Cluster, as_bytes
from loader_truth import Geometry, Model, write_counting_corpus

import tdstream

NUM_SAMPLES = 29  # epochs so short that workers' prefetching reaches their end
ACTIONS = ("step",) * 12 + ("loop", "loop", "iter", "save", "save", "load", "load_newest", "skip")
ACTIONS += ("set_epoch", "rebuild", "rebuild", "leave")


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a corpus of 29 samples."""
    return write_counting_corpus(tmp_path_factory.mktemp("walk") / "corpus", (57, 60))


class Walker:
    """A cluster and the model, driven together.

    Args:
        corpus: The corpus of 29 samples.
        seed: Decides the walk.
        workers: How many workers a loader may have.
    """

    def __init__(self, corpus: Path, seed: int, workers: tuple[int, ...]) -> None:
        self.corpus, self.dice, self.workers = corpus, random.Random(seed), workers
        self.states: list[tuple[Any, Model]] = []
        self.stale: list[Iterator[Any]] = []
        self.bound: int | None = None  # the epoch that the loop began in; none before its first batch
        self.ranks, self.model = self.made()

    def made(self) -> tuple[Cluster, Model]:
        """Return a new cluster of random geometry, and a model of it."""
        busy = self.dice.choice(self.workers)
        geometry = Geometry(self.dice.choice((1, 1, 2, 3)), busy, self.dice.choice((1, 2, 4)), busy % 2 == 1)
        return Cluster(self.corpus, geometry, busy=0), Model(geometry.size, NUM_SAMPLES)

    def walk(self, steps: int) -> None:
        """Do random things; after each, compare all that can be compared."""
        for _ in range(steps):
            getattr(self, self.dice.choice(ACTIONS))()
            self.check()
        self.ranks.close()

    def check(self) -> None:
        """Compare the state and what the loaders say of themselves."""
        model, ranks = self.model, self.ranks
        state = ranks.state()
        assert (state["epoch"], state["position"]) == model.place
        assert (ranks.each("epoch"), ranks.each("position")) == model.place
        assert (ranks.each("step"), ranks.each("len")) == (model.step, model.length)
        for old in self.stale:
            with pytest.raises(tdstream.StaleIteratorError, match="stale iterator"):
                next(old)

    def step(self) -> None:
        """Take a batch of the running loop, or of a new one."""
        if not self.ranks.iterators:
            self.iter()
        if self.bound is None:
            self.model.open()
            self.bound = self.model.epoch
        self.model.held = self.model.empty
        place, batch = self.model.take(), self.ranks.step()
        if place is None:
            assert batch is None
            assert self.ranks.step() is None
            self.leave()
        else:
            assert batch == self.model.batch(*place)

    def loop(self) -> None:
        """Take batches until the running loop ends."""
        self.step()
        while self.ranks.iterators:
            self.step()

    def iter(self) -> None:
        """Make new iterators; those before become stale."""
        self.leave()
        self.ranks.open()

    def leave(self) -> None:
        """Let go of the running loop, as a `break` does."""
        self.stale = self.ranks.iterators
        self.ranks.iterators = []
        if self.stale:
            self.ranks.open()  # only now are they overtaken
            self.ranks.iterators = []
        self.model.running = self.model.empty = False
        self.bound = None

    def save(self) -> None:
        """Keep a state."""
        self.states.append((self.ranks.state(), copy.deepcopy(self.model)))

    def load(self) -> None:
        """Load any state that was kept."""
        self._load(self.dice.randrange(len(self.states)) if self.states else None)

    def load_newest(self) -> None:
        """Load the newest state that was kept."""
        self._load(-1 if self.states else None)

    def rebuild(self) -> None:
        """Go on with a kept state, or anew, in new loaders of another geometry."""
        self.ranks.close()
        self.stale, self.bound = [], None
        self.ranks, self.model = self.made()
        if self.dice.random() < 0.8:
            self.load()

    def skip(self) -> None:
        """Leave batches out, and let the running loop go on behind them."""
        count = self.dice.randrange(1, 8)
        self.model.leave_out(count)
        for loader in self.ranks.loaders:
            loader.skip(count)
        if self.bound not in (None, self.model.epoch):  # behind the epoch's end a loop is over
            assert self.ranks.step() is None
            self.leave()

    def set_epoch(self) -> None:
        """Choose the next loop's epoch, between two loops or in one."""
        if self.dice.random() < 0.7:
            self.leave()
        epoch = self.dice.choice((self.model.epoch, self.model.epoch + 1, self.dice.randrange(6)))
        self.model.asked = epoch
        for loader in self.ranks.loaders:
            loader.set_epoch(epoch)

    def _load(self, number: int | None) -> None:
        if number is None:
            return
        state, saver = self.states[number]
        kept = as_bytes(state)
        for loader in self.ranks.loaders:
            loader.load_state_dict(state)
        self.stale, self.ranks.iterators, self.bound = self.ranks.iterators, [], None
        self.model = saver.at(self.model.size)
        assert as_bytes(state) == kept


@pytest.mark.parametrize("seed", range(100))
def test_a_walk_without_workers(short: Path, seed: int) -> None:
    """After each of 60 random actions a loader must be where the model is."""
    Walker(short, seed, (0,)).walk(60)


@pytest.mark.parametrize("seed", range(150, 175))
def test_a_walk_with_workers(short: Path, seed: int) -> None:
    """The same must hold where loaders have up to three workers, persistent or not."""
    Walker(short, seed, (0, 1, 2, 3)).walk(24)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(100, 150))
def test_more_walks_without_workers(short: Path, seed: int) -> None:
    """The same, from other seeds."""
    Walker(short, seed, (0,)).walk(60)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(175, 200))
def test_more_walks_with_workers(short: Path, seed: int) -> None:
    """The same, from other seeds."""
    Walker(short, seed, (0, 1, 2, 3)).walk(24)
