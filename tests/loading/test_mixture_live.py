"""Mixtures whose weights and sources change in the middle of a run, under any geometry."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_cluster import Cluster, cluster
from loader_truth import SEED, Geometry
from mixture_truth import (
    SIZES,
    check_own_orders,
    flat,
    mixture_of,
    own_order,
    source_of,
    write_sources,
)  # fmt: skip

import tdstream

SAME_SIZE = [Geometry(1, 0, 8), Geometry(2, 0, 4), Geometry(4, 0, 2)]
geometries = st.builds(Geometry, st.sampled_from((1, 2, 3, 4, 8)), st.just(0), st.sampled_from((1, 2, 4, 8)))
some_weights = st.dictionaries(
    st.sampled_from(list(SIZES)),
    st.one_of(st.integers(1, 9), st.floats(0.01, 9, allow_subnormal=False)),
    min_size=1,
)

some_legs = st.lists(st.tuples(some_weights, geometries, st.integers(0, 4)), min_size=1, max_size=4)
orders = st.sampled_from(("numpy", "feistel"))


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return four corpora, of 5 to 149 samples."""
    return write_sources(tmp_path_factory.mktemp("mixture"))


@pytest.fixture(autouse=True)
def _short_look_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work out few samples ahead: these runs are short, and "tiny" begins an epoch every few samples."""
    monkeypatch.setattr("tdstream.nodes.splitter._PLANNED_SAMPLES", 64)


def run(
    sources: dict[str, Path], legs: list[tuple[dict[str, float], Geometry, int]], order: str
) -> tuple[list[int], dict[str, Any]]:
    """Run leg after leg, each with its weights and geometry; return all samples, and the last state.

    All is within one epoch, which does not end before "large" is used up.
    """
    state, log = None, []
    for weights, geometry, count in legs:
        mixture = mixture_of(sources, {**weights, "large": 3}, stop="all")
        with cluster(mixture, geometry, state, order=order) as ranks:
            log += flat(follow(ranks, count))
            state = ranks.state()
            check_stats(ranks, log)
    assert state is not None
    return log, state


def follow(ranks: Cluster, count: int) -> list[Any]:
    """Take batches, over the ends of epochs."""
    found: list[Any] = []
    while len(found) < count:
        ranks.open()
        while len(found) < count and (batch := ranks.step()) is not None:
            found.append(batch)
    return found


def check_stats(ranks: Cluster, log: list[int]) -> None:
    """The statistics must be the log's counts."""
    seen = Counter(map(source_of, log))
    stats = json.loads(json.dumps(ranks.loaders[0].mixture_stats()))
    assert {name: part["samples"] for name, part in stats.items() if part["samples"]} == dict(seen)
    for name, part in stats.items():
        assert part["tokens"] == 3 * part["samples"]
        assert part["epochs"] == seen[name] // SIZES[name]


@settings(deadline=None, max_examples=20)
@given(legs=some_legs, order=orders)
def test_each_source_goes_on_where_it_was(
    sources: dict[str, Path], legs: list[tuple[dict[str, float], Geometry, int]], order: str
) -> None:
    """Whatever the weights become, no sample comes again before its source's epoch ends, and none is lost."""
    log, state = run(sources, legs, order)
    check_own_orders(log, order)
    starts = [start for start, _ in state["nodes"]["mixture"]["stages"]]
    begins = [0]
    for _, geometry, count in legs[:-1]:
        begins.append(begins[-1] + geometry.size * count)
    assert set(starts) <= set(begins)


@pytest.mark.exhaustive
def test_each_source_goes_on_where_it_was_in_many_runs(sources: dict[str, Path]) -> None:
    """The same for five hundred runs."""
    inner = test_each_source_goes_on_where_it_was.hypothesis.inner_test
    settings(deadline=None, max_examples=500)(given(legs=some_legs, order=orders)(inner))(sources=sources)


@settings(deadline=None, max_examples=8)
@given(
    changes=st.lists(st.tuples(some_weights, st.integers(1, 9)), min_size=2, max_size=4),
    order=orders,
)
def test_a_change_is_the_same_on_every_topology(
    sources: dict[str, Path], changes: list[tuple[dict[str, float], int]], order: str
) -> None:
    """With the same global batch the samples are the same, however ranks share them before and after."""
    runs = [
        run(
            sources,
            [(weights, SAME_SIZE[(first + leg) % 3], count) for leg, (weights, count) in enumerate(changes)],
            order,
        )[0]
        for first in range(3)
    ]
    assert runs[0] == runs[1] == runs[2]


@settings(deadline=None, max_examples=20)
@given(before=some_weights, after=some_weights)
def test_the_new_weights_count_from_the_change_on(
    sources: dict[str, Path], before: dict[str, float], after: dict[str, float]
) -> None:
    """Behind a change the shares are the new ones from its first sample on."""
    weights = {**after, "large": 3}
    log, _ = run(sources, [(before, Geometry(1, 0, 8), 3), (after, Geometry(2, 0, 4), 12)], "feistel")
    counts = Counter(map(source_of, log[24:]))
    total = sum(weights.values())
    for name, weight in weights.items():
        assert abs(counts[name] - 96 * weight / total) <= 2


