"""Every setting of a StatefulDataLoader, saved at every place, goes on exactly in a new process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from resume_cells import (
    SAVES,
    Cell,
    covering_cells,
    every_cell,
    expected_after,
    pairs_of,
    restore_in_new_process,
    states_along,
)
from resume_loaders import Setup
from resume_truth import MODES

COVER = covering_cells()
# A spawned worker imports torch, which takes seconds, so there are few of these.
OTHER_STARTS = [
    Cell("batch", Setup(2, True, 1, 1, "spawn"), "mid", "once"),
    Cell("sample", Setup(2, True, 5, 4, "forkserver"), "epoch2", "once"),
    Cell("reference", Setup(2, False, 1000, None, "forkserver"), "last", "relay"),
]
CELLS = COVER + OTHER_STARTS


def as_json(passes: list[list[tuple[int, ...]]]) -> list[Any]:
    """Return what JSON makes of batches."""
    return [[list(batch) for batch in one] for one in passes]


@pytest.fixture(scope="module")
def restored(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Cell, Any]:
    """Save each cell here, each in a loader that is then thrown away, and restore all in a new process."""
    jobs = [
        (cell, states_along(corpus, MODES[cell.mode], cell.setup, (cell.save,))[cell.save]) for cell in CELLS
    ]
    results = restore_in_new_process(corpus, jobs, tmp_path_factory.mktemp("cells"), timeout=170)
    return dict(zip(CELLS, results, strict=True))


def test_the_covering_cells_contain_every_pair_of_values() -> None:
    """Whatever two values can meet in the product must meet in a cell that runs."""
    everything = set().union(*map(pairs_of, every_cell()))
    assert set().union(*map(pairs_of, COVER)) == everything
    assert len(COVER) < len(every_cell()) / 20


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_restored_loader_hands_out_exactly_the_rest(cell: Cell, restored: dict[Cell, Any]) -> None:
    """The rest of the saved epoch and the next two must be the truth, in a process with only the state."""
    assert restored[cell] == as_json(expected_after(cell))


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [0, 1, 2, 3])
@pytest.mark.parametrize("mode", MODES)
def test_the_whole_product_is_exact(
    mode: str, workers: int, corpus: Path, tmp_path: Path, record_property: Any
) -> None:
    """Every cell of the product must hand out exactly the rest; the number that ran is recorded."""
    begun = time.monotonic()
    cells = [cell for cell in every_cell() if (cell.mode, cell.setup.workers) == (mode, workers)]
    setups = {cell.setup for cell in cells}
    states = {setup: states_along(corpus, MODES[mode], setup, SAVES) for setup in setups}
    jobs = [(cell, states[cell.setup][cell.save]) for cell in cells]
    results = restore_in_new_process(corpus, jobs, tmp_path, timeout=1500)
    pairs = zip(cells, results, strict=True)
    wrong = [f"{cell}: {found}" for cell, found in pairs if found != as_json(expected_after(cell))]
    record_property("cells", len(cells))
    print(f"\n{mode}, {workers} workers: {len(cells)} cells, {time.monotonic() - begun:.0f} s")
    assert not wrong, "\n".join(wrong[:10])
