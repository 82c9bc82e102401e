"""Ranks share an epoch out without overlap, all with the same number of batches."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from resume_loaders import Setup, loaded, make_dataset, make_loader, one_pass, saved_at, wrap
from resume_truth import MODES, Data, Ids, epoch_order, flat, truth
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from tdstream.schedule.order import make_order

BATCH = MODES["batch"]
WORLDS = (1, 2, 3)
WORKERS = (0, 1, 2, 3)


def of_all_ranks(
    corpus: Path, data: Data, workers: int, epochs: int = 2, **options: object
) -> list[list[Ids]]:
    """Return each rank's batches of the last of some epochs, in one list per rank."""
    ranks = []
    for rank in range(data.world):
        loader = make_loader(
            corpus, dataclasses.replace(data, rank=rank), Setup(workers, workers > 0), **options
        )
        ranks.append([one_pass(loader, data) for _ in range(epochs)][-1])
    return ranks


def expected_of(data: Data, epoch: int, workers: int) -> list[list[Ids]]:
    """Return what each rank must hand out."""
    return [truth(dataclasses.replace(data, rank=rank), epoch, workers) for rank in range(data.world)]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("tail", ["drop", "wrap"])
def test_batches_are_dealt_out_once(world: int, workers: int, tail: str, corpus: Path) -> None:
    """Ranks must have equally many batches; together they are the epoch, less or plus its last batch."""
    data = dataclasses.replace(BATCH, world=world, tail=tail)
    ranks = of_all_ranks(corpus, data, workers)
    assert ranks == expected_of(data, 1, workers)
    size, samples = world * data.batch_size, flat(flat(ranks))
    assert len({len(batches) for batches in ranks}) == 1
    if tail == "drop":
        assert len(samples) == len(set(samples)) == 45 // size * size
    else:
        assert set(samples) == set(range(45))
        assert len(samples) == -(-45 // size) * size


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("order", ["numpy", "feistel"])
def test_a_global_batch_depends_on_its_size_alone(workers: int, order: str, corpus: Path) -> None:
    """One rank of 6, two of 3 and three of 2 must build the same global batches, for any workers."""
    steps = []
    for world in WORLDS:
        data = dataclasses.replace(BATCH, world=world, batch_size=6 // world)
        ranks = of_all_ranks(corpus, data, workers, epochs=1, order=order)
        steps.append([tuple(flat(parts)) for parts in zip(*ranks, strict=True)])
    assert steps[0] == steps[1] == steps[2]
    whole = truth(dataclasses.replace(BATCH, batch_size=6), 0) if order == "numpy" else feistel(0, 6)
    assert steps[0] == whole


def feistel(epoch: int, batch_size: int) -> list[Ids]:
    """Return batches of the order without memory: every position asked for at once, and a bijection."""
    order = make_order("feistel", num_samples=45, seed=42, epoch=epoch)
    indices = [int(index) for index in order(np.arange(45, dtype=np.int64))]
    assert sorted(indices) == list(range(45))
    return [tuple(indices[i : i + batch_size]) for i in range(0, 45 - batch_size + 1, batch_size)]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_order_without_memory_resumes_and_differs_from_epoch_to_epoch(workers: int, corpus: Path) -> None:
    """The default order must be a new one in each epoch, the same in every process, and resume exactly."""
    setup = Setup(workers)
    loader = make_loader(corpus, BATCH, setup, order="feistel")
    expected = [feistel(epoch, 4) for epoch in range(3)]
    assert [one_pass(loader, BATCH) for _ in range(2)] == expected[:2]
    assert len({tuple(epoch) for epoch in expected}) == 3
    iterator = iter(loader)
    next(iterator)
    resumed = make_loader(corpus, BATCH, setup, order="feistel")
    resumed.load_state_dict(loader.state_dict())
    assert one_pass(resumed, BATCH) == expected[2][1:]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("mode", ["sample", "reference"])
def test_samples_are_dealt_out_once(mode: str, world: int, workers: int, corpus: Path) -> None:
    """Streams must follow the rule; only between ranks, and only in sample mode, a last round is dropped."""
    data = dataclasses.replace(MODES[mode], world=world)
    ranks = of_all_ranks(corpus, data, workers)
    assert ranks == expected_of(data, 1, workers)
    samples = flat(flat(ranks))
    left = epoch_order(data, 1)[data.skip :]
    assert len(samples) == len(set(samples))
    if mode == "reference" or world == 1:
        assert sorted(samples) == sorted(left)
    else:
        streams = world * max(workers, 1)
        assert len({len(batches) for batches in ranks}) == 1
        assert sorted(samples) == sorted(left[: len(left) // streams * streams])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("workers", [0, 2])
def test_each_rank_resumes_its_own_part(mode: str, workers: int, corpus: Path) -> None:
    """With three ranks, every rank must go on from its state with the rest of its own batches."""
    data = dataclasses.replace(MODES[mode], world=3)
    for rank, expected in enumerate(expected_of(data, 0, workers)):
        own, setup = dataclasses.replace(data, rank=rank), Setup(workers)
        resumed = loaded(corpus, own, setup, saved_at(corpus, own, setup, 2))
        assert one_pass(resumed, own) == expected[2:]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("skip", [0, 1, 7])
def test_the_reference_rule_is_reproduced(skip: int, world: int, shuffle: bool, corpus: Path) -> None:
    """Every rank and worker must be given the samples that the reference loader would give it."""
    # Each number of workers meets each of the skips, worlds and orders, not every three of them.
    for workers in (0, 1 + (skip + world + shuffle) % 3):
        for rank in range(world):
            data = Data("reference", 5, 3, skip, shuffle, rank=rank, world=world)
            dataset = make_dataset(corpus, data)
            assert (len(dataset), dataset.total_samples) == (37, 37)
            # Over all cases, every rank and every number of workers meets both loaders.
            kind = (DataLoader, StatefulDataLoader)[(rank + workers + skip) % 2]
            # Workers that live on are as many as others, and are started once for three epochs.
            loader = wrap(dataset, data, Setup(workers, workers > 0), kind)
            found = [one_pass(loader, data) for _ in range(3)]
            assert found == [reference(data, epoch, workers) for epoch in range(3)]


def reference(data: Data, epoch: int, workers: int) -> list[Ids]:
    """Return the reference loader's batches, by its two rules: one for shuffled, one for unshuffled."""
    per_rank, total = max(workers, 1), 37
    streams = data.world * per_rank
    cut = []
    for stream in range(data.rank * per_rank, (data.rank + 1) * per_rank):
        if data.shuffle:
            order = np.random.default_rng(data.seed + epoch * 1000003).permutation(total)[data.skip :]
            ids = order[stream::streams].tolist()
        else:
            ids = list(range(data.skip + stream, total, streams))
        cut.append([tuple(ids[i : i + data.batch_size]) for i in range(0, len(ids), data.batch_size)])
    return [batches[turn] for turn in range(len(cut[0])) for batches in cut if turn < len(batches)]
