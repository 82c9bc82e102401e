"""A directory that is there when it is complete: files are made in a hidden one beside it, which is renamed.

Beside OUT, an export has ``.OUT.exporting/`` with a lock, plan.json, and files/, which becomes OUT. A killed
export leaves it. The next one keeps the complete files if its plan is the same, and removes the others.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from tdstream.core.errors import OutputError
from tdstream.corpus.meta import fsync_directory
from tdstream.distributed.file_lock import Lock, marker_names, remove_lock_files
from tdstream.writing.locks import LOCK_FILE, take_lock

_PLAN, _FILES = "plan.json", "files"
_OURS = re.compile(rf"{LOCK_FILE}|{marker_names(LOCK_FILE)}|{_FILES}|plan\.json(\.tmp)?")


def check_free(output: Path) -> None:
    """Refuse a directory that holds anything, or that cannot be made."""
    if output.is_dir():
        held = sorted(path.name for path in output.iterdir())
        if held:
            more = f" and {len(held) - 3:,} more" * (len(held) > 3)
            raise OutputError(
                f"{output} is not empty (it holds {', '.join(held[:3])}{more}). Choose another output path; "
                f"nothing was changed."
            )
    elif os.path.lexists(output):
        raise OutputError(f"{output} is a file, not a directory. Choose another output path.")
    parent = next(path for path in output.parents if os.path.lexists(path))
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        why = "is not writable" if parent.is_dir() else "is a file"
        raise OutputError(f"{output} cannot be created: {parent} {why}. Choose another output path.")


class OutDirectory:
    """The hidden directory of one export, locked."""

    def __init__(self, output: Path, plan: dict[str, Any]) -> None:
        """Claim it, for a plan in JSON types: everything that decides the files."""
        check_free(output)
        self.output = output
        self.place = output.with_name(f".{output.name}.exporting")
        self.files = self.place / _FILES
        """Where the files are made."""
        output.parent.mkdir(parents=True, exist_ok=True)
        self._check_ours()
        self._lock: Lock | None = take_lock(self.place, output)
        try:
            check_free(output)  # another export may just have ended
            self._keep(plan)
        except BaseException:
            self.discard()
            raise

    def _check_ours(self) -> None:
        if os.path.lexists(self.place) and (self.place.is_symlink() or not self.place.is_dir()):
            raise OutputError(f"{self.place} is no directory that an export made. Move it away.")
        foreign = sorted(path.name for path in self.place.iterdir()) if self.place.is_dir() else []
        foreign = [name for name in foreign if not _OURS.fullmatch(name)]
        if foreign:
            raise OutputError(f"{self.place} holds files that no export made: {foreign[0]}. Move them away.")

    def _keep(self, plan: dict[str, Any]) -> None:
        """Keep the complete files of an earlier run with the same plan."""
        path, content = self.place / _PLAN, json.dumps(plan, sort_keys=True)
        try:
            same = path.read_text(encoding="utf-8") == content
        except (OSError, UnicodeDecodeError):
            same = False
        if not same:
            path.unlink(missing_ok=True)
            if self.files.exists():
                shutil.rmtree(self.files)
            temporary = path.with_name(f"{_PLAN}.tmp")
            temporary.write_text(content, encoding="utf-8")
            os.replace(temporary, path)
        self.files.mkdir(exist_ok=True)
        for leftover in self.files.glob("*.tmp"):
            leftover.unlink()

    def publish(self) -> None:
        """Give the directory its name."""
        fsync_directory(self.files)
        try:
            os.rename(self.files, self.output)  # replaces an empty directory, and nothing else
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                check_free(self.output)
            raise
        fsync_directory(self.output.parent)
        self.discard()

    def discard(self) -> None:
        """Remove the hidden directory and release the lock."""
        if self._lock is None:
            return
        with suppress(OSError):
            if self.files.exists():
                shutil.rmtree(self.files)
            (self.place / _PLAN).unlink(missing_ok=True)
            (self.place / f"{_PLAN}.tmp").unlink(missing_ok=True)
            remove_lock_files(self.place / LOCK_FILE)
            self.place.rmdir()
        self.release()

    def release(self) -> None:
        """Release the lock, and leave the complete files to the next run."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
