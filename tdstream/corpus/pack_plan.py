"""The plan of a corpus's packed rows: made once, stored in files, and mapped.

A plan is a directory among the files derived from a corpus (see `derived`)::

    rows.i8       int64 [num_rows + 1]: the first piece of each row
    starts.i8     int64 [num_pieces]: where each piece begins in the stream of tokens
    lengths.i4    int32 [num_pieces]: its tokens, as in `packing.Packed`
    plan.json     the number of rows, pieces and documents; written last

Documents are packed in windows of WINDOW_DOCUMENTS neighbours. After each window, the files are made durable
and progress.json is written; if a process dies, the next one resumes after its last window.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.progress_bar import ProgressBar
from tdstream.corpus.derived import find_writable_place, list_places, taking_turns, whole_file
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.corpus.mapped_array import MappedArray, open_array
from tdstream.schedule.packing import VERSION, Packed, pack

logger = logging.getLogger(__name__)

WINDOW_DOCUMENTS = 1 << 18
"""Documents that may share rows; packing them takes some 10 MB."""
_FILES: dict[str, np.dtype[Any]] = {
    "rows.i8": np.dtype("<i8"),
    "starts.i8": np.dtype("<i8"),
    "lengths.i4": np.dtype("<i4"),
}
_DONE, _PROGRESS = "plan.json", "progress.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class PackOptions:
    """The options that decide a plan."""

    seq_len: int
    documents: tuple[int, int]
    """(first, last): documents first .. last - 1 are packed."""
    window: int = WINDOW_DOCUMENTS
    """Neighbouring documents that may share rows."""

    def windows(self, done: int) -> Iterator[tuple[int, int]]:
        """Yield (first, last) of each window after the first `done` documents."""
        first, last = self.documents
        for start in range(first + done, last, self.window):
            yield start, min(start + self.window, last)


@dataclass(frozen=True, slots=True)
class _Size:
    """The part of a plan that is written."""

    documents: int = 0
    rows: int = 0
    pieces: int = 0


class PackPlan:
    """The rows, starts and lengths of a plan, as in its files, in memory or mapped."""

    def __init__(self, *arrays: NDArray[Any] | MappedArray) -> None:
        self._arrays = arrays
        self.num_rows = len(self.arrays()[0]) - 1

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Return rows, starts and lengths; raise CorpusError if their files are gone."""
        return tuple(open_array(array) for array in self._arrays)


def plan_in_memory(ends: DocumentEnds, options: PackOptions) -> PackPlan:
    """Return a plan in memory."""
    parts = [_packed(ends, window, options.seq_len) for window in options.windows(0)]
    rows = np.concatenate([[0], *(part.rows for part in parts)]).cumsum()
    starts = np.concatenate([np.empty(0, np.int64), *(part.starts for part in parts)])
    lengths = np.concatenate([np.empty(0, np.int32), *(part.lengths for part in parts)])
    return PackPlan(rows, starts, lengths)


def find_pack_plan(directory: Path, ends: DocumentEnds, options: PackOptions) -> PackPlan:
    """Return the plan of a corpus, made now if there is none; raise OutputError if it cannot be stored."""
    key = json.dumps([VERSION, ends.key, ends.identity(), ends.total_tokens, asdict(options)])
    name = f"pack-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    found = next((plan for place in list_places(directory) if (plan := _opened(place / name))), None)
    if found is not None:
        return found
    place = find_writable_place(directory)
    with taking_turns(place, name) as alone:
        plan = _opened(place / name)  # another process may have been quicker
        return plan or _made(place, name, ends, options, alone=alone)


def _opened(directory: Path) -> PackPlan | None:
    """Return a finished plan; None if there is none, or if its files have other sizes."""
    try:
        whole = _sizes(directory) == _bytes(_Size(**json.loads((directory / _DONE).read_text())))
    except (OSError, ValueError, TypeError):
        return None
    return _mapped(directory) if whole else None


def _mapped(directory: Path) -> PackPlan:
    return PackPlan(*(MappedArray(directory / name, dtype) for name, dtype in _FILES.items()))


def _made(place: Path, name: str, ends: DocumentEnds, options: PackOptions, *, alone: bool) -> PackPlan:
    """Make a plan, resuming after a process that died, and give it its name."""
    target = place / name
    partial = place / (f"{name}.partial" if alone else f"{name}.{os.getpid()}.partial")
    partial.mkdir(exist_ok=True)
    size = _write(partial, ends, options)
    with whole_file(partial / _DONE) as file:
        file.write(json.dumps(asdict(size)).encode())
    (partial / _PROGRESS).unlink(missing_ok=True)
    shutil.rmtree(target, ignore_errors=True)  # a damaged plan
    with suppress(OSError):  # without locks, another process may be quicker
        partial.rename(target)
    shutil.rmtree(partial, ignore_errors=True)
    return _mapped(target)


def _write(partial: Path, ends: DocumentEnds, options: PackOptions) -> _Size:
    """Append the missing windows; return the size of the plan."""
    size, first = _resumed(partial), options.documents[0]
    logger.info("Packing documents into rows of %d tokens, in %s.", options.seq_len, partial)
    with ProgressBar(
        total=options.documents[1] - first, initial=size.documents, unit="doc", desc="packing",
        delay=1, leave=False,
    ) as bar:  # fmt: skip
        for window in options.windows(size.documents):
            size = _append(partial, _packed(ends, window, options.seq_len), window[1] - first, size)
            bar.update(window[1] - window[0])
    return size


def _packed(ends: DocumentEnds, window: tuple[int, int], seq_len: int) -> Packed:
    first, last = window
    stops = ends.between(first, last)
    begins = np.concatenate([ends.at(np.array([first - 1])), stops[:-1]])
    return pack(begins, stops - begins, seq_len)


def _append(partial: Path, packed: Packed, documents: int, size: _Size) -> _Size:
    rows = packed.rows.cumsum() + size.pieces
    arrays: tuple[NDArray[Any], ...] = (rows, packed.starts, packed.lengths)
    for name, array in zip(_FILES, arrays, strict=True):
        with (partial / name).open("ab") as file:
            file.write(array.astype(_FILES[name]).tobytes())
            file.flush()
            os.fsync(file.fileno())
    size = _Size(documents, size.rows + len(rows), size.pieces + len(packed.starts))
    with whole_file(partial / _PROGRESS) as file:
        file.write(json.dumps(asdict(size)).encode())
    return size


def _resumed(partial: Path) -> _Size:
    """Truncate a plan to its durable part; return the size of that."""
    try:
        size = _Size(**json.loads((partial / _PROGRESS).read_text()))
        safe = all(there >= needed for there, needed in zip(_sizes(partial), _bytes(size), strict=True))
    except (OSError, ValueError, TypeError):
        safe = False
    if not safe:
        size = _Size()
        for name in _FILES:
            (partial / name).write_bytes(b"")
        (partial / "rows.i8").write_bytes(bytes(8))  # the first row's first piece
    for name, length in zip(_FILES, _bytes(size), strict=True):
        os.truncate(partial / name, length)
    return size


def _bytes(size: _Size) -> list[int]:
    entries = (size.rows + 1, size.pieces, size.pieces)  # in the order of _FILES
    return [count * dtype.itemsize for count, dtype in zip(entries, _FILES.values(), strict=True)]


def _sizes(directory: Path) -> list[int]:
    return [(directory / name).stat().st_size if (directory / name).exists() else -1 for name in _FILES]
