"""The matrix of elastic resumes, unchanged, over a mixture: 277 samples of three sources, once an epoch."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_truth import NUM_SAMPLES, OTHER_ORDERS, STRIDE, Geometry, Ids, epoch_order, write_counting_corpus
from test_loader_matrix import BUSY, CUTS, GEOMETRIES, IDLE, Log, finish, geometries, go_on, hash_of, save

import tdstream
from tdstream.schedule.mixture_schedule import Schedule, Stage

SIZES = {"a": 150, "b": 100, "c": 27}
WEIGHTS = {"a": 5, "b": 2, "c": 3}
ORDERS = ("mixed numpy", "mixed feistel")
orders = st.sampled_from(ORDERS)


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tdstream.Mixture]:
    """Return three sources; the samples of all are numbered on, 0 to 276."""
    directory, sources, first = tmp_path_factory.mktemp("matrix"), {}, 0
    for name, size in SIZES.items():
        tokens = (10, size * STRIDE - 10)
        sources[name] = write_counting_corpus(directory / name, tokens, first=first * STRIDE)
        first += size
    OTHER_ORDERS.update({order: lambda epoch, own=order[6:]: mixed(epoch, own) for order in ORDERS})
    yield tdstream.Mixture(sources, weights=WEIGHTS, stop="drop")
    for order in ORDERS:
        del OTHER_ORDERS[order]


def mixed(epoch: int, own: str) -> Ids:
    """Return an epoch's samples: which source comes next is the schedule's, which sample its own order's."""
    schedule = Schedule(
        list(SIZES.values()), [Stage(0, np.array(list(WEIGHTS.values())))], stop="drop",
        max_epochs=[None] * 3, seed=7,
    )  # fmt: skip
    firsts = np.cumsum([0, *SIZES.values()]).tolist()
    sources, _ = schedule.at(np.arange(schedule.num_samples(epoch)), epoch)
    # Each epoch of the mixture is one epoch of every source, so a source begins its own one with it.
    left = [iter(epoch_order(own, epoch, size)) for size in SIZES.values()]
    return tuple(firsts[source] + next(left[source]) for source in sources.tolist())


def test_an_epoch_serves_each_sample_once(mixture: tdstream.Mixture) -> None:
    """What the matrix compares with is a permutation of all samples, another in every epoch."""
    for order in ORDERS:
        served = [OTHER_ORDERS[order](epoch) for epoch in range(3)]
        assert all(sorted(samples) == list(range(NUM_SAMPLES)) for samples in served)
        assert len(set(served)) == 3


@settings(deadline=None, max_examples=12)
@given(before=geometries, cut=st.sampled_from(CUTS), after=geometries, order=orders)
def test_a_run_goes_on_under_another_geometry(
    mixture: tdstream.Mixture, before: Geometry, cut: str, after: Geometry, order: str
) -> None:
    """From any cut, the rest of the epoch and the next must be served in order, each sample once."""
    log, state = save(mixture, before, cut, order)
    finish(mixture, after, log, state, order)


@settings(deadline=None, max_examples=6)
@given(
    chain=st.lists(geometries, min_size=3, max_size=4),
    cut=st.sampled_from(CUTS),
    counts=st.lists(st.integers(0, 25), min_size=2, max_size=2),
    order=orders,
)
def test_a_run_goes_on_through_changes(
    mixture: tdstream.Mixture, chain: list[Geometry], cut: str, counts: list[int], order: str
) -> None:
    """After each change, wherever it happens, the run must go on where it was."""
    first, *between, last = chain
    log, state = save(mixture, first, cut, order)
    for geometry, count in zip(between, counts, strict=False):
        state = go_on(mixture, geometry, log, state, count, order)
    finish(mixture, last, log, state, order)


@pytest.mark.exhaustive
@pytest.mark.parametrize("before", IDLE, ids=str)
def test_every_pair_without_workers(mixture: tdstream.Mixture, before: Geometry) -> None:
    """Every (world, B) at every cut must go on under every (world, B)."""
    for cell, (cut, after) in enumerate(itertools.product(CUTS, IDLE)):
        log, state = save(mixture, before, cut, ORDERS[cell % 2])
        finish(mixture, after, log, state, ORDERS[cell % 2])


@pytest.mark.exhaustive
@pytest.mark.parametrize("after", BUSY, ids=str)
def test_every_pair_with_workers(mixture: tdstream.Mixture, after: Geometry) -> None:
    """Every geometry with workers must take over from every (world, B), at cuts taken in turn."""
    for before in IDLE:
        number = hash_of(before, str(after))
        log, state = save(mixture, before, CUTS[number % len(CUTS)], ORDERS[0])
        finish(mixture, after, log, state, ORDERS[0], busy=number % after.world)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(10))
def test_many_chains_of_changes(mixture: tdstream.Mixture, seed: int) -> None:
    """Runs that change two and three times, with workers on all ranks or one, must go on exactly."""
    dice = random.Random(seed)
    for _ in range(20):
        chain, order = [dice.choice(GEOMETRIES) for _ in range(dice.choice((3, 4)))], dice.choice(ORDERS)
        log, state = save(mixture, chain[0], dice.choice(CUTS), order, busy=0)
        assert isinstance(log, Log)
        for geometry in chain[1:-1]:
            count = dice.randrange(25)
            state = go_on(mixture, geometry, log, state, count, order, busy=dice.randrange(geometry.world))
        finish(mixture, chain[-1], log, state, order, busy=dice.randrange(chain[-1].world))
