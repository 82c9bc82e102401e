"""A golden folder: where it lies, and how a copy of it is made."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TIME = 1_700_000_000
"""Seconds: when each file of a copy was changed last. Some of tdstream's files are named after such times."""


def read_json(path: Path) -> Any:
    """Return what a golden JSON file says; states are compressed."""
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)


def set_times(directory: Path) -> None:
    """Give every file below a directory the same time of change."""
    for path in directory.rglob("*"):
        os.utime(path, (TIME, TIME))


def copy_of(folder: Path, target: Path) -> Path:
    """Copy a golden folder, or a part of it; golden files themselves are never worked on."""
    shutil.copytree(folder, target)
    set_times(target)
    return target


def state_of_files(directory: Path) -> dict[str, tuple[int, int, int]]:
    """Return inode, size and time of change of each file below a directory.

    Python's own caches are left out, and of programs, which somebody may be editing, only names are told.
    """
    paths = [path for path in directory.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    status = {path.relative_to(directory).as_posix(): path.stat() for path in paths}
    return {
        name: (0, 0, 0) if name.endswith(".py") else (found.st_ino, found.st_size, found.st_mtime_ns)
        for name, found in status.items()
    }
