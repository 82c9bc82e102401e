"""Files derived from a corpus: their places, locks and atomic writes, and the counts of windows.

They are in `.tdstream` in the corpus's directory or, if that cannot be written, in the user's cache. They may
be deleted while no run uses them; they are made again.

Window counts are the windows before each block of documents. For many documents they are kept in a file,
int64 [2 + num_blocks + 1]: documents and tokens that are in no window, then the counts.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import secrets
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
from tdstream.distributed.file_lock import wait_for_lock
from tdstream.schedule.windows import DocumentCut

logger = logging.getLogger(__name__)

DERIVED_DIR = ".tdstream"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}


def list_places(directory: Path) -> list[Path]:
    """Return the directories for files derived from a corpus, the preferred one first."""
    own = _hash_path(str(directory))
    found = [directory / DERIVED_DIR]
    with suppress(RuntimeError):  # there is no home directory
        found.append(user_cache("corpora") / own)
    return found


def _hash_path(path: str) -> str:
    """Return a name for a path, whose bytes need not be UTF-8."""
    return hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def find_place_elsewhere(path: str) -> Path:
    """Return a directory of the user's cache for files derived from files that are not tdstream's own.

    Raises OutputError if there is no home directory.
    """
    try:
        return user_cache("corpora") / _hash_path(path)
    except RuntimeError:
        raise OutputError(
            f"Files derived from {path} are kept in the user's cache, but there is no home directory. Set "
            f"XDG_CACHE_HOME to a writable directory."
        ) from None


def list_derived(directory: Path) -> dict[Path, int]:
    """Return the paths derived from any version of a corpus, and the bytes of each."""
    entries = [
        entry for place in list_places(directory) if place.is_dir() for entry in sorted(place.iterdir())
    ]
    files = {entry: [entry, *entry.rglob("*")] for entry in entries if entry.suffix != ".lock"}
    return {
        entry: sum(file.stat().st_size for file in inside if file.is_file())
        for entry, inside in files.items()
    }


def find_writable_place(directory: Path) -> Path:
    """Return the first writable place of a corpus, created if needed; raise OutputError if none is."""
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
    """Let one process at a time make a file; if it dies, the next one follows.

    Yields whether this process is alone: on file systems without locks, one on another machine may be at it.
    """
    with _explain_full_disk(place):
        lock = wait_for_lock(place / f"{name}.lock", f"making {name} in {place}")
        try:
            yield lock is not None
        finally:
            if lock is not None:
                lock.close()


@contextmanager
def _explain_full_disk(place: Path) -> Iterator[None]:
    """Turn an OSError of a file system that takes no more into an OutputError that names the place."""
    try:
        yield
    except OSError as error:
        if isinstance(error, OutputError) or error.errno not in _FULL:
            raise
        raise OutputError(
            f"A file derived from the corpus cannot be written to {place} ({error.strerror}). Free some "
            f"space there, and start again."
        ) from error


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file to write; it gets its name when it is complete and durable, else it is removed."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    # Not mkstemp, whose mode excludes other users whatever the umask says.
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


Ints = NDArray[np.int64]

BLOCK = 8
"""Documents per block: each block takes 8 bytes of memory, and a window's block is searched."""
MANY_DOCUMENTS = 1 << 22
"""The fewest documents whose counts are kept in a file; fewer are counted in less than a second."""
_BLOCKS = 65536  # counted at a time
_VERSION = 1


class WindowCounts:
    """The numbers of the file, in memory or mapped; blocks have `block` documents."""

    def __init__(self, numbers: Ints | MappedArray, *, block: int = BLOCK) -> None:
        self._numbers, self.block = numbers, block
        self.dropped_documents, self.dropped_tokens = open_array(numbers)[:2].tolist()
        """Documents too short for a window; their tokens, plus the rests of others that are too short."""

    @property
    def firsts(self) -> Ints:
        """The windows before each block, and all windows, [num_blocks + 1]."""
        return open_array(self._numbers)[2:]


def find_window_counts(
    directory: Path, ends: DocumentEnds, cut: DocumentCut, documents: tuple[int, int]
) -> WindowCounts:
    """Return the counts of documents first .. last - 1; of many, from a file that is made if missing."""
    if documents[1] - documents[0] < MANY_DOCUMENTS:
        return WindowCounts(count_windows(ends, cut, documents))
    key = json.dumps([_VERSION, BLOCK, ends.key, ends.identity(), ends.total_tokens, asdict(cut), documents])
    name = f"windows-{hashlib.sha256(key.encode()).hexdigest()[:16]}.i8"
    size = 8 * (3 - (documents[0] - documents[1]) // BLOCK)
    path = next((place / name for place in list_places(directory) if _has(place / name, size)), None)
    if path is None:
        path = find_writable_place(directory) / name
        with taking_turns(path.parent, name):
            if not _has(path, size):  # another process may have been quicker
                number = documents[1] - documents[0]
                logger.info("Counting the windows of %d documents of %s.", number, directory)
                numbers = count_windows(ends, cut, documents)
                with whole_file(path) as file:
                    file.write(numbers.astype("<i8", copy=False).data)
    return WindowCounts(MappedArray(path, np.dtype("<i8")))


def count_windows(
    ends: DocumentEnds, cut: DocumentCut, documents: tuple[int, int], *, block: int = BLOCK
) -> Ints:
    """Count the windows of documents first .. last - 1; return the numbers of the file."""
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
    """Count the windows of documents, by their tokens and their numbers, both of any one shape."""
    # Tokens without the end-of-text token, if there is one.
    text = lengths - (numbers < ends.num_ends) if ends.hold_token else lengths
    return np.where(cut.is_kept(text), cut.count(lengths), 0)


def _has(path: Path, size: int) -> bool:
    return path.exists() and path.stat().st_size == size
