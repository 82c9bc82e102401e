"""The matrix of resumes: its cells, a few that cover it, and a script that restores them elsewhere."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from resume_loaders import HERE, Setup, child_env, make_loader, one_pass, strict_warnings, through_file
from resume_truth import MODES, Data, Ids, ids_of, truth

SAVES = ("before_iter", "0", "1", "mid", "last-1", "last", "end", "epoch2")
WAYS = ("once", "twice", "relay")


@dataclass(frozen=True)
class Cell:
    """One resume: of what, with which loader, saved where and how."""

    mode: str
    setup: Setup
    save: str
    way: str

    def __str__(self) -> str:
        setup = self.setup
        shape = f"w{setup.workers}{'p' * setup.persistent}-s{setup.snapshot}-f{setup.prefetch or 0}"
        method = f"-{setup.method}" if setup.method else ""
        return f"{self.mode}-{shape}{method}-{self.save}-{self.way}"


def place_of(save: str, length: int) -> tuple[int, int]:
    """Return the epoch and the number of batches after which a save happens."""
    counts = {"0": 0, "1": 1, "mid": length // 2, "last-1": length - 1, "last": length, "epoch2": length // 2}
    return (2 if save == "epoch2" else 0), counts[save]


def states_along(corpus: Path | str, data: Data, setup: Setup, saves: tuple[str, ...]) -> dict[str, Any]:
    """Run a loader through the places and return their states; what it hands out must be the truth."""
    loader = make_loader(corpus, data, setup)
    states = {"before_iter": through_file(loader.state_dict())} if "before_iter" in saves else {}
    for epoch in range(3 if "epoch2" in saves else 1):
        expected = truth(data, epoch, setup.workers)
        wanted = {
            place_of(save, len(expected))[1]: save
            for save in saves
            if save not in ("before_iter", "end") and place_of(save, len(expected))[0] == epoch
        }
        iterator = iter(loader)
        for count in range(len(expected) + 1):
            if count in wanted:
                first, second = loader.state_dict(), loader.state_dict()
                assert first == second
                states[wanted[count]] = through_file(second)
            if count < len(expected):
                assert ids_of(next(iterator), data) == expected[count]
            elif set(saves) & {"end", "epoch2"}:
                assert next(iterator, None) is None
        if epoch == 0 and "end" in saves:
            states["end"] = through_file(loader.state_dict())
    return states


def expected_after(cell: Cell) -> list[list[Ids]]:
    """Return the three passes that a restored cell must give."""
    data, workers = MODES[cell.mode], cell.setup.workers
    if cell.save in ("before_iter", "end"):
        first = int(cell.save == "end")
        return [truth(data, epoch, workers) for epoch in range(first, first + 3)]
    epoch, count = place_of(cell.save, len(truth(data, 0, workers)))
    rest = truth(data, epoch, workers)[count:]
    return [rest, truth(data, epoch + 1, workers), truth(data, epoch + 2, workers)]


def restore(corpus: Path | str, cell: Cell, state: dict[str, Any]) -> list[list[Ids]]:
    """Return three passes of a fresh loader that has loaded a state, perhaps handed on by another."""
    data = MODES[cell.mode]
    if cell.way == "relay":
        between = make_loader(corpus, data, cell.setup)
        between.load_state_dict(state)
        state = through_file(between.state_dict())
    loader = make_loader(corpus, data, cell.setup)
    loader.load_state_dict(state)
    if cell.way == "twice":
        assert loader.state_dict() == loader.state_dict()
    return [one_pass(loader, data) for _ in range(3)]


def restore_in_new_process(
    corpus: Path, cells: list[tuple[Cell, dict[str, Any]]], scratch: Path, timeout: float
) -> list[Any]:
    """Restore cells in one new Python process; each result is the passes, or the text of an error."""
    jobs, results = scratch / "jobs.pt", scratch / "results.jsonl"
    content = [({**asdict(cell)}, state) for cell, state in cells]
    torch.save({"corpus": str(corpus), "cells": content}, jobs)
    command = [sys.executable, str(HERE / "resume_cells.py"), str(jobs), str(results)]
    done = subprocess.run(
        command, timeout=timeout, check=False, capture_output=True, text=True, env=child_env()
    )
    lines = results.read_text().splitlines() if results.exists() else []
    found = [json.loads(line) for line in lines]
    missing = f"the new process ended with {done.returncode} before this cell: {done.stderr[-2000:]}"
    return found + [missing] * (len(cells) - len(found))


def every_cell() -> list[Cell]:
    """Return the whole product."""
    setups = [Setup(snapshot=snapshot) for snapshot in (1, 5, 1000)]
    several = itertools.product((1, 2, 3), (False, True), (1, 5, 1000), (1, 4))
    setups += [Setup(*values) for values in several]
    return [Cell(*values) for values in itertools.product(MODES, setups, SAVES, WAYS)]


def pairs_of(cell: Cell) -> set[tuple[Any, ...]]:
    """Return every two of a cell's values."""
    values = {"mode": cell.mode, "save": cell.save, "way": cell.way, **asdict(cell.setup)}
    return set(itertools.combinations(values.items(), 2))


def covering_cells() -> list[Cell]:
    """Return few cells in which every two values that can meet do meet, chosen greedily."""
    cells, choice = every_cell(), random.Random(0)
    pairs = {cell: pairs_of(cell) for cell in cells}
    left = set().union(*pairs.values())
    chosen = []
    while left:
        pair = min(left, key=repr)
        candidates = [cell for cell in cells if pair in pairs[cell]]
        best = max(choice.sample(candidates, min(60, len(candidates))), key=lambda c: len(pairs[c] & left))
        chosen.append(best)
        left -= pairs[best]
    return chosen


def main(jobs: str, results: str) -> None:
    """Restore what a jobs file lists; one line of JSON per cell."""
    strict_warnings()
    content = torch.load(jobs, weights_only=True)
    with Path(results).open("w") as out:
        for fields, state in content["cells"]:
            cell = Cell(**{**fields, "setup": Setup(**fields["setup"])})
            try:
                found: Any = restore(content["corpus"], cell, state)
            except Exception as error:  # reported by the parent, cell by cell
                found = f"{type(error).__name__}: {error}"
            out.write(json.dumps(found) + "\n")
            out.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
