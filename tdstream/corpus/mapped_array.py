"""Read-only arrays mapped from files, and the check of a file's promised size."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import CorpusError, CorpusNotFoundError
from tdstream.corpus.meta import META_FILE


def list_sizes(directory: Path) -> dict[str, int]:
    """Return the bytes of each file in a directory, by name."""
    descriptor = os.open(directory, os.O_RDONLY)  # stat by descriptor: the quickest way for 10^5 files
    sizes = {}
    try:
        for name in os.listdir(descriptor):
            with suppress(FileNotFoundError):  # a dangling link, or a file removed in the meantime
                status = os.stat(name, dir_fd=descriptor)
                if stat.S_ISREG(status.st_mode):
                    sizes[name] = status.st_size
    finally:
        os.close(descriptor)
    return sizes


class SizeFault(NamedTuple):
    """How a file differs from what meta.json promises."""

    kind: str
    """"missing", "truncated" or "extended"."""
    text: str
    """A sentence, to be written after the file's name."""


def find_size_fault(
    size: int | None, count: int, dtype: np.dtype[Any], what: str = "tokens"
) -> SizeFault | None:
    """Compare a file's bytes (None if it is missing) with the `count` numbers that meta.json promises."""
    promised = count * dtype.itemsize
    if size == promised:
        return None
    if size is None:
        return SizeFault("missing", f"is missing; {META_FILE} promises {count:,} {what} in it.")
    kind = "truncated" if size < promised else "extended"
    held, odd = divmod(size, dtype.itemsize)
    found = f"{size:,} bytes ({f'not a multiple of {dtype.itemsize}' if odd else f'{held:,} {what}'})"
    wanted = f"{META_FILE} promises {promised:,} ({count:,} {what})"
    return SizeFault(kind, f"is {kind}: it has {found}; {wanted}.")


def check_size(path: Path, size: int | None, count: int, dtype: np.dtype[Any], what: str = "tokens") -> None:
    """Raise CorpusNotFoundError or CorpusError unless a file has the promised size."""
    fault = find_size_fault(size, count, dtype, what)
    if fault is None:
        return
    if fault.kind == "missing":
        raise CorpusNotFoundError(f"{path} {fault.text}")
    raise CorpusError(
        f"{path} {fault.text} It was probably cut or changed while it was copied; copy it again."
    )


def map_part(path: Path, dtype: np.dtype[Any], offset: int, count: int, size: int) -> Any:
    """Map `count` numbers from a byte of a file on, as a read-only array.

    Raises CorpusError if the file is gone or has not `size` bytes.
    """
    try:
        now = path.stat().st_size
        mapped = (
            np.memmap(path, dtype, "r", offset, (count,)) if count and now == size else np.empty(0, dtype)
        )
    except (OSError, ValueError) as error:
        raise CorpusError(f"{path} cannot be read any more: {error}. Was it moved or deleted?") from error
    if now != size:
        raise CorpusError(f"{path} had {size:,} bytes when it was opened, has {now:,} now.")
    return np.asarray(mapped)


def map_array(path: Path, dtype: np.dtype[Any], count: int | None = None, what: str = "tokens") -> Any:
    """Map a file as a read-only array of `count` numbers, or of all of them.

    Raises CorpusError if the file is gone or does not hold `count` numbers.
    """
    try:
        empty = path.stat().st_size == 0  # an empty file cannot be mapped
        mapped = np.empty(0, dtype) if empty else np.memmap(path, dtype, mode="r")
    except (OSError, ValueError) as error:
        raise CorpusError(
            f"{path} cannot be read any more: {error}. Was the corpus moved or deleted?"
        ) from error
    if count is not None and len(mapped) != count:
        raise CorpusError(f"{path} had {count:,} {what} when the corpus was opened, has {len(mapped):,} now.")
    return np.asarray(mapped)  # a plain view: slicing np.memmap itself costs several times more


class MappedArray:
    """An array in a file, mapped at first use and pickled as its path."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._path, self._dtype = path, dtype
        self._mapped: NDArray[Any] | None = None

    def open(self) -> NDArray[Any]:
        """Return the array; raise CorpusError if the file is gone."""
        if self._mapped is None:
            self._mapped = map_array(self._path, self._dtype)
        return self._mapped

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_mapped": None}  # a pickled map is a copy of the whole file


def open_array(array: NDArray[Any] | MappedArray) -> NDArray[Any]:
    """Return an array in memory as it is, and one in a file mapped."""
    return array.open() if isinstance(array, MappedArray) else array
