"""A run that is saved under any geometry goes on under any other, as if nothing had happened."""

from __future__ import annotations

import itertools
import random
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_cluster import Cluster, as_bytes, cluster
from loader_truth import NUM_SAMPLES, Geometry, Ids, Model, epoch_order, rest

WORLDS, WORKERS, BATCH_SIZES = (1, 2, 3, 4, 8), (0, 1, 2, 5), (2, 4, 8)
CUTS = ("0", "1", "mid", "last-1", "last", "edge", "epoch2")
GEOMETRIES = [Geometry(*values) for values in itertools.product(WORLDS, WORKERS, BATCH_SIZES)]
IDLE = [geometry for geometry in GEOMETRIES if geometry.workers == 0]
BUSY = [geometry for geometry in GEOMETRIES if geometry.workers]

# Starting five workers for each of eight ranks takes seconds; drawn geometries have few processes, and
# those of the fixed handful have many.
geometries = st.builds(
    Geometry,
    st.sampled_from(WORLDS),
    st.sampled_from((0, 0, 0, 1, 2)),
    st.sampled_from(BATCH_SIZES),
    st.booleans(),
).map(lambda drawn: drawn if drawn.workers else Geometry(drawn.world, 0, drawn.batch_size))
orders = st.sampled_from(("numpy", "feistel"))


class Log:
    """What a run consumed, beside a model of where it must be."""

    def __init__(self, size: int, order: str) -> None:
        self.model, self.order = Model(size), order
        self.served: dict[int, list[Ids]] = defaultdict(list)
        self.tail: dict[int, int] = {}
        """Of each epoch, the largest G by which its rest may have been too small for a batch."""

    def moves(self, size: int) -> None:
        """Go on under another geometry."""
        epoch = self.model.epoch
        self.tail[epoch] = max(self.tail.get(epoch, 0), size)
        self.model = self.model.at(size)

    def run(self, ranks: Cluster, count: int) -> None:
        """Take a number of batches, over epochs' ends; each must be the one that comes next."""
        while count:
            self.model.open()
            ranks.open()
            while count and (place := self.model.take()):
                self.note(ranks.step(), *place)
                count -= 1

    def end(self, ranks: Cluster) -> None:
        """Pull the end of the running epoch."""
        assert self.model.over
        assert ranks.step() is None
        assert ranks.step() is None

    def loop(self, ranks: Cluster) -> None:
        """Take a whole loop."""
        self.model.open()
        ranks.open()
        while place := self.model.take():
            self.note(ranks.step(), *place)
        self.end(ranks)

    def note(self, batch: Ids | None, epoch: int, position: int) -> None:
        """Note a batch, which must be the one at a place."""
        assert batch == self.model.batch(epoch, position, self.order)
        self.served[epoch].append(batch)
        self.tail[epoch] = self.model.size

    def compare(self, state: dict[str, Any]) -> None:
        """A state must say the model's place."""
        assert (state["epoch"], state["position"]) == (self.model.epoch, self.model.position)

    def check_epochs(self) -> None:
        """Each epoch must have served every sample once, but for less than a batch at its end."""
        for epoch, batches in self.served.items():
            samples = [sample for batch in batches for sample in batch]
            assert len(set(samples)) == len(samples)
            assert tuple(samples) == epoch_order(self.order, epoch)[: len(samples)]
            assert NUM_SAMPLES - len(samples) < self.tail[epoch]
        newest = max(self.served)
        assert self.served[newest] == rest(self.model.size, newest, order=self.order)


