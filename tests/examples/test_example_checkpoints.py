"""The checkpoints of the examples must survive a kill at any instant."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def checkpoints(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module under test, which lies beside the scripts that import it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("checkpoints")


def names(directory: Path) -> list[str]:
    """Return the files of a directory, sorted."""
    return sorted(path.name for path in directory.iterdir())


def test_the_last_two_are_kept(checkpoints, tmp_path):
    """A rank keeps its last two files and leaves other ranks' files alone."""
    checkpoints.save_checkpoint(tmp_path, 1, 10, {"step": 10})
    for step in (10, 20, 30):
        checkpoints.save_checkpoint(tmp_path, 0, step, {"step": step})

    assert names(tmp_path) == ["step_000010.rank_1.pt", "step_000020.rank_0.pt", "step_000030.rank_0.pt"]


def test_the_newest_step_of_all_ranks_is_chosen(checkpoints, tmp_path):
    """A step that only some ranks have saved is none to start from."""
    assert checkpoints.newest_common_step(tmp_path, 2) is None

    for rank, step in [(0, 10), (1, 10), (0, 20), (1, 20), (0, 30)]:
        checkpoints.save_checkpoint(tmp_path, rank, step, {"step": step})

    assert checkpoints.newest_common_step(tmp_path, 2) == 20
    assert checkpoints.newest_common_step(tmp_path, 3) is None


def test_later_files_go_when_an_older_one_is_loaded(checkpoints, tmp_path):
    """What lies beyond the chosen step is removed, so that it never pairs with another rank's new file."""
    for step in (20, 30):
        checkpoints.save_checkpoint(tmp_path, 0, step, {"step": step})

    assert checkpoints.load_checkpoint(tmp_path, 0, 20) == {"step": 20}
    assert names(tmp_path) == ["step_000020.rank_0.pt"]


def test_a_file_that_was_never_finished_does_not_count(checkpoints, tmp_path, monkeypatch):
    """A kill while a file is being written leaves the name of the step unused."""
    checkpoints.save_checkpoint(tmp_path, 0, 10, {"step": 10})
    monkeypatch.setattr(checkpoints.os, "fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))

    with pytest.raises(KeyboardInterrupt):
        checkpoints.save_checkpoint(tmp_path, 0, 20, {"step": 20})

    assert names(tmp_path) == ["step_000010.rank_0.pt", "step_000020.rank_0.tmp"]
    assert checkpoints.newest_common_step(tmp_path, 1) == 10
