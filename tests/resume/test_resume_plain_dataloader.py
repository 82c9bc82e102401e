"""Under torch's own DataLoader everything but the state works as well."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from resume_loaders import CASES, Setup, make_dataset, name_of, one_pass, wrap
from resume_truth import MODES, truth
from torch.utils.data import DataLoader

BATCH = MODES["batch"]
every_case = pytest.mark.parametrize(("mode", "setup"), CASES, ids=name_of)


@every_case
def test_a_plain_loader_serves_epoch_after_epoch(mode: str, setup: Setup, corpus: Path) -> None:
    """Three loops must be epochs 0, 1 and 2 in the order of the rule."""
    data = MODES[mode]
    loader = wrap(make_dataset(corpus, data), data, setup, DataLoader)
    assert [one_pass(loader, data) for _ in range(3)] == [truth(data, e, setup.workers) for e in range(3)]


@every_case
def test_a_plain_loader_follows_set_epoch(mode: str, setup: Setup, corpus: Path) -> None:
    """Epochs that set_epoch asks for must be served, in workers that live on, too; then they count on."""
    data, dataset = MODES[mode], make_dataset(corpus, MODES[mode])
    loader, found = wrap(dataset, data, setup, DataLoader), []
    for epoch in (3, 0, 9):
        dataset.set_epoch(epoch)
        found.append(one_pass(loader, data))
    found.append(one_pass(loader, data))
    assert found == [truth(data, epoch, setup.workers) for epoch in (3, 0, 9, 10)]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("batch_size", [45, 22, 15])
def test_no_worker_of_a_tiny_epoch_is_taken_for_the_next(
    persistent: bool, batch_size: int, corpus: Path
) -> None:
    """A worker that starts when a sibling has already ended the epoch must still serve that epoch."""
    data = dataclasses.replace(BATCH, batch_size=batch_size)
    for _ in range(3):
        loader = wrap(make_dataset(corpus, data), data, Setup(3, persistent), DataLoader)
        assert [one_pass(loader, data) for _ in range(3)] == [truth(data, epoch) for epoch in range(3)]


@pytest.mark.parametrize("setup", [Setup(), Setup(3), Setup(3, True)], ids=name_of)
def test_seeding_torch_before_each_epoch_changes_nothing(setup: Setup, corpus: Path) -> None:
    """The order must not depend on torch's generator, which many trainers seed anew in each epoch."""
    data = dataclasses.replace(BATCH, batch_size=15)
    loader, found = wrap(make_dataset(corpus, data), data, setup, DataLoader), []
    for _ in range(4):
        torch.manual_seed(0)
        found.append(one_pass(loader, data))
    assert found == [truth(data, epoch) for epoch in range(4)]


@pytest.mark.parametrize("setup", [Setup(), Setup(2), Setup(2, True)], ids=name_of)
def test_a_plain_loader_begins_an_epoch_again_after_a_break(setup: Setup, corpus: Path) -> None:
    """An epoch that was left early, with more left than was prefetched, must be served from its start."""
    setup = dataclasses.replace(setup, prefetch=1 if setup.workers else None)
    loader = wrap(make_dataset(corpus, BATCH), BATCH, setup, DataLoader)
    next(iter(loader))
    assert [one_pass(loader, BATCH), one_pass(loader, BATCH)] == [truth(BATCH, 0), truth(BATCH, 1)]
