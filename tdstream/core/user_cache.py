"""Keep small results in the user's cache: a JSON file is there as a whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def user_cache(room: str) -> Path:
    """Return a directory in the user's cache: `$XDG_CACHE_HOME/tdstream/room`, else below `~/.cache`.

    Raises:
        RuntimeError: If there is neither that variable nor a home.
    """
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "tdstream" / room


def read_json(path: Path) -> Any:
    """Return what a file holds.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is no JSON.
    """
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, content: Any) -> None:
    """Write a file, or replace it; readers see the old one or the new one.

    Raises:
        OSError: If it cannot be written.
    """
    text = json.dumps(content)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