def save(corpus: Path, geometry: Geometry, cut: str, order: str, /, **options: Any) -> tuple[Log, Any]:
    """Run to a cut, save, and let everything go; return the log and the state."""
    length = NUM_SAMPLES // geometry.size
    count = {"0": 0, "1": 1, "mid": length // 2, "last-1": length - 1, "epoch2": 2 * length + length // 2}
    log = Log(geometry.size, order)
    with cluster(corpus, geometry, order=order, **options) as ranks:
        log.run(ranks, count.get(cut, length))
        if cut == "edge":
            log.end(ranks)
        state = ranks.state()
    log.compare(state)
    return log, state


def go_on(
    corpus: Path, geometry: Geometry, log: Log, state: Any, count: int, order: str, **options: Any
) -> Any:
    """Load, run a number of batches, save, and let everything go; return the state."""
    log.moves(geometry.size)
    with cluster(corpus, geometry, state, order=order, **options) as ranks:
        log.compare(ranks.state())
        log.run(ranks, count)
        state = ranks.state()
    log.compare(state)
    return state


def finish(corpus: Path, geometry: Geometry, log: Log, state: Any, order: str, **options: Any) -> None:
    """Load, and run the rest of the epoch and the whole of the next."""
    log.moves(geometry.size)
    with cluster(corpus, geometry, state, order=order, **options) as ranks:
        log.compare(ranks.state())
        log.loop(ranks)
        log.loop(ranks)
    log.check_epochs()


def test_the_cuts_are_places_of_their_own() -> None:
    """In every geometry an epoch must have batches enough for all cuts to be different places."""
    assert min(NUM_SAMPLES // geometry.size for geometry in GEOMETRIES) == 4
    assert len(GEOMETRIES) == 60


@settings(deadline=None, max_examples=12)
@given(before=geometries, cut=st.sampled_from(CUTS), after=geometries, order=orders)
def test_a_run_goes_on_under_another_geometry(
    counting: Path, before: Geometry, cut: str, after: Geometry, order: str
) -> None:
    """From any cut, the rest of the epoch and the next must be served in order, each sample once."""
    log, state = save(counting, before, cut, order)
    finish(counting, after, log, state, order)


@settings(deadline=None, max_examples=12)
@given(
    chain=st.lists(geometries, min_size=3, max_size=4),
    cut=st.sampled_from(CUTS),
    counts=st.lists(st.integers(0, 25), min_size=2, max_size=2),
    order=orders,
)
def test_a_run_goes_on_through_two_and_three_changes(
    counting: Path, chain: list[Geometry], cut: str, counts: list[int], order: str
) -> None:
    """After each change, wherever it happens, the run must go on where it was."""
    first, *between, last = chain
    log, state = save(counting, first, cut, order)
    for geometry, count in zip(between, counts, strict=False):
        state = go_on(counting, geometry, log, state, count, order)
    finish(counting, last, log, state, order)


@pytest.mark.parametrize(
    ("before", "cut", "after"),
    [
        (Geometry(1, 5, 2), "mid", Geometry(1, 2, 8)),
        (Geometry(2, 5, 4, True), "last-1", Geometry(3, 5, 2)),
        (Geometry(3, 2, 8), "epoch2", Geometry(1, 5, 4, True)),
        (Geometry(1, 5, 8), "edge", Geometry(1, 5, 2)),
        (Geometry(8, 1, 8), "last", Geometry(1, 5, 4)),
    ],
    ids=str,
)
def test_five_workers(counting: Path, before: Geometry, cut: str, after: Geometry) -> None:
    """More workers than an epoch has batches left must change nothing, either."""
    log, state = save(counting, before, cut, "feistel")
    finish(counting, after, log, state, "feistel")


@pytest.mark.parametrize("geometries", [((1, 0, 8), (2, 0, 4), (4, 2, 2)), ((8, 0, 4), (4, 0, 8))], ids=str)
def test_the_same_global_batches_come_whatever_the_ranks(counting: Path, geometries: Any) -> None:
    """While B x world stays the same, the joined sequence must be that of the run that never stopped."""
    chain = [Geometry(*values) for values in geometries]
    size = chain[0].size
    uninterrupted = [*rest(size, 0), *rest(size, 1)]
    found, state = [], None
    for geometry in chain:
        with cluster(counting, geometry, state) as ranks:
            ranks.open()
            found += ranks.take(2)
            state = ranks.state()
    with cluster(counting, chain[0], state) as ranks:
        found += ranks.loop() + ranks.loop()
    assert found == uninterrupted


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("position", [0, 130, 253, 254, 276, 277])
def test_wrap_fills_up_after_a_change_of_geometry(counting: Path, workers: int, position: int) -> None:
    """With tail="wrap", a rest that is no multiple of G must be filled from its epoch's own beginning."""
    with cluster(counting, Geometry(1, 0, 1)) as ranks:
        ranks.open()
        ranks.take(position)
        state = ranks.state()
    with cluster(counting, Geometry(3, workers, 8, workers > 0), state, tail="wrap") as ranks:
        found = ranks.loop()
        following = ranks.loop()
    order = epoch_order("numpy", 0)
    if position == NUM_SAMPLES:  # nothing is left, so this was epoch 1 already
        order, position = epoch_order("numpy", 1), 0
    batches = -(-(NUM_SAMPLES - position) // 24)
    endless = order[position:] + order
    assert found == [endless[first : first + 24] for first in range(0, 24 * batches, 24)]
    assert len(following) == -(-NUM_SAMPLES // 24)


def describe(name: str, cells: int, begun: float) -> None:
    """Say how much ran."""
    print(f"\n{name}: {cells:,} cells, {time.monotonic() - begun:.0f} s")


@pytest.mark.exhaustive
@pytest.mark.parametrize("before", IDLE, ids=str)
def test_every_pair_without_workers(counting: Path, before: Geometry) -> None:
    """Every (world, B) at every cut must go on under every (world, B)."""
    begun, cells = time.monotonic(), 0
    for cut, after in itertools.product(CUTS, IDLE):
        order = "feistel" if cells % 2 else "numpy"
        log, state = save(counting, before, cut, order)
        finish(counting, after, log, state, order)
        cells += 1
    describe(f"every pair from {before}", cells, begun)


@pytest.mark.exhaustive
@pytest.mark.parametrize("geometry", BUSY, ids=str)
def test_a_state_does_not_know_how_many_workers_made_it(counting: Path, geometry: Geometry) -> None:
    """At every cut the state must be the bytes that the same ranks without workers save.

    So what loads one loads the other, and only what loads needs to be paired with all cuts.
    """
    begun = time.monotonic()
    for cut in CUTS:
        busy = hash_of(geometry, cut) % geometry.world
        _, state = save(counting, geometry, cut, "numpy", busy=busy)
        alone = Geometry(geometry.world, 0, geometry.batch_size)
        assert as_bytes(state) == as_bytes(save(counting, alone, cut, "numpy")[1])
    describe(f"states of {geometry}", len(CUTS), begun)


@pytest.mark.exhaustive
@pytest.mark.parametrize("after", BUSY, ids=str)
def test_every_pair_with_workers(counting: Path, after: Geometry) -> None:
    """Every geometry with workers must take over from every (world, B), at cuts taken in turn."""
    begun = time.monotonic()
    for before in IDLE:
        number = hash_of(before, str(after))
        log, state = save(counting, before, CUTS[number % len(CUTS)], "numpy")
        finish(counting, after, log, state, "numpy", busy=number % after.world)
    describe(f"every pair to {after}", len(IDLE), begun)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(10))
def test_many_chains_of_changes(counting: Path, seed: int) -> None:
    """Runs that change two and three times, with workers on all ranks or one, must go on exactly."""
    begun, dice, cells = time.monotonic(), random.Random(seed), 20
    for _ in range(cells):
        chain = [dice.choice(GEOMETRIES) for _ in range(dice.choice((3, 4)))]
        order = dice.choice(("numpy", "feistel"))
        log, state = save(counting, chain[0], dice.choice(CUTS), order, busy=0)
        for geometry in chain[1:-1]:
            busy = dice.randrange(geometry.world)
            state = go_on(counting, geometry, log, state, dice.randrange(25), order, busy=busy)
        busy = dice.randrange(chain[-1].world)
        finish(counting, chain[-1], log, state, order, busy=busy)
    describe(f"chains of seed {seed}", cells, begun)


def hash_of(geometry: Geometry, text: str) -> int:
    """Return a number that spreads cells evenly and is the same in every run."""
    return sum(map(ord, f"{geometry}{text}")) + 7 * geometry.world + 3 * geometry.batch_size
