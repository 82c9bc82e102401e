"""What accelerate's GradientState knows of a loader that `prepare` took; with stand-ins for its classes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from trainer_job import SEQ_LEN
from trainer_runs import make_directory

import tdstream
from tdstream.loading.accelerate_state import accelerate_device


class GradientState:
    """accelerate's, as far as its loaders use it: a shared list whose last entry is iterated."""

    dataloader_references: list[Any] = []  # noqa: RUF012 - shared by all, as there

    def _add_dataloader(self, loader: Any) -> None:
        self.dataloader_references.append(loader)

    def _remove_dataloader(self, loader: Any) -> None:
        self.dataloader_references[:] = [one for one in self.dataloader_references if one is not loader]

    @property
    def ends(self) -> bool:
        """Whether the batch in hand is the last."""
        return bool(self.dataloader_references) and self.dataloader_references[-1].end_of_dataloader


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[GradientState]:
    """Return the stand-in, where the loader looks for it."""
    module: Any = ModuleType("accelerate.state")
    module.GradientState = GradientState
    module.PartialState = lambda: SimpleNamespace(device=torch.device("cpu"))
    module.PartialState._shared_state = {}
    monkeypatch.setitem(sys.modules, "accelerate.state", module)
    yield GradientState()
    GradientState.dataloader_references.clear()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a corpus of 203 samples."""
    return make_directory(tmp_path_factory.mktemp("accelerate")) / "corpus"


def make(corpus: Path, *, prepared: bool = True, **options: Any) -> tdstream.Loader:
    """Return a loader that accelerate's prepare() has taken."""
    loader = tdstream.loader(corpus, seq_len=SEQ_LEN, **{"batch_size": 8, **options})
    assert not prepared or loader._is_accelerate_prepared  # what prepare() asks
    return loader


@pytest.mark.parametrize("workers", [0, 2])
def test_accumulation_steps_at_the_end_of_an_epoch(corpus: Path, state: GradientState, workers: int) -> None:
    """25 batches in groups of 4 are 7 steps, in each of two epochs, and 25 - 10 are 4 after a resume."""
    loader = make(corpus, num_workers=workers)
    steps, count = [], 0
    for _ in range(2):
        for _batch in loader:
            count = 0 if state.ends else count + 1  # as accelerate's _do_sync
            if state.ends or count % 4 == 0:
                steps.append(loader.step)
        assert state.dataloader_references == []
    assert steps == [4, 8, 12, 16, 20, 24, 25, 29, 33, 37, 41, 45, 49, 50]
    loader.set_epoch(5)
    loader.skip(24)
    assert [state.ends for _ in loader] == [True]


def test_a_loop_that_is_left_is_forgotten(corpus: Path, state: GradientState) -> None:
    """After a break or a load GradientState is empty; an inner loop gives the outer one back."""
    loader, inner = make(corpus), make(corpus)
    for _ in loader:
        for _ in inner:
            assert state.dataloader_references[-1] is inner
            break
        assert state.dataloader_references == [loader]
        break
    assert state.dataloader_references == []
    iterator = iter(loader)
    next(iterator)
    loader.load_state_dict(loader.state_dict())
    assert state.dataloader_references == []


def test_a_loader_that_was_not_prepared_is_not_known(corpus: Path, state: GradientState) -> None:
    """Another loader beside the prepared one says nothing."""
    for _ in make(corpus, prepared=False):
        assert state.dataloader_references == []


@pytest.mark.parametrize(("tail", "remainder"), [("drop", 0), ("wrap", 3), ("keep", 0)])
def test_the_remainder_is_what_others_fill(
    corpus: Path, state: GradientState, tail: str, remainder: int
) -> None:
    """203 samples in batches of 8 leave 3; gather_for_metrics drops the repeated ones of "wrap"."""
    loader = make(corpus, tail=tail)
    *_, last = loader
    assert loader.end_of_dataloader
    assert loader.remainder == remainder
    assert loader.last_samples == 3
    assert len(last["input_ids"]) == (3 if tail == "keep" else 8)


def test_batches_go_to_accelerates_device(state: GradientState, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CUDA device is taken over, the CPU needs nothing."""
    assert accelerate_device() is None
    module: Any = sys.modules["accelerate.state"]
    monkeypatch.setattr(module, "PartialState", lambda: SimpleNamespace(device=torch.device("cuda", 1)))
    assert accelerate_device() == torch.device("cuda", 1)
