"""Checkpoints that survive a kill at any instant: each file is complete or does not exist.

If each rank writes its own file, a kill may leave some ranks with the file of a step and others without.
Each rank therefore keeps its last two files, and a restart takes the newest step that *all* ranks have.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

_KEPT = 2


def save_checkpoint(directory: Path, rank: int, step: int, content: dict[str, Any]) -> None:
    """Write a rank's file of a step to the shared directory, and keep only its last two files."""
    save_atomically(_path(directory, rank, step), content)
    for old in sorted(_steps(directory, rank))[:-_KEPT]:
        _path(directory, rank, old).unlink()


def save_atomically(path: Path, content: dict[str, Any]) -> None:
    """Write or replace a file; a kill leaves the old one or the new one, never a part."""
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())  # before the rename: no name without its bytes
    unfinished.replace(path)


def newest_common_step(directory: Path, world_size: int) -> int | None:
    """Return the newest step of which every rank has a file; None if there is none."""
    common = set.intersection(*(_steps(directory, rank) for rank in range(world_size)))
    return max(common, default=None)


def load_checkpoint(directory: Path, rank: int, step: int) -> dict[str, Any]:
    """Return what a rank saved at a step, and remove its files of later steps, which it will write again.

    All ranks must have chosen the step before the first one calls this.
    """
    for later in _steps(directory, rank):
        if later > step:
            _path(directory, rank, later).unlink()
    content: dict[str, Any] = torch.load(_path(directory, rank, step), weights_only=True)
    return content


def _path(directory: Path, rank: int, step: int) -> Path:
    return directory / f"step_{step:06d}.rank_{rank}.pt"


def _steps(directory: Path, rank: int) -> set[int]:
    return {
        int(path.name.split(".")[0].removeprefix("step_")) for path in directory.glob(f"*.rank_{rank}.pt")
    }
