"""Let a preparation die at any of its changes of the file system, and compare what it leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tdstream.distributed.file_lock import Lock
from tdstream.writing import merge, staging
from tdstream.writing.locks import take_lock


class Killed(BaseException):
    """The process has died."""


@contextmanager
def killed_at(call: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Let the process die at its n-th change of the file system: from there on nothing changes any more.

    A death in the middle of a write leaves half of it.
    """
    done: list[str] = []
    locks: list[Lock] = []
    real_write = os.write

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def change(*arguments: Any, **named: Any) -> Any:
            if len(done) >= call:
                if real is real_write and len(done) == call:
                    done.append("half")
                    real_write(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                raise Killed
            done.append(real.__name__)
            return real(*arguments, **named)

        return change

    def remembered(*arguments: Any, **named: Any) -> Lock:
        locks.append(take_lock(*arguments, **named))
        return locks[-1]

    with monkeypatch.context() as patch:
        for owner, name in ((os, "replace"), (os, "fsync"), (os, "truncate"), (os, "write")):
            patch.setattr(owner, name, dying(getattr(owner, name)))
        for name in ("unlink", "rmdir"):
            patch.setattr(Path, name, dying(getattr(Path, name)))
        patch.setattr(staging, "take_lock", remembered)
        patch.setattr(merge, "take_lock", remembered)
        yield done
    for lock in locks:
        lock.close()


def files_of(directory: Path) -> dict[str, Any]:
    """Return every file under a directory; of each meta.json all but the time of its creation."""
    found: dict[str, Any] = {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }
    for name in [name for name in found if name.endswith("meta.json")]:
        found[name] = json.loads(found[name])
        del found[name]["created_at_unix"]
    return found
