"""A StatefulDataLoader can be saved, loaded, rolled back and left at any place, in any of its settings."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from resume_loaders import (
    CASES,
    CONFIGURATIONS,
    Setup,
    loaded,
    make_dataset,
    make_loader,
    name_of,
    one_pass,
    saved_at,
    take,
    through_file,
)
from resume_truth import MODES, truth

import tdstream

every_case = pytest.mark.parametrize(("mode", "setup"), CASES, ids=name_of)
every_setup = pytest.mark.parametrize("setup", CONFIGURATIONS, ids=name_of)
BATCH = MODES["batch"]


@every_case
def test_epochs_count_themselves(mode: str, setup: Setup, corpus: Path) -> None:
    """Without set_epoch, three loops must serve epochs 0, 1 and 2, in the order of the rule."""
    data = MODES[mode]
    loader = make_loader(corpus, data, setup)
    assert [one_pass(loader, data) for _ in range(3)] == [truth(data, e, setup.workers) for e in range(3)]


@every_setup
def test_a_loader_that_does_not_batch_hands_on_the_same_batches(setup: Setup, corpus: Path) -> None:
    """In batch mode the loader's batch_size of None and of 1 (the default) must give the same."""
    workers = {"num_workers": setup.workers, "persistent_workers": setup.persistent}
    loader = type(make_loader(corpus, BATCH, setup))(make_dataset(corpus, BATCH), batch_size=None, **workers)
    iterator = iter(loader)
    assert take(iterator, 4, BATCH) == truth(BATCH, 0)[:4]
    resumed = loaded(corpus, BATCH, setup, through_file(loader.state_dict()))
    assert one_pass(resumed, BATCH) == truth(BATCH, 0)[4:]


@pytest.mark.parametrize(
    ("mode", "setup"),
    [
        ("batch", Setup()),
        ("batch", Setup(2, True)),
        ("sample", Setup(3, True)),
        ("reference", Setup(2, True)),
    ],
    ids=name_of,
)
def test_every_place_of_the_second_epoch_resumes(mode: str, setup: Setup, corpus: Path) -> None:
    """A state from any place of epoch 1, its end included, must give its rest and then epoch 2."""
    data = MODES[mode]
    epochs = [truth(data, epoch, setup.workers) for epoch in range(4)]
    loader = make_loader(corpus, data, setup)
    one_pass(loader, data)
    iterator = iter(loader)
    states = [through_file(loader.state_dict())]
    for _ in iterator:
        states.append(through_file(loader.state_dict()))
    ended = loaded(corpus, data, setup, through_file(loader.state_dict()))
    assert len(states) == len(epochs[1]) + 1
    for count, state in enumerate(states):
        resumed = loaded(corpus, data, setup, state)
        assert [one_pass(resumed, data), one_pass(resumed, data)] == [epochs[1][count:], epochs[2]]
    assert [one_pass(ended, data), one_pass(ended, data)] == epochs[2:]


@every_case
def test_a_state_that_is_only_handed_on_stays_the_same(mode: str, setup: Setup, corpus: Path) -> None:
    """Loading and saving without a step must give the state that was loaded, three times over."""
    data = MODES[mode]
    state = saved_at(corpus, data, setup, 4)
    for _ in range(3):
        again = through_file(loaded(corpus, data, setup, state).state_dict())
        assert again == state
        state = again
    assert one_pass(loaded(corpus, data, setup, state), data) == truth(data, 0, setup.workers)[4:]


@every_case
def test_three_kills_in_one_epoch_lose_and_repeat_nothing(mode: str, setup: Setup, corpus: Path) -> None:
    """Loaders that each go on from the last one's state must hand out the epoch once, together."""
    data = MODES[mode]
    found, state = [], None
    for steps in (2, 1, 3):
        loader = make_loader(corpus, data, setup)
        if state is not None:
            loader.load_state_dict(state)
        found += take(iter(loader), steps, data)
        state = through_file(loader.state_dict())
    loader = loaded(corpus, data, setup, state)
    assert found + one_pass(loader, data) == truth(data, 0, setup.workers)
    assert one_pass(loader, data) == truth(data, 1, setup.workers)


@every_setup
def test_the_last_of_two_loads_wins(setup: Setup, corpus: Path) -> None:
    """Of two states that are loaded one after the other, only the second must count."""
    loader = loaded(corpus, BATCH, setup, saved_at(corpus, BATCH, setup, 2))
    loader.load_state_dict(saved_at(corpus, BATCH, setup, 8))
    assert one_pass(loader, BATCH) == truth(BATCH, 0)[8:]


@every_case
def test_a_used_loader_takes_a_state(mode: str, setup: Setup, corpus: Path) -> None:
    """A loader in mid-epoch, and one that has finished an epoch, must go to a loaded place."""
    data = MODES[mode]
    first, second = truth(data, 0, setup.workers), truth(data, 1, setup.workers)
    state = saved_at(corpus, data, setup, 2)
    loader = make_loader(corpus, data, setup)
    take(iter(loader), 5, data)
    loader.load_state_dict(state)
    assert [one_pass(loader, data), one_pass(loader, data)] == [first[2:], second]
    loader.load_state_dict(state)
    assert [one_pass(loader, data), one_pass(loader, data)] == [first[2:], second]


@every_setup
def test_a_run_can_be_rolled_back_twice(setup: Setup, corpus: Path) -> None:
    """A state of epoch 1, loaded after epoch 2 has been served, must give the same rest both times."""
    loader = make_loader(corpus, BATCH, setup)
    one_pass(loader, BATCH)
    iterator = iter(loader)
    take(iterator, 7, BATCH)
    state = through_file(loader.state_dict())
    for _ in iterator:
        pass
    assert one_pass(loader, BATCH) == truth(BATCH, 2)
    for _ in range(2):
        loader.load_state_dict(state)
        assert [one_pass(loader, BATCH), one_pass(loader, BATCH)] == [truth(BATCH, 1)[7:], truth(BATCH, 2)]


