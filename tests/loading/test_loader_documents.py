"""The matrix, unchanged, over loaders that know documents."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_cluster import cluster
from loader_documents import KINDS
from loader_truth import NUM_SAMPLES, Geometry
from test_loader_matrix import BUSY, CUTS, IDLE, describe, finish, geometries, go_on, hash_of, orders, save

import tdstream

Corpora = dict[str, tuple[Path, dict[str, Any]]]
kinds = st.sampled_from(sorted(KINDS))


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Corpora:
    """Return, by kind, a corpus and the options of clusters that read it."""
    place = tmp_path_factory.mktemp("documents")
    return {
        name: (kind.write(place / name), {**kind.options, "ids": kind.reading()})
        for name, kind in KINDS.items()
    }


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_whole_epoch_in_order_is_all_samples(corpora: Corpora, name: str) -> None:
    """And there are 277 of them, the number that the matrix counts with."""
    corpus, options = corpora[name]
    with cluster(corpus, Geometry(1, 0, 1), shuffle=False, **options) as ranks:
        assert ranks.loop() == [(number,) for number in range(NUM_SAMPLES)]


@settings(deadline=None, max_examples=10)
@given(name=kinds, before=geometries, cut=st.sampled_from(CUTS), after=geometries, order=orders)
def test_a_run_goes_on_under_another_geometry(
    corpora: Corpora, name: str, before: Geometry, cut: str, after: Geometry, order: str
) -> None:
    """From any cut, the rest of the epoch and the next must be served in order, each sample once."""
    corpus, options = corpora[name]
    log, state = save(corpus, before, cut, order, **options)
    finish(corpus, after, log, state, order, **options)


@settings(deadline=None, max_examples=3)
@given(
    name=kinds,
    chain=st.lists(geometries, min_size=3, max_size=4),
    counts=st.lists(st.integers(0, 25), min_size=2, max_size=2),
    order=orders,
)
def test_a_run_goes_on_through_two_and_three_changes(
    corpora: Corpora, name: str, chain: list[Geometry], counts: list[int], order: str
) -> None:
    """After each change, wherever it happens, the run must go on where it was."""
    corpus, options = corpora[name]
    first, *between, last = chain
    log, state = save(corpus, first, "mid", order, **options)
    for geometry, count in zip(between, counts, strict=False):
        state = go_on(corpus, geometry, log, state, count, order, **options)
    finish(corpus, last, log, state, order, **options)


def test_states_of_different_cuts_are_refused(corpora: Corpora) -> None:
    """A position in one cut means nothing in another."""
    loaders = {}
    for name, (corpus, options) in corpora.items():
        chosen = {key: value for key, value in options.items() if key != "ids"}
        loaders[name] = tdstream.loader(corpus, seq_len=3, batch_size=2, **chosen)
    for saved, loaded in itertools.permutations(loaders.values(), 2):
        with pytest.raises(tdstream.StateError, match=r"reader\."):
            loaded.load_state_dict(saved.state_dict())


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(KINDS))
@pytest.mark.parametrize("before", IDLE, ids=str)
def test_every_pair_without_workers(corpora: Corpora, name: str, before: Geometry) -> None:
    """Every (world, B) at every cut must go on under every (world, B)."""
    corpus, options = corpora[name]
    begun, cells = time.monotonic(), 0
    for cut, after in itertools.product(CUTS, IDLE):
        order = "feistel" if cells % 2 else "numpy"
        log, state = save(corpus, before, cut, order, **options)
        finish(corpus, after, log, state, order, **options)
        cells += 1
    describe(f"every pair from {before}, {name}", cells, begun)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(KINDS))
@pytest.mark.parametrize("after", BUSY, ids=str)
def test_every_geometry_with_workers(corpora: Corpora, name: str, after: Geometry) -> None:
    """Every geometry with workers must take over from every (world, B), at cuts taken in turn."""
    corpus, options = corpora[name]
    begun = time.monotonic()
    for before in IDLE:
        number = hash_of(before, f"{after}{name}")
        log, state = save(corpus, before, CUTS[number % len(CUTS)], "numpy", **options)
        finish(corpus, after, log, state, "numpy", busy=number % after.world, **options)
    describe(f"every pair to {after}, {name}", len(IDLE), begun)
