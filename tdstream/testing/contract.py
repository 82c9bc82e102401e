"""What both checks share: the error, comparable rows and batches, states, open files, other processes."""

from __future__ import annotations

import fcntl
import gc
import json
import multiprocessing
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from tdstream.core.errors import StateError
from tdstream.nodes.rows import AnyRows, DocumentRows, FilledRows, MarkedRows, RowEnds, SourcedRows

Row = tuple[Any, ...]
"""All that a row holds, in types that compare."""


class ContractError(AssertionError):
    """A node or a pipeline breaks the contract. The message says what was done, and what was wrong."""


def require(condition: bool, sentence: str) -> None:
    """Raise ContractError unless a condition is met."""
    if not condition:
        raise ContractError(sentence)


def list_rows(rows: AnyRows) -> list[Row]:
    """Return the content of each row."""
    if isinstance(rows, FilledRows):
        return list_rows(rows.rows)
    if isinstance(rows, SourcedRows):
        return [
            (int(number), *row) for number, row in zip(rows.source_ids, list_rows(rows.rows), strict=True)
        ]
    if isinstance(rows, np.ndarray):
        return [(row.dtype.str, row.tobytes()) for row in rows]
    columns: list[Any] = [list_rows(rows.tokens)]
    if isinstance(rows, MarkedRows):
        columns += [part.tolist() for part in (rows.lengths, rows.overlaps, rows.stops)]
    if isinstance(rows, (DocumentRows, MarkedRows)) and rows.ends is not None:
        columns.append(_list_ends(rows.ends))
    return list(zip(*columns, strict=True))


def _list_ends(ends: RowEnds) -> list[tuple[int, ...]]:
    return [tuple(part.tolist()) for part in np.split(ends.places, ends.counts.cumsum()[:-1])]


def list_batch(batch: dict[str, Any]) -> Row:
    """Return the content of a batch or a sample."""
    return tuple((name, _content(value)) for name, value in sorted(batch.items()))


def list_batch_rows(batch: dict[str, Any]) -> list[Row]:
    """Return the content of each row of a batch, without what belongs to the batch as a whole."""
    whole = ("cu_seqlens", "max_seqlen")
    columns = {name: value for name, value in sorted(batch.items()) if name not in whole}
    return [
        tuple((name, _content(value[row])) for name, value in columns.items())
        for row in range(len(batch["input_ids"]))
    ]


def _content(value: Any) -> Any:
    if isinstance(value, Tensor):
        return str(value.dtype), tuple(value.shape), value.numpy().tobytes()
    return value


def read_state(thing: Any, name: str) -> dict[str, Any]:
    """Return a state after JSON; refuse one that holds other types or shares objects with the next one."""
    state, again = thing.state_dict(), thing.state_dict()
    found = next((place for place, value in _walk(state, name) if type(value) not in _JSON), None)
    require(found is None, f"the state holds a value at {found} that is not a JSON type.")
    require(state == again, f"two calls of {name}.state_dict() in a row give different states.")
    own = {id(value) for _, value in _walk(state, name) if isinstance(value, (dict, list))}
    shared = next((place for place, value in _walk(again, name) if id(value) in own), None)
    require(
        shared is None,
        f"the states of two calls share the object at {shared}: a state is built fresh at each call, because "
        f"a loader's worker sends only what has changed since its last state.",
    )
    copied: dict[str, Any] = json.loads(json.dumps(state))
    require(copied == state, f"the state of {name} is not the same after JSON.")
    return copied


_JSON = (str, int, float, bool, type(None), list, dict)