@pytest.mark.parametrize("geometry", [Geometry(2, 2, 4), Geometry(1, 3, 8, True)], ids=str)
def test_a_change_with_workers(sources: dict[str, Path], geometry: Geometry) -> None:
    """Real workers read the changed mixture as the main process does."""
    changes = [({"tiny": 1}, 5), ({"small": 4, "mid": 1}, 9), ({"tiny": 2}, 4)]
    alone = run(sources, [(weights, Geometry(1, 0, 8), count) for weights, count in changes], "feistel")
    busy = run(sources, [(weights, geometry, count) for weights, count in changes], "feistel")
    assert busy == (alone[0], {**alone[1], "nodes": busy[1]["nodes"]})
    assert busy[1]["nodes"]["mixture"] == alone[1]["nodes"]["mixture"]


def test_stages_are_changes_that_were_announced(sources: dict[str, Path]) -> None:
    """A run with stages is the run that was stopped at their starts and went on with other weights."""
    weights = [{"tiny": 1}, {"mid": 2}, {"small": 1, "tiny": 1}]
    stages = [(start, {**part, "large": 3}) for start, part in zip((0, 40, 88), weights, strict=True)]
    mixture = tdstream.Mixture(sources, stages=stages, stop="all")
    with cluster(mixture, Geometry(2, 0, 4), order="feistel") as ranks:
        ranks.open()
        announced = flat(ranks.take(18))
        kept = ranks.state()["nodes"]["mixture"]["stages"]
    legs = [(part, Geometry(1, 0, 8), count) for part, count in zip(weights, (5, 6, 7), strict=True)]
    stopped, state = run(sources, legs, "feistel")
    check_own_orders(announced, "feistel")
    assert announced == stopped
    assert [start for start, _ in state["nodes"]["mixture"]["stages"]] == [start for start, _ in kept]


def test_a_source_that_was_dropped_comes_back(sources: dict[str, Path]) -> None:
    """Left out for a while, a source goes on behind the last sample that it gave."""
    legs = [({"mid": 3}, 4), ({"small": 1}, 3), ({"mid": 1}, 6)]
    log, state = run(sources, [(weights, Geometry(1, 0, 8), count) for weights, count in legs], "feistel")
    mid = [sample for sample in log if source_of(sample) == "mid"]
    order = own_order("mid", "feistel")
    assert mid == [next(order) for _ in mid]
    assert all(source_of(sample) != "mid" for sample in log[32:56])
    assert [entry[0] for entry in state["nodes"]["mixture"]["sources"]] == ["large", "mid", "small"]


def test_loading_twice_changes_nothing(sources: dict[str, Path]) -> None:
    """A state that was taken right after a change is loaded without another change."""
    _, state = run(
        sources, [({"mid": 3}, Geometry(1, 0, 8), 4), ({"tiny": 1}, Geometry(1, 0, 8), 0)], "numpy"
    )
    again = tdstream.loader(
        mixture_of(sources, {"tiny": 1, "large": 3}, stop="all"),
        seq_len=3, batch_size=8, shuffle=True, order="numpy", seed=SEED,
    )  # fmt: skip
    again.load_state_dict(state)
    assert again.state_dict() == state
    assert [start for start, _ in state["nodes"]["mixture"]["stages"]] == [0, 32]


def test_a_finished_epoch_stays_finished(sources: dict[str, Path]) -> None:
    """A change behind an epoch's last batch counts from the next epoch on."""
    first = tdstream.loader(
        mixture_of(sources, {"tiny": 1, "large": 1}), seq_len=3, batch_size=4, shuffle=True, seed=SEED
    )
    batches = len(list(first))
    state = first.state_dict()
    assert (state["epoch"], state["position"]) == (0, 4 * batches)
    changed = tdstream.loader(
        mixture_of(sources, {"tiny": 1, "large": 9}), seq_len=3, batch_size=4, shuffle=True, seed=SEED
    )
    changed.load_state_dict(state)
    next(iter(changed))
    assert changed.epoch == 1
    assert len(changed) > batches


@pytest.mark.parametrize("workers", [0, 2])
def test_epochs_of_changing_lengths(sources: dict[str, Path], workers: int) -> None:
    """Epochs before, over and behind a stage's start have lengths of their own, known before they begin."""
    mixture = tdstream.Mixture(
        sources, stages=[(0, {"small": 1, "tiny": 1}), (25, {"mid": 1, "tiny": 1, "small": 2})]
    )
    loader = tdstream.loader(mixture, seq_len=3, batch_size=2, shuffle=True, seed=SEED, num_workers=workers)
    told, found = [], []
    for _ in range(5):
        told.append(loader._cursor.lengths.num_samples(loader.epoch + bool(found)))
        found.append(len(list(loader)))
    assert found == [samples // 2 for samples in told]
    assert len(set(found)) >= 2


def test_set_epoch_and_skip(sources: dict[str, Path]) -> None:
    """A chosen epoch, and the place behind batches left out, are those of a run that goes there."""

    def make() -> tdstream.Loader:
        return tdstream.loader(
            mixture_of(sources, {"small": 2, "mid": 3, "tiny": 1}), seq_len=3, batch_size=2, shuffle=True,
            seed=SEED,
        )  # fmt: skip

    whole = make()
    epochs = [[batch["input_ids"][:, 0].tolist() for batch in whole] for _ in range(4)]
    chosen = make()
    chosen.set_epoch(2)
    assert [batch["input_ids"][:, 0].tolist() for batch in chosen] == epochs[2]
    skipped = make()
    skipped.skip(len(epochs[0]) + 3)
    assert [batch["input_ids"][:, 0].tolist() for batch in skipped] == epochs[1][3:]
    assert skipped.locate(skipped.step + 1).epoch == 2
