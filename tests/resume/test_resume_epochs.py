"""set_epoch reaches every worker that serves the next pass, and a loaded state wins until its epoch ends."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest
from resume_loaders import (
    CASES,
    Setup,
    loaded,
    make_dataset,
    make_loader,
    name_of,
    one_pass,
    take,
    through_file,
    wrap,
)
from resume_truth import MODES, ids_of, truth

import tdstream

BATCH = MODES["batch"]
METHODS = ("fork", "spawn", "forkserver")
every_case = pytest.mark.parametrize(("mode", "setup"), CASES, ids=name_of)


def pids_of(loader: Any) -> list[int]:
    """Return the process ids of a loader's workers."""
    return [worker.pid for worker in loader._iterator._workers]


@every_case
def test_set_epoch_chooses_the_next_pass(mode: str, setup: Setup, corpus: Path) -> None:
    """Epochs 0, 5 and 9, asked for by set_epoch, must be served, and the one after 9 is 10."""
    data, dataset = MODES[mode], make_dataset(corpus, MODES[mode])
    loader, found = wrap(dataset, data, setup), []
    for epoch in (0, 5, 9):
        dataset.set_epoch(epoch)
        found.append(one_pass(loader, data))
    found.append(one_pass(loader, data))
    assert found == [truth(data, epoch, setup.workers) for epoch in (0, 5, 9, 10)]


@pytest.mark.parametrize("method", METHODS)
def test_set_epoch_reaches_workers_that_live_on(method: str, corpus: Path) -> None:
    """Persistent workers must serve the epochs asked for without having been started again, as Batch."""
    dataset = make_dataset(corpus, BATCH)
    loader, found, pids = wrap(dataset, BATCH, Setup(2, True, method=method)), [], []
    for epoch in (0, 5, 9):
        dataset.set_epoch(epoch)
        batches = list(loader)
        found.append([ids_of(batch, BATCH) for batch in batches])
        pids.append(pids_of(loader))
        assert {(type(batch), batch["labels"].shape) for batch in batches} == {(tdstream.Batch, (4, 4))}
    assert found == [truth(BATCH, epoch) for epoch in (0, 5, 9)]
    assert pids[0] == pids[1] == pids[2]


def test_workers_that_do_not_live_on_are_others_in_each_epoch(corpus: Path) -> None:
    """Without persistent workers each pass must have processes of its own; else the test above is idle."""
    loader, pids = make_loader(corpus, BATCH, Setup(2)), []
    for _ in range(2):
        one_pass(loader, BATCH)
        pids += pids_of(loader)
    assert len(set(pids)) == 4


def state_in_epoch_5(corpus: Path, mode: str, setup: Setup) -> dict[str, Any]:
    """Return a state after 2 batches of epoch 5."""
    dataset = make_dataset(corpus, MODES[mode])
    dataset.set_epoch(5)
    loader = wrap(dataset, MODES[mode], setup)
    take(iter(loader), 2, MODES[mode])
    return through_file(loader.state_dict())


@every_case
@pytest.mark.parametrize("asked", [0, 5])
def test_a_loaded_state_wins_until_its_epoch_ends(mode: str, setup: Setup, asked: int, corpus: Path) -> None:
    """A set_epoch before the first pass after a load, of whatever epoch, must not move the position."""
    data = MODES[mode]
    loader = loaded(corpus, data, setup, state_in_epoch_5(corpus, mode, setup))
    loader.dataset.set_epoch(asked)
    found = [one_pass(loader, data), one_pass(loader, data)]
    assert found == [truth(data, 5, setup.workers)[2:], truth(data, 6, setup.workers)]


@every_case
def test_set_epoch_after_the_resumed_epoch_is_obeyed(mode: str, setup: Setup, corpus: Path) -> None:
    """Once the resumed epoch has ended, set_epoch must choose again."""
    data = MODES[mode]
    loader = loaded(corpus, data, setup, state_in_epoch_5(corpus, mode, setup))
    loader.dataset.set_epoch(5)
    found = [one_pass(loader, data)]
    loader.dataset.set_epoch(9)
    found += [one_pass(loader, data), one_pass(loader, data)]
    expected = [truth(data, epoch, setup.workers) for epoch in (5, 9, 10)]
    assert found == [expected[0][2:], *expected[1:]]


@every_case
def test_the_main_process_learns_the_epoch_of_a_state(mode: str, setup: Setup, corpus: Path) -> None:
    """After a load and one batch the dataset must say which epoch runs, and after its end the next one."""
    data, setup = MODES[mode], dataclasses.replace(setup, prefetch=1 if setup.workers else None)
    loader = loaded(corpus, data, setup, state_in_epoch_5(corpus, mode, setup))
    iterator = iter(loader)
    next(iterator)
    assert loader.dataset.epoch == 5
    for _ in iterator:
        pass
    assert loader.dataset.epoch == 6


def copied(dataset: Any) -> Any:
    """Return a copy by pickle, as a framework makes that keeps a dataset's description."""
    return pickle.loads(pickle.dumps(dataset))  # the test's own object


@pytest.mark.parametrize("copy_of", [copy.deepcopy, copied])
def test_a_copy_counts_for_itself(copy_of: Any, corpus: Path) -> None:
    """A copied dataset must reach its own persistent workers, and leave the original's epoch alone."""
    original = make_dataset(corpus, BATCH)
    original.set_epoch(2)
    dataset = copy_of(original)
    loader = wrap(dataset, BATCH, Setup(2, True))
    found = [one_pass(loader, BATCH)]
    for epoch in (0, 5):
        dataset.set_epoch(epoch)
        found.append(one_pass(loader, BATCH))
    assert found == [truth(BATCH, epoch) for epoch in (2, 0, 5)]
    assert original.epoch == 2
    assert one_pass(wrap(original, BATCH, Setup()), BATCH) == truth(BATCH, 2)


@pytest.mark.parametrize("epoch", [-1, 1.0, "1", True, None])
def test_an_epoch_is_a_number_of_passes(epoch: Any, corpus: Path) -> None:
    """What is no integer of at least 0 must be refused, and leave the epoch as it was."""
    dataset = make_dataset(corpus, dataclasses.replace(BATCH, shuffle=False))
    dataset.set_epoch(3)
    with pytest.raises(ValueError, match="epoch must be an integer of at least 0, got"):
        dataset.set_epoch(epoch)
    assert dataset.epoch == 3
