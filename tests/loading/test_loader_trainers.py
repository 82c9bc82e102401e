"""The ways in which trainers call a loader, played without the trainers."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.distributed.checkpoint as dcp
from loader_cluster import as_bytes, make_loader, through_file
from loader_truth import NUM_SAMPLES, Geometry, Ids, ids_of, rest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream

B = 12
LENGTH = NUM_SAMPLES // B
SETUPS = [Geometry(1, 0, B), Geometry(1, 2, B), Geometry(1, 2, B, True)]
every_setup = pytest.mark.parametrize("setup", SETUPS, ids=str)


def truth(epoch: int) -> list[Ids]:
    """Return an epoch's batches."""
    return rest(B, epoch)


def saved_at(corpus: Path, epoch: int, count: int) -> dict[str, Any]:
    """Return a state."""
    loader = make_loader(corpus, SETUPS[0])
    loader.set_epoch(epoch)
    for _ in itertools.islice(loader, count):
        pass
    return through_file(loader.state_dict())


class Lightning:
    """A fit loop: states are loaded before its single first iter(); it counts to len() and pulls no end.

    Args:
        loader: The loader.
        epoch: The epoch at which it goes on.
        done: Batches of it that are done.
        state: The loader's state, if it is loaded at all.
    """

    def __init__(self, loader: Any, epoch: int = 0, done: int = 0, state: Any = None) -> None:
        self.loader, self.epoch, self.done = loader, epoch, done
        if state is not None:
            loader.load_state_dict(state)
        self.length = len(loader)
        self.iterator: Iterator[Any] | None = iter(loader)

    def fit(self, epochs: int) -> list[list[Ids]]:
        """Run to an epoch's end; return what each epoch had."""
        found = []
        while self.epoch < epochs:
            self.loader.sampler.set_epoch(self.epoch)
            iterator = self.iterator or iter(self.loader)
            self.iterator = None
            found.append([ids_of(next(iterator)) for _ in range(self.done, self.length)])
            self.epoch, self.done = self.epoch + 1, 0
        return found


@every_setup
def test_lightning_runs_whole_epochs(setup: Geometry, counting: Path) -> None:
    """Epochs 0, 1, 2, though no end is ever pulled and the hook comes after the first iter()."""
    assert Lightning(make_loader(counting, setup)).fit(3) == [truth(0), truth(1), truth(2)]


@every_setup
@pytest.mark.parametrize(("epoch", "done"), [(0, 3), (0, 11), (1, 0), (1, 5), (2, LENGTH - 1)])
def test_lightning_goes_on_in_an_epoch(setup: Geometry, epoch: int, done: int, counting: Path) -> None:
    """A checkpoint in mid-epoch must give exactly the rest, and then whole epochs."""
    trainer = Lightning(make_loader(counting, setup), epoch, done, saved_at(counting, epoch, done))
    assert trainer.fit(epoch + 2) == [truth(epoch)[done:], truth(epoch + 1)]


@every_setup
@pytest.mark.parametrize("pulled", [False, True])
def test_lightning_goes_on_behind_the_last_batch(setup: Geometry, pulled: bool, counting: Path) -> None:
    """A checkpoint at the last batch must give the next epoch whole, whichever of the two is named."""
    state = saved_at(counting, 1, LENGTH + pulled)
    assert Lightning(make_loader(counting, setup), 2, 0, state).fit(4) == [truth(2), truth(3)]
    assert Lightning(make_loader(counting, setup), 1, LENGTH, state).fit(4) == [[], truth(2), truth(3)]


@every_setup
@pytest.mark.parametrize("epoch", [1, 2])
def test_lightning_finds_the_epoch_of_a_state_it_never_loads(
    setup: Geometry, epoch: int, counting: Path
) -> None:
    """From an epoch's end it restores its own count only; the hook must be enough."""
    assert Lightning(make_loader(counting, setup), epoch).fit(epoch + 2) == [truth(epoch), truth(epoch + 1)]


def test_the_hook_does_not_keep_the_loader(counting: Path) -> None:
    """A hook that kept the loader alive would keep its workers; without the loader it must do nothing."""
    loader = make_loader(counting, Geometry(1, 2, B))
    sampler = loader.sampler
    before = set(multiprocessing.active_children())
    next(iter(loader))
    del loader
    assert set(multiprocessing.active_children()) <= before
    sampler.set_epoch(3)


def prepared(loader: Any) -> Any:
    """Do what Accelerate does to a loader: leave alone what says that it is prepared, else rebuild it."""
    if getattr(loader, "_is_accelerate_prepared", False):
        return loader
    return DataLoader(loader.dataset)


@every_setup
def test_accelerate_takes_the_loader_as_it_is(setup: Geometry, counting: Path) -> None:
    """prepare() must return it untouched, ask for its state, and start nothing by that."""
    children = set(multiprocessing.active_children())
    loader = make_loader(counting, setup)
    assert loader.use_stateful_dataloader
    assert isinstance(loader, StatefulDataLoader)
    assert prepared(loader) is loader
    before = as_bytes(loader.state_dict())
    assert set(multiprocessing.active_children()) == children
    loader.set_epoch(2)
    assert [ids_of(batch) for batch in loader] == truth(2)
    assert before != as_bytes(loader.state_dict())


