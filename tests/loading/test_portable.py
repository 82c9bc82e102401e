"""position_of: what a plain StatefulDataLoader saved goes on in a tdstream.loader of any geometry."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from loader_cluster import cluster, make_loader, through_file
from loader_truth import NUM_SAMPLES, SEED, SEQ_LEN, Geometry, rest
from torch.utils.data import IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream

BEFORE = Geometry(2, 0, 6)  # 23 global batches of 12
LENGTH = NUM_SAMPLES // BEFORE.size
PLACES = [(epoch, count) for epoch in (0, 2) for count in (0, LENGTH // 2, LENGTH - 1, LENGTH, LENGTH + 1)]


def plain_loader(corpus: Path, rank: int = 0, *, batch_size: int | None = 6, **options: Any) -> Any:
    """Return a plain StatefulDataLoader of one of two ranks."""
    pipe = tdstream.build(
        corpus, seq_len=SEQ_LEN, batch_size=batch_size, shuffle=True, order="numpy", seed=SEED,
        dp_rank=rank, dp_world_size=BEFORE.world,
    )  # fmt: skip
    return StatefulDataLoader(pipe, **options)


def run_to(loader: Any, epoch: int, count: int) -> dict[str, Any]:
    """Run to a place; one more than an epoch has batches pulls its end. Return the state."""
    for _ in range(epoch):
        for _ in loader:
            pass
    iterator = iter(loader)
    for _ in itertools.islice(iterator, count):
        pass
    return through_file(loader.state_dict())


def rests_from(epoch: int, count: int, size: int) -> list[list[tuple[int, ...]]]:
    """Return what the next two loops under another G must give."""
    position = count * BEFORE.size
    if count >= LENGTH or NUM_SAMPLES - position < size:
        epoch, position = epoch + 1, 0
    return [rest(size, epoch, position), rest(size, epoch + 1)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"snapshot_every_n_steps": 5},
        {"num_workers": 2},
        {"num_workers": 2, "snapshot_every_n_steps": 5},
        {"num_workers": 2, "persistent_workers": True, "snapshot_every_n_steps": 5},
    ],
    ids=str,
)
def test_a_plain_state_goes_on_under_another_geometry(options: dict[str, Any], counting: Path) -> None:
    """From any place, whatever snapshots were made, the rest must be served in order, each sample once."""
    for epoch, count in PLACES:
        portable = tdstream.position_of(run_to(plain_loader(counting, **options), epoch, count))
        assert json.loads(json.dumps(portable)) == portable
        assert (portable["epoch"], portable["position"]) == (epoch, min(count, LENGTH) * BEFORE.size)
        with cluster(counting, Geometry(3, 0, 5), portable) as ranks:
            assert [ranks.loop(), ranks.loop()] == rests_from(epoch, count, 15)


@pytest.mark.parametrize("after", [Geometry(2, 2, 6), Geometry(1, 1, 12), Geometry(4, 0, 2)], ids=str)
def test_every_rank_tells_the_same_place(after: Geometry, counting: Path) -> None:
    """Any rank's state must do, before and after a resume of the plain loader itself."""
    states = [run_to(plain_loader(counting, rank, num_workers=2), 1, 7) for rank in range(2)]
    again = plain_loader(counting, 1, num_workers=2)
    again.load_state_dict(states[1])
    iterator = iter(again)
    for _ in range(4):
        next(iterator)
    later = tdstream.position_of(again.state_dict())
    assert tdstream.position_of(states[0]) == tdstream.position_of(states[1])
    assert (later["epoch"], later["position"]) == (1, 11 * BEFORE.size)
    with cluster(counting, after, tdstream.position_of({"ranks": states})) as ranks:
        assert [ranks.loop(), ranks.loop()] == rests_from(1, 7, after.size)


