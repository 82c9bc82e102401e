"""A copy of the golden files to work in; the files themselves are watched."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden_folder import HERE, copy_of, state_of_files

_BEFORE = state_of_files(HERE)


@pytest.fixture(scope="session")
def golden_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory with a copy of each golden folder, all of whose files have the same time."""
    directory = tmp_path_factory.mktemp("golden")
    for folder in sorted(HERE.glob("v*")):
        copy_of(folder, directory / folder.name)
    return directory


@pytest.fixture(autouse=True)
def quiet(golden_copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's cache and the network out of it, and come back from other working directories."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(golden_copy / "xdg"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.chdir(os.getcwd())
        yield


@pytest.fixture(scope="session", autouse=True)
def untouched() -> Iterator[None]:
    """Fail if a test has changed, added or removed a golden file."""
    gc.freeze()
    yield
    assert state_of_files(HERE) == _BEFORE, "golden files were changed by the tests"
