"""len() tells exactly how many batches come, before, during and after a pass, and torch never warns."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import pytest
from resume_loaders import (
    CONFIGURATIONS,
    Setup,
    loaded,
    make_loader,
    name_of,
    one_pass,
    saved_at,
    through_file,
)
from resume_truth import MODES, truth

BATCH = MODES["batch"]
every_setup = pytest.mark.parametrize("setup", CONFIGURATIONS, ids=name_of)


@pytest.fixture(autouse=True)
def _every_warning_is_an_error() -> Any:
    """Make torch's "Length of IterableDataset" an error in this process, whatever else is allowed."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Length of IterableDataset")
        yield


@every_setup
@pytest.mark.parametrize(("tail", "world"), [("drop", 1), ("wrap", 2)])
def test_len_is_exact_at_every_moment(setup: Setup, tail: str, world: int, corpus: Path) -> None:
    """len(loader) must be the number of batches of a whole epoch, whenever it is asked."""
    data = dataclasses.replace(BATCH, tail=tail, world=world, rank=world - 1)
    loader, batches = make_loader(corpus, data, setup), len(truth(data, 0))
    lengths = [len(loader), len(loader.dataset)]
    before = len(lengths)
    for _ in loader:
        lengths.append(len(loader))
    assert len(lengths) - before == batches
    assert {*lengths, len(loader)} == {batches}


@every_setup
def test_len_stays_that_of_the_whole_epoch_after_a_resume(setup: Setup, corpus: Path) -> None:
    """A resumed loader must give len(loader) less what had been served, and the whole in the next epoch."""
    for count in (0, 5, 10):
        loader = loaded(corpus, BATCH, setup, saved_at(corpus, BATCH, setup, count))
        assert len(loader) == 11
        assert len(one_pass(loader, BATCH)) == len(loader) - count
        assert len(one_pass(loader, BATCH)) == len(loader) == 11


@every_setup
def test_len_may_be_asked_before_saving_or_only_after(setup: Setup, corpus: Path) -> None:
    """The loader remembers in its state that len() was asked; that must not make it warn after a resume."""
    loader = make_loader(corpus, BATCH, setup)
    assert len(loader) == 11
    iterator = iter(loader)
    for _ in range(7):
        next(iterator)
    resumed = loaded(corpus, BATCH, setup, through_file(loader.state_dict()))
    assert [len(one_pass(resumed, BATCH)), len(one_pass(resumed, BATCH))] == [4, 11]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_len_of_a_samples_dataset_is_what_a_rank_yields(world: int, corpus: Path) -> None:
    """Without workers, len() of a dataset of samples must be the number of its samples, on every rank."""
    for rank in range(world):
        data = dataclasses.replace(MODES["sample"], world=world, rank=rank)
        dataset = make_loader(corpus, data, Setup()).dataset
        assert sum(1 for _ in dataset) == len(dataset) == 37 // world