def test_steps_and_lengths_go_on_counting(counting: Path) -> None:
    """What a plain loader had served must count in step, batches_done and len()."""
    portable = tdstream.position_of(run_to(plain_loader(counting), 2, 7))
    loader = make_loader(counting, Geometry(1, 0, 24))
    loader.load_state_dict(portable)
    assert (loader.step, loader.batches_done, loader.position) == (2 * LENGTH + 7, 7, 84)
    assert loader.tokens_done == 84 * SEQ_LEN
    assert len(loader) == 7 + (NUM_SAMPLES - 84) // 24
    assert len([*loader]) == (NUM_SAMPLES - 84) // 24


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"model": {"w": 1}, "step": 7, "data": {"train": state}},
        lambda state: {"loops": [{"fit": (None, {"combined": [state]})}], "epoch": 3},
        lambda state: [state, copy.deepcopy(state)],
    ],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_is_found_inside_a_checkpoint(workers: int, wrap: Any, counting: Path) -> None:
    """At any depth of dicts, lists and tuples the one loader state must be found."""
    state = run_to(plain_loader(counting, num_workers=workers), 0, 5)
    assert tdstream.position_of(wrap(state)) == tdstream.position_of(state)


def test_a_portable_state_is_its_own_position(counting: Path) -> None:
    """A checkpoint of a tdstream.loader must give its state, unchanged."""
    loader = make_loader(counting, Geometry(1, 0, 4))
    next(iter(loader))
    state = loader.state_dict()
    assert tdstream.position_of({"loader": state}) == state


def test_position_of_changes_nothing(counting: Path) -> None:
    """The state that was given must stay as it was, and share nothing with what is returned."""
    state = run_to(plain_loader(counting, num_workers=2), 0, 5)
    kept = copy.deepcopy(state)
    portable = tdstream.position_of(state)
    portable["nodes"]["permutation"]["seed"] = 99
    assert state == kept


@pytest.mark.parametrize("workers", [0, 2])
def test_single_samples_are_refused(workers: int, counting: Path) -> None:
    """Sample mode's state must be refused in a sentence that says why, and what to do."""
    loader = plain_loader(counting, batch_size=None, num_workers=workers)
    state = run_to(loader, 0, 3)
    with pytest.raises(
        tdstream.StateError, match=r"counts single samples.*no position in the global order.*"
    ):
        tdstream.position_of(state)
    with pytest.raises(tdstream.StateError, match="Resume it with the same ranks and workers, or"):
        tdstream.position_of({"trainer": [state]})


def test_several_places_are_refused(counting: Path) -> None:
    """Where a checkpoint holds loader states of different places, none may be chosen."""
    states = [run_to(plain_loader(counting), 0, count) for count in (3, 4)]
    with pytest.raises(tdstream.StateError, match="2 loader states in what was given, at different places"):
        tdstream.position_of({"train": states[0], "other": states[1]})
    loader = make_loader(counting, Geometry())
    with pytest.raises(tdstream.StateError, match="different places"):
        tdstream.position_of([states[0], loader.state_dict()])


class Elsewhere(IterableDataset[int]):
    """A dataset of another project, with a state of its own."""

    def __init__(self) -> None:
        self.count = 0

    def __iter__(self) -> Elsewhere:
        return self

    def __next__(self) -> int:
        self.count += 1
        return self.count

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.count = state["count"]


def test_states_of_other_datasets_are_refused() -> None:
    """A StatefulDataLoader over something else must be recognised as that."""
    loader = StatefulDataLoader(Elsewhere())
    next(iter(loader))
    with pytest.raises(tdstream.StateError, match=r"not a state of tdstream|not made over a tdstream"):
        tdstream.position_of(loader.state_dict())
    loader = StatefulDataLoader([1, 2, 3])
    next(iter(loader))
    with pytest.raises(tdstream.StateError):
        tdstream.position_of(loader.state_dict())


@pytest.mark.parametrize(
    "garbage",
    [
        None, 42, "state", {}, [], [[], {}], {"epoch": 1, "position": 2},
        {"_snapshot": None}, {"_snapshot": {"_worker_snapshots": {}}}, {"fetcher_state": {}},
        {"fetcher_state": {"dataset_iter_state": None}, "_num_yielded": 1},
        {"fetcher_state": {"dataset_iter_state": {"tdstream": 1, "nodes": {}}}, "_num_yielded": 1},
        {"tdstream": 1, "nodes": {}}, {"tdstream": 2, "epoch": 0, "position": 0, "nodes": {}},
    ],
    ids=repr,
)  # fmt: skip
def test_garbage_is_refused(garbage: Any) -> None:
    """What holds no loader state, or a damaged one, must end in a sentence."""
    with pytest.raises(tdstream.StateError, match=r"\w \w"):
        tdstream.position_of(garbage)