@every_setup
def test_accelerate_counts_its_epochs_from_zero_again(setup: Geometry, counting: Path) -> None:
    """After a resume dataset.set_epoch(0) must not overrule the state until its epoch has ended."""
    loader = make_loader(counting, setup)
    loader.state_dict()
    loader.load_state_dict(saved_at(counting, 5, 6))
    loader.dataset.set_epoch(0)
    assert [ids_of(batch) for batch in loader] == truth(5)[6:]
    assert [ids_of(batch) for batch in loader] == truth(6)
    loader.dataset.set_epoch(1)  # the state's epoch has ended: this is the caller's word again
    assert [ids_of(batch) for batch in loader] == truth(1)


@every_setup
def test_accelerate_chooses_epochs_through_the_dataset(setup: Geometry, counting: Path) -> None:
    """Without a state, dataset.set_epoch before each loop must choose its epoch, 0 and repeats too."""
    loader = make_loader(counting, setup)
    for epoch in (0, 1, 5, 5, 2):
        loader.dataset.set_epoch(epoch)
        assert [ids_of(batch) for batch in loader] == truth(epoch)


class HuggingFace:
    """A training loop as transformers' Trainer has it, with ignore_data_skip=True.

    Args:
        loader: The loader; its state has been loaded.
        accumulate: Batches of an optimizer step.
    """

    def __init__(self, loader: Any, accumulate: int) -> None:
        self.loader, self.accumulate = loader, accumulate
        self.saved: dict[int, tuple[Any, list[Ids]]] = {}
        self.found: list[Ids] = []

    def train(self, epochs: int, global_step: int = 0) -> list[Ids]:
        """Run; keep a state and the batches so far at every optimizer step."""
        length = len(self.loader)
        updates = -(-length // self.accumulate)
        for epoch in range(global_step // updates, epochs):
            self.loader.set_epoch(epoch)
            iterator = iter(self.loader)
            remainder = length % self.accumulate or self.accumulate
            for update in range(updates):
                wanted = remainder if update == updates - 1 else self.accumulate
                batches = [*itertools.islice(iterator, wanted)]
                if not batches:
                    break
                self.found += map(ids_of, batches)
                global_step += 1
                self.saved[global_step] = (through_file(self.loader.state_dict()), [*self.found])
        return self.found


@pytest.mark.parametrize("accumulate", [1, 2])
@every_setup
def test_hugging_face_goes_on_at_every_step(setup: Geometry, accumulate: int, counting: Path) -> None:
    """From any of its checkpoints, loaded before train(), the batches of three epochs must be the truth."""
    trainer = HuggingFace(make_loader(counting, SETUPS[0]), accumulate)
    whole = trainer.train(3)
    assert whole == truth(0) + truth(1) + truth(2)
    updates = -(-LENGTH // accumulate)
    steps = (1, updates // 2, updates - 1, updates, updates + 1, 2 * updates, 2 * updates + 5)
    for step in steps if setup.workers == 0 else steps[1::2]:
        state, before = trainer.saved[step]
        loader = make_loader(counting, setup)
        loader.load_state_dict(state)
        assert before + HuggingFace(loader, accumulate).train(3, step) == whole


def test_hugging_face_finds_what_it_needs(counting: Path) -> None:
    """The Trainer asks for __len__, set_epoch, the samples of its dataset and a batch_size attribute."""
    loader = make_loader(counting, SETUPS[0])
    assert (len(loader), len(loader.dataset)) == (LENGTH, loader.dataset.total_samples)
    assert callable(loader.set_epoch)
    assert loader.batch_size is None


@pytest.mark.parametrize("setup", SETUPS[:2], ids=str)
def test_distributed_checkpoint_in_one_process(setup: Geometry, counting: Path, tmp_path: Path) -> None:
    """A state saved by torch.distributed.checkpoint must load into the structure of a fresh loader's."""
    loader = make_loader(counting, setup)
    iterator = iter(loader)
    for _ in range(4):
        next(iterator)
    loader.skip(2)
    saved = through_file(loader.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that there is no process group
        dcp.save({"loader": loader}, checkpoint_id=tmp_path, no_dist=True)
        fresh = make_loader(counting, Geometry(1, 0, 5))
        dcp.load({"loader": fresh}, checkpoint_id=tmp_path, no_dist=True)
    assert (fresh.epoch, fresh.position, fresh.step) == (0, 6 * B, 4)
    assert as_bytes({**saved, "nodes": {}}) == as_bytes({**fresh.state_dict(), "nodes": {}})
    assert [ids_of(batch) for batch in fresh] == rest(5, 0, 6 * B)
    assert os.listdir(tmp_path)


@every_setup
def test_a_profiler_of_epochs_may_call_len_at_any_time(setup: Geometry, counting: Path) -> None:
    """len(), state_dict() and the numbers, asked at every step, must change nothing."""
    loader = make_loader(counting, setup)
    found = []
    for epoch in range(2):
        for batch in loader:
            found.append(ids_of(batch))
            assert len(loader) == LENGTH
            assert loader.epoch == epoch
            loader.state_dict()
    assert found == truth(0) + truth(1)


@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_warns(workers: int, counting: Path) -> None:
    """Building, running, resuming and ending a loader must be free of warnings, set_vital's included."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork.*")
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        loader = make_loader(counting, Geometry(1, workers, B))
        for _ in itertools.islice(loader, 3):
            pass
        resumed = make_loader(counting, Geometry(1, workers, B))
        resumed.load_state_dict(saved_at(counting, 0, 8))
        assert len([*resumed]) == LENGTH - 8
        assert isinstance(next(iter(loader)), tdstream.Batch)