def _walk(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Yield (place, value) of a state and of all that it holds."""
    yield place, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _walk(inner, f"{place}.{key}") if type(key) is str else [(f"{place}[{key!r}]", ...)]
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _walk(inner, f"{place}[{number}]")


def require_refusal(load: Callable[[], object], field: str, changed: str) -> None:
    """Refuse a load that does not raise a StateError that names a field."""
    try:
        load()
    except StateError as error:
        require(field in str(error), f"a state with {changed} is refused without naming {field}: {error}")
    except Exception as error:
        raise ContractError(
            f"a state with {changed} raises {type(error).__name__}, not StateError: {error}"
        ) from error
    else:
        raise ContractError(
            f"a state with {changed} is loaded; it must raise a StateError that names {field}."
        )


def pickled(thing: Any, name: str) -> bytes:
    """Return the pickle of a node or pipeline."""
    try:
        return pickle.dumps(thing)
    except Exception as error:
        raise ContractError(
            f"{name} cannot be pickled ({type(error).__name__}: {error}), but spawned workers receive it so. "
            f"Open files and connections belong to the stream that a source's open() returns."
        ) from error


def open_files() -> dict[str, str]:
    """Return what each descriptor of this process is and where it stands; empty where /proc is missing.

    Files that are only written are left out, such as a log of standard output: others may write there.
    """
    gc.collect()
    found = {}
    for entry in sorted(Path("/proc/self/fd").glob("*")):
        try:
            if _is_output(entry):
                continue
            file = os.readlink(entry)
            place = os.lseek(int(entry.name), 0, os.SEEK_CUR) if entry.is_file() else 0
            found[entry.name] = f"{file}, byte {place:,}"
        except OSError:  # closed meanwhile: the descriptor of the listing itself
            continue
    return found


def _is_output(entry: Path) -> bool:
    """Return whether a descriptor is only written, or is a file that a standard stream goes to."""
    if fcntl.fcntl(int(entry.name), fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
        return True
    return entry.is_file() and any(entry.samefile(f"/proc/self/fd/{number}") for number in range(3))


def require_processes(
    thing: Any, name: str, read: Callable[[Any], Any], read_first: Callable[[Any], object]
) -> None:
    """Compare what this process, a forked one and a spawned one read; `read` is a function of a module.

    `read_first` reads a little, so that an open file is not where it is after `read`.
    """
    whole, sent = read(thing), pickled(thing, name)
    require(
        _read_pickled(read, sent) == whole, f"a copy of {name} that went through pickle reads other samples."
    )
    read_first(thing)
    before = open_files()
    forked = _in_forked_process(read, thing)
    moved = [number for number, file in open_files().items() if before.get(number, file) != file]
    require(
        not moved,
        f"a forked process moves the position of a file that {name} has open in this process, so that both "
        f"read at wrong places: {', '.join(before[number] for number in moved)}.",
    )
    require(forked == whole, f"a forked process reads other samples from {name}: {_shown(forked)}")
    require(read(thing) == whole, f"after a fork, {name} reads other samples than before.")
    spawned = _read_in_spawned_process(read, sent)
    require(spawned == whole, f"a spawned process reads other samples from {name}: {_shown(spawned)}")


def _shown(result: Any) -> str:
    return result if isinstance(result, str) else "their number or content differs."


def _read_pickled(read: Callable[[Any], Any], sent: bytes) -> Any:
    return read(pickle.loads(sent))  # noqa: S301 - pickled by this module


def _in_forked_process(read: Callable[[Any], Any], thing: Any) -> Any:
    """Return what a forked process reads, or why it cannot."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(there, read, thing), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # this process has threads of torch
        process.start()
    there.close()
    try:
        return here.recv()
    except EOFError:
        return "it died."
    finally:
        here.close()
        process.join()
        process.close()


def _send(connection: Any, read: Callable[[Any], Any], thing: Any) -> None:
    connection.send(_try(read, thing))


def _try(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _read_in_spawned_process(read: Callable[[Any], Any], sent: bytes) -> Any:
    process, connection = _spawned_process()
    if not process.is_alive():  # ended since the last check
        _spawned_process.cache_clear()
        _, connection = _spawned_process()
    try:
        connection.send((list(sys.path), read, sent))
        return connection.recv()
    except (EOFError, OSError):
        _spawned_process.cache_clear()
        return "it died. A script that starts processes needs `if __name__ == '__main__':`."


@lru_cache(maxsize=1)
def _spawned_process() -> tuple[Any, Any]:
    """Return a spawned process and the connection to it; it is kept since it takes seconds to start."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), daemon=True)
    process.start()
    there.close()
    return process, here


def _serve(connection: Any) -> None:
    while True:
        try:
            path, read, sent = connection.recv()
        except EOFError:
            return
        sys.path[:] = path
        connection.send(_try(_read_pickled, read, sent))
