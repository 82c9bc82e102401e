"""Small JSON files in the user's cache, written atomically."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any


def user_cache(name: str) -> Path:
    """Return `$XDG_CACHE_HOME/tdstream/name`, by default in `~/.cache`; RuntimeError without a home."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root).absolute() if root else Path.home() / ".cache") / "tdstream" / name


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; raise OSError or ValueError if it cannot be read."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, content: Any) -> None:
    """Write or replace a JSON file; readers see the old content or the new."""
    text = json.dumps(content)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("x", encoding="utf-8") as file:  # not mkstemp, which does not follow the umask
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