@every_case
def test_asking_for_a_state_before_the_first_loop_changes_nothing(
    mode: str, setup: Setup, corpus: Path
) -> None:
    """A state taken before anything was served must stand for the beginning, and cost no batch."""
    data = MODES[mode]
    loader = make_loader(corpus, data, setup)
    state = through_file(loader.state_dict())
    expected = [truth(data, epoch, setup.workers) for epoch in range(2)]
    assert [one_pass(loader, data), one_pass(loader, data)] == expected
    resumed = loaded(corpus, data, setup, state)
    assert [one_pass(resumed, data), one_pass(resumed, data)] == expected


@every_case
def test_a_state_is_nobodys_but_its_owners(mode: str, setup: Setup, corpus: Path) -> None:
    """A saved state must not move with the loader, nor a loaded one with the loader that took it."""
    data = MODES[mode]
    loader = make_loader(corpus, data, setup)
    iterator = iter(loader)
    take(iterator, 1, data)
    saved = loader.state_dict()
    kept = copy.deepcopy(saved)
    take(iterator, 5, data)
    assert saved == kept
    taken = through_file(kept)
    one_pass(loaded(corpus, data, setup, taken), data)
    assert taken == kept


def shape(value: Any) -> Any:
    """Return a state's keys and types; anything but plain JSON types with string keys is refused."""
    if isinstance(value, dict):
        assert type(value) is dict
        assert all(type(key) is str for key in value)
        return {key: shape(part) for key, part in sorted(value.items())}
    assert type(value) in (int, str), value
    return type(value).__name__


@pytest.mark.parametrize("mode", MODES)
def test_a_state_is_small_plain_and_always_of_one_shape(mode: str, corpus: Path) -> None:
    """The pipeline's state must be JSON of at most 1 KB, with the same keys and types at every place."""
    data, shapes = MODES[mode], set()
    dataset = make_dataset(corpus, data)
    for _ in range(3):
        iterator, ended = iter(dataset), False
        while not ended:
            state = iterator.state_dict()
            assert json.loads(json.dumps(state)) == state
            assert len(json.dumps(state)) < 1024
            shapes.add(json.dumps(shape(state)))
            ended = next(iterator, None) is None
        shapes.add(json.dumps(shape(iterator.state_dict())))
    assert len(shapes) == 1


@pytest.mark.parametrize("setup", [Setup(), Setup(3), Setup(3, True)], ids=name_of)
@pytest.mark.parametrize("batch_size", [45, 22, 15])
def test_epochs_of_one_two_or_three_batches(setup: Setup, batch_size: int, corpus: Path) -> None:
    """Epochs shorter than the row of workers must be served in order, and go on after a resume."""
    data = dataclasses.replace(BATCH, batch_size=batch_size)
    for _ in range(2):  # a matter of timing, so more than once
        loader = make_loader(corpus, data, setup)
        assert [one_pass(loader, data), one_pass(loader, data)] == [truth(data, 0), truth(data, 1)]
        resumed = loaded(corpus, data, setup, through_file(loader.state_dict()))
        assert [one_pass(resumed, data), one_pass(resumed, data)] == [truth(data, 2), truth(data, 3)]


@pytest.mark.parametrize(
    ("mode", "batch_size", "persistent"),
    [
        ("batch", 6, False),
        ("batch", 6, True),
        ("sample", 6, True),
        ("reference", 10, True),
        pytest.param("sample", 6, False, marks=pytest.mark.exhaustive),
        pytest.param("reference", 10, False, marks=pytest.mark.exhaustive),
    ],
)
def test_workers_that_end_early_stay_ended(
    mode: str, batch_size: int, persistent: bool, corpus: Path
) -> None:
    """With unlike numbers of batches per worker, no resume may bring an item of another epoch."""
    data, setup = dataclasses.replace(MODES[mode], batch_size=batch_size), Setup(3, persistent)
    expected = truth(data, 0, 3)
    assert len(expected) % 3
    loader = make_loader(corpus, data, setup)
    iterator = iter(loader)
    for count in range(len(expected) + 1):
        resumed = loaded(corpus, data, setup, through_file(loader.state_dict()))
        assert [one_pass(resumed, data), one_pass(resumed, data)] == [expected[count:], truth(data, 1, 3)]
        next(iterator, None)


@pytest.mark.parametrize("setup", [Setup(), Setup(2, False, 1, 1), Setup(2, True, 1, 1)], ids=name_of)
def test_a_batch_whose_reading_failed_is_not_left_out(
    setup: Setup, tmp_path: Path, write_corpus: Any
) -> None:
    """A file that was unreachable for a while may cost an error, but no batch after a resume."""
    data = dataclasses.replace(BATCH, shuffle=False)
    own = write_corpus(tmp_path / "corpus", (60, 165))
    loader = make_loader(own, data, setup)
    shard, aside = own / "chunk_000001.bin", own / "aside"
    shard.rename(aside)
    iterator = iter(loader)
    assert take(iterator, 3, data) == truth(data, 0)[:3]
    with pytest.raises(tdstream.CorpusError, match=r"chunk_000001\.bin cannot be read any more"):
        next(iterator)
    state = through_file(loader.state_dict())
    aside.rename(shard)
    assert one_pass(loaded(own, data, setup, state), data) == truth(data, 0)[3:]
