"""Read-only arrays mapped from files, which are opened only here; and the check of a file's promised size."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import CorpusError, CorpusNotFoundError
from tdstream.corpus.meta import META_FILE


class FileVersion(NamedTuple):
    """What tells a file from a later one of the same name."""

    size: int
    mtime_ns: int


def list_sizes(directory: Path) -> dict[str, int]:
    """Return the bytes of each file in a directory, by name."""
    return {name: version.size for name, version in list_versions(directory).items()}


def list_versions(directory: Path) -> dict[str, FileVersion]:
    """Return the size and modification time of each file in a directory, by name."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)  # stat by descriptor: the quickest way for 10^5 files
        try:
            return dict(_list_versions(descriptor))
        finally:
            os.close(descriptor)
    except PermissionError as error:
        raise CorpusError(f"{directory} cannot be read: {error.strerror}. {_explain(error)}") from error


def _list_versions(descriptor: int) -> Iterator[tuple[str, FileVersion]]:
    for name in os.listdir(descriptor):
        try:
            status = os.stat(name, dir_fd=descriptor)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP):  # a dangling link, or a file that is gone by now
                continue
            raise
        if stat.S_ISREG(status.st_mode):
            yield name, FileVersion(status.st_size, status.st_mtime_ns)


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
        raise CorpusNotFoundError(f"{path} {fault.text} Restore the file, or prepare the corpus again.")
    raise CorpusError(
        f"{path} {fault.text} It was probably cut or changed while it was copied; copy it again."
    )


def map_array(
    path: Path,
    dtype: np.dtype[Any],
    count: int | None = None,
    what: str = "tokens",
    *,
    offset: int = 0,
    version: FileVersion | None = None,
    is_same: Callable[[], bool] | None = None,
) -> Any:
    """Map `count` numbers of a file from a byte on, or all of them, as a read-only array.

    No descriptor stays open. Raises CorpusError if the file is gone, or has not `count` numbers; or if it is
    not the `version` that was opened first, unless `is_same` says that its content is the same.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            status = os.fstat(descriptor)
            _check_version(path, dtype, count, what, status, version, is_same)
            end = status.st_size if count is None or version is None else offset + count * dtype.itemsize
            content = _map_bytes(descriptor, offset, end)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise CorpusError(f"{path} cannot be read any more: {error.strerror}. {_explain(error)}") from error
    return content[: len(content) // dtype.itemsize * dtype.itemsize].view(dtype)


def _check_version(
    path: Path,
    dtype: np.dtype[Any],
    count: int | None,
    what: str,
    status: os.stat_result,
    version: FileVersion | None,
    is_same: Callable[[], bool] | None,
) -> None:
    held = status.st_size // dtype.itemsize
    if version is not None and version.size != status.st_size:
        raise CorpusError(
            f"{path} had {version.size:,} bytes when the corpus was opened, has {status.st_size:,} now. "
            f"Restore it, or start the run again over what is there now."
        )
    if version is None and count is not None and held != count:
        raise CorpusError(f"{path} had {count:,} {what} when the corpus was opened, has {held:,} now.")
    if version is not None and version.mtime_ns != status.st_mtime_ns and not (is_same and is_same()):
        raise CorpusError(
            f"{path} was replaced or changed since the corpus was opened; continuing would mix two corpora. "
            f"Restore it, or start the run again over what is there now."
        )


def _explain(error: OSError) -> str:
    """Return what to do about an error of opening or mapping a file."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "Raise the limit on open files (ulimit -n)."
    if error.errno == errno.ENOMEM:
        return "Raise the limit on maps of a process (sysctl vm.max_map_count), or use fewer, larger files."
    if error.errno in (errno.EACCES, errno.EPERM):
        return "Change its permissions, or read a copy."
    return "Was the corpus moved or deleted?"


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64),
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


def _map_bytes(descriptor: int, begin: int, end: int) -> NDArray[np.uint8]:
    """Map bytes begin .. end - 1 of a file.

    Python's own mmap keeps a descriptor open for each map until version 3.13, where `trackfd` turns that off.
    """
    if end <= begin:
        return np.empty(0, np.uint8)
    first = begin - begin % mmap.ALLOCATIONGRANULARITY
    address = _libc.mmap(None, end - first, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, first)
    if address == _FAILED:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    held = (ctypes.c_uint8 * (end - first)).from_address(address)
    weakref.finalize(held, _libc.munmap, address, end - first).atexit = False
    content: NDArray[np.uint8] = np.frombuffer(memoryview(held), np.uint8)
    content.flags.writeable = False
    return content[begin - first :]


MAX_OPEN = 4096
"""Arrays that all readers of a process keep mapped; a process may have 65,530 maps, most of them its own."""


class OpenArrays(dict[int, Any]):
    """Mapped arrays of one reader, by number; the last MAX_OPEN of all readers stay open."""

    def add(self, number: int, mapped: Any) -> None:
        """Keep an array."""
        self[number] = mapped
        _opened.append((weakref.ref(self), number))
        while len(_opened) > MAX_OPEN:
            _close_oldest()

    def __reduce__(self) -> tuple[type[OpenArrays], tuple[()]]:
        return OpenArrays, ()  # a pickled map is a copy of the whole file


_opened: deque[tuple[weakref.ref[OpenArrays], int]] = deque()


def _close_oldest() -> None:
    """Forget the maps of readers that no longer exist; if there are none, close the oldest map."""
    living = [entry for entry in _opened if entry[0]() is not None]
    if len(living) == len(_opened):
        owner, number = living.pop(0)
        maps = owner()
        if maps is not None:
            maps.pop(number, None)
    _opened.clear()
    _opened.extend(living)


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
