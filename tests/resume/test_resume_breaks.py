"""A pass that is left early, or never ended, leaves the next one where the rules say."""

from __future__ import annotations

import dataclasses
from pathlib import Path

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
    take,
    through_file,
    wrap,
)
from resume_truth import MODES, truth

every_case = pytest.mark.parametrize(("mode", "setup"), CASES, ids=name_of)
every_setup = pytest.mark.parametrize("setup", CONFIGURATIONS, ids=name_of)
BATCH = MODES["batch"]


@every_case
@pytest.mark.parametrize("late", [False, True])
def test_an_epoch_that_was_left_early_is_begun_again(
    late: bool, mode: str, setup: Setup, corpus: Path
) -> None:
    """After a break, with one batch more left than workers have prefetched, the loop repeats the epoch."""
    data, setup = MODES[mode], dataclasses.replace(setup, prefetch=1 if setup.workers else None)
    expected = [truth(data, epoch, setup.workers) for epoch in range(3)]
    loader = make_loader(corpus, data, setup)
    one_pass(loader, data)
    taken = len(expected[1]) - setup.workers - 1 if late else 1
    assert take(iter(loader), taken, data) == expected[1][:taken]
    assert [one_pass(loader, data), one_pass(loader, data)] == expected[1:]


@every_setup
def test_a_break_after_a_resume_begins_the_resumed_epoch_again(setup: Setup, corpus: Path) -> None:
    """After resume, break and a new loop, the saved epoch must be served from its start."""
    setup = dataclasses.replace(setup, prefetch=1 if setup.workers else None)
    loader = make_loader(corpus, BATCH, setup)
    one_pass(loader, BATCH)
    take(iter(loader), 3, BATCH)
    resumed = loaded(corpus, BATCH, setup, through_file(loader.state_dict()))
    assert take(iter(resumed), 2, BATCH) == truth(BATCH, 1)[3:5]
    assert [one_pass(resumed, BATCH), one_pass(resumed, BATCH)] == [truth(BATCH, 1), truth(BATCH, 2)]


@every_setup
@pytest.mark.parametrize("left", [7, 4, 2, 1])
def test_set_epoch_after_a_break_near_the_end_is_obeyed(setup: Setup, left: int, corpus: Path) -> None:
    """Batches that workers still produce for a pass that was left must not swallow a set_epoch."""
    loader = make_loader(corpus, BATCH, setup)
    take(iter(loader), len(loader) - left, BATCH)
    loader.dataset.set_epoch(4)
    assert [one_pass(loader, BATCH), one_pass(loader, BATCH)] == [truth(BATCH, 4), truth(BATCH, 5)]


@every_setup
def test_a_trainer_that_counts_batches_gets_whole_epochs(setup: Setup, corpus: Path) -> None:
    """Three epochs of len(loader) batches each, StopIteration never pulled, must be epochs 0, 1, 2."""
    loader = make_loader(corpus, BATCH, setup)
    found = [take(iter(loader), len(loader), BATCH) for _ in range(3)]
    assert found == [truth(BATCH, epoch) for epoch in range(3)]


def test_a_dataset_counts_on_in_another_loader(corpus: Path) -> None:
    """One dataset in two loaders, one after the other, must count its epochs on."""
    dataset = make_dataset(corpus, BATCH)
    found = [one_pass(wrap(dataset, BATCH, setup), BATCH) for setup in (Setup(), Setup(2), Setup())]
    assert found == [truth(BATCH, epoch) for epoch in range(3)]
