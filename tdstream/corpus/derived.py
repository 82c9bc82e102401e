"""Files derived from a corpus: their places, how one process at a time makes them, and the window counts.

They are in the corpus's directory, in `.tdstream`, or where that cannot be written, in a directory of the
user's cache. They may be deleted while no run uses them, and are made again.

Window counts are the windows before each block of documents. Those of many documents are kept in one file,
int64 [2 + num_blocks + 1]: documents and tokens that are in no window, then the counts.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import OutputError
from tdstream.core.user_cache import user_cache
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.corpus.mapped_array import MappedArray, open_array
from tdstream.schedule.windows import DocumentCut

logger = logging.getLogger(__name__)

DERIVED_DIR = ".tdstream"


def list_places(directory: Path) -> list[Path]:
    """Return the directories for files derived from a corpus, the preferred one first."""
    own = hashlib.sha256(str(directory).encode()).hexdigest()[:16]
    found = [directory / DERIVED_DIR]
    with suppress(RuntimeError):  # there is no home directory
        found.append(user_cache("corpora") / own)
    return found


def list_derived(directory: Path) -> dict[Path, int]:
    """Return the paths derived from a corpus, of any of its versions, and their bytes."""
    entries = [
        entry for place in list_places(directory) if place.is_dir() for entry in sorted(place.iterdir())
    ]
    files = {entry: [entry, *entry.rglob("*")] for entry in entries if entry.suffix != ".lock"}
    return {
        entry: sum(file.stat().st_size for file in inside if file.is_file())
        for entry, inside in files.items()
    }


def find_writable_place(directory: Path) -> Path:
    """Return the first of a corpus's places that can be written, created if needed, or raise OutputError."""
    tried = list_places(directory)
    for place in tried:
        with suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=place):
                return place
    raise OutputError(
        f"Files derived from {directory} cannot be stored: {' and '.join(map(str, tried))} cannot be "
        f"written. Set XDG_CACHE_HOME to a writable directory."
    )


@contextmanager
def taking_turns(place: Path, name: str) -> Iterator[bool]:
    """Let one process at a time make a file; a process that dies lets the next one in.

    Yields whether this process is alone: file systems without locks let several in.
    """
    alone = True
    with (place / f"{name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("Waiting for another process that is making %s in %s.", name, place)
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            logger.debug("%s has no locks: %s", place, error)
            alone = False
        yield alone


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file to write, which gets its name, durably, when it is complete, or else is removed."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp's mode is for this user alone
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


Ints = NDArray[np.int64]

BLOCK = 8
"""Documents of a block: 8 bytes are held for each block, and a block is searched for each window."""
MANY_DOCUMENTS = 1 << 22
"""Documents: from so many on, counts are kept; fewer are counted in less than a second."""
_BLOCKS = 65536  # counted at once
_VERSION = 1


class WindowCounts:
    """Counts as in the file, in memory or mapped; blocks are of `block` documents.

    Attributes:
        dropped_documents: Documents that give no window, being too short.
        dropped_tokens: Tokens that no window holds: of these documents, and of ends too short for a window.
    """

    def __init__(self, numbers: Ints | MappedArray, *, block: int = BLOCK) -> None:
        self._numbers, self.block = numbers, block
        self.dropped_documents, self.dropped_tokens = open_array(numbers)[:2].tolist()

    @property
    def firsts(self) -> Ints:
        """The windows before each block, and of all of them, [num_blocks + 1]."""
        return open_array(self._numbers)[2:]


def find_window_counts(
    directory: Path, ends: DocumentEnds, cut: DocumentCut, documents: tuple[int, int]
) -> WindowCounts:
    """Return the counts of documents first .. last - 1; those of many from a file, made now if missing."""
    if documents[1] - documents[0] < MANY_DOCUMENTS:
        return WindowCounts(count_windows(ends, cut, documents))
    key = json.dumps([_VERSION, BLOCK, ends.key, ends.identity(), ends.total_tokens, asdict(cut), documents])
    name = f"windows-{hashlib.sha256(key.encode()).hexdigest()[:16]}.i8"
    size = 8 * (3 - (documents[0] - documents[1]) // BLOCK)
    found = next((place / name for place in list_places(directory) if _has(place / name, size)), None)
    path = found or _made(directory, name, size, ends, cut, documents)
    return WindowCounts(MappedArray(path, np.dtype("<i8")))


def count_windows(
    ends: DocumentEnds, cut: DocumentCut, documents: tuple[int, int], *, block: int = BLOCK
) -> Ints:
    """Count windows, piece by piece; return the content of the file."""
    dropped_documents, dropped_tokens, at = 0, 0, 3
    numbers = np.zeros(at - (documents[0] - documents[1]) // block, np.int64)  # the only large array
    for first in range(*documents, block * _BLOCKS):
        last = min(first + block * _BLOCKS, documents[1])
        lengths = np.diff(ends.between(first, last), prepend=ends.at(np.array([first - 1])))
        windows = count_document_windows(ends, cut, lengths, np.arange(first, last))
        kept = windows > 0
        dropped_documents += int(len(kept) - kept.sum())
        dropped_tokens += int(lengths.sum() - cut.count_tokens(lengths[kept]).sum())
        blocks = np.add.reduceat(windows, np.arange(0, len(windows), block))
        numbers[at : at + len(blocks)] = blocks
        at += len(blocks)
    np.cumsum(numbers[3:], out=numbers[3:])
    numbers[:2] = dropped_documents, dropped_tokens
    return numbers


def count_document_windows(ends: DocumentEnds, cut: DocumentCut, lengths: Ints, numbers: Ints) -> Ints:
    """Count the windows of documents, by their tokens and their numbers, any shape."""
    text = lengths - (numbers < ends.num_ends)  # without the end-of-text token, if there is one
    return np.where(cut.is_kept(text), cut.count(lengths), 0)


def _made(
    directory: Path, name: str, size: int, ends: DocumentEnds, cut: DocumentCut, documents: tuple[int, int]
) -> Path:
    place = find_writable_place(directory)
    with taking_turns(place, name):
        if not _has(place / name, size):  # another process may have been quicker
            logger.info("Counting the windows of %d documents of %s.", documents[1] - documents[0], directory)
            numbers = count_windows(ends, cut, documents)
            with whole_file(place / name) as file:
                file.write(numbers.astype("<i8", copy=False).data)
    return place / name


def _has(path: Path, size: int) -> bool:
    return path.exists() and path.stat().st_size == size
