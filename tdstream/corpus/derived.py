"""Files that are made from a corpus: where they lie, and how one process at a time makes them.

They lie beside the corpus, in `.tdstream`; where that cannot be written, in the user's cache, in a directory
of the corpus's own. They may be deleted while nobody trains, and are made again.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tdstream.errors import OutputError
from tdstream.usercache import user_cache

logger = logging.getLogger(__name__)

DERIVED_DIR = ".tdstream"


def places(directory: Path) -> list[Path]:
    """Return the directories in which files made from a corpus may lie, the preferred one first."""
    own = hashlib.sha256(str(directory).encode()).hexdigest()[:16]
    found = [directory / DERIVED_DIR]
    with suppress(RuntimeError):  # nobody's home
        found.append(user_cache("corpora") / own)
    return found


def kept(directory: Path) -> dict[Path, int]:
    """Return what is kept that was made from a corpus, of any of its states: paths, and their bytes."""
    entries = [entry for place in places(directory) if place.is_dir() for entry in sorted(place.iterdir())]
    files = {entry: [entry, *entry.rglob("*")] for entry in entries if entry.suffix != ".lock"}
    return {
        entry: sum(file.stat().st_size for file in inside if file.is_file())
        for entry, inside in files.items()
    }


def writable_place(directory: Path) -> Path:
    """Return the first of a corpus's places that can be written, created where it does not exist.

    Raises:
        OutputError: If there is none.
    """
    tried = places(directory)
    for place in tried:
        with suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=place):
                return place
    raise OutputError(
        f"What is made from {directory} can be kept nowhere: {' and '.join(map(str, tried))} cannot be "
        f"written. Set XDG_CACHE_HOME to a directory that can."
    )


@contextmanager
def taking_turns(place: Path, name: str) -> Iterator[bool]:
    """Let one process at a time make something; a process that dies lets the next one in.

    Args:
        place: The directory.
        name: What is made, a part of a file name.

    Yields:
        Whether it is alone: file systems without locks let several in.
    """
    alone = True
    with (place / f"{name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("Waiting for another process that makes %s in %s.", name, place)
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            logger.debug("%s has no locks: %s", place, error)
            alone = False
        yield alone


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Return a file to write; it gets its name, durably, when all of it is there, and else is removed."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp's own is for this user alone
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
