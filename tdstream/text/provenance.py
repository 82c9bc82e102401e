"""What stands behind a source of text, so that a cache can tell it from another with the same beginning.

A list is compared as a whole, and a `Dataset` by its fingerprint. A stream is described here by its files
(names, sizes, modification times), its tables, and the settings and functions applied to them. What a
function returns is known only after calling it, so a source that is one, or goes through one, is in doubt
unless the caller vouches for it with a name or with the attribute `text_version`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VERSION_ATTRIBUTE = "text_version"
"""Attribute of a function or object that the caller changes whenever it yields other text."""
_READERS = ("ArrowExamplesIterable", "ExamplesIterable")
_SCALARS = (str, int, float, bool, type(None))
_FILE_KEYS = ("original_files", "base_files", "files", "files_iterables")


@dataclass(frozen=True, slots=True)
class Provenance:
    """What is known of a source beside its first records."""

    identity: dict[str, Any] = field(default_factory=dict)
    """Decides the text as far as it is known; JSON types, empty if nothing is known."""
    doubt: str = ""
    """Why the source may yield other text under the same identity; empty if it cannot."""


def describe_object(source: Any, *, is_named: bool) -> Provenance:
    """Describe a function, or an object that can only be iterated over; `is_named` if the caller named it."""
    version = getattr(source, VERSION_ATTRIBUTE, None)
    if version is not None:
        return Provenance({"version": str(version)})
    name = getattr(source, "__name__", type(source).__name__)
    return Provenance(doubt="" if is_named else f"only the first records of {name} were compared")


def describe_stream(dataset: Any, *, is_named: bool) -> Provenance:
    """Describe an `IterableDataset`: its files and tables, and what is applied to them."""
    version = getattr(dataset, VERSION_ATTRIBUTE, None)
    if version is not None:
        return Provenance({"version": str(version)})
    doubts: list[str] = []
    parts = [_describe_part(part, doubts) for part in walk_parts(dataset._ex_iterable)]
    doubt = "" if is_named or not doubts else doubts[0]
    return Provenance({"parts": len(parts), "sha256": _hash(parts)}, doubt)


def walk_parts(part: Any) -> Iterator[Any]:
    """Yield the parts of a stream, each before those it reads."""
    yield part
    inner = [part.ex_iterable] if hasattr(part, "ex_iterable") else getattr(part, "ex_iterables", [])
    for one in inner:
        yield from walk_parts(one)


def _describe_part(part: Any, doubts: list[str]) -> list[Any]:
    """Return what decides the records of one part, in JSON types."""
    name = type(part).__name__
    if name in _READERS:
        return [name, *_describe_reader(part, doubts)]
    settings = {key: value for key, value in vars(part).items() if not key.startswith(("_", "ex_iterable"))}
    return [name, {key: _describe_setting(value, doubts) for key, value in sorted(settings.items())}]


def _describe_setting(value: Any, doubts: list[str]) -> Any:
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, (list, tuple)):
        return [_describe_setting(item, doubts) for item in value]
    if isinstance(value, dict):
        return {str(key): _describe_setting(item, doubts) for key, item in value.items()}
    if hasattr(value, "bit_generator"):  # of numpy: what a shuffle draws from
        return _hash(_describe_setting(value.bit_generator.state, doubts))
    if callable(value):
        return _describe_function(value, doubts)
    return type(value).__name__


def _describe_function(function: Any, doubts: list[str]) -> str:
    """Return a hash of a function's code and of the values it closes over."""
    own = getattr(function, "__module__", "") or ""
    name = getattr(function, "__qualname__", type(function).__name__)
    if own.split(".")[0] in ("datasets", "numpy"):
        return name
    doubts.append(f"the text goes through the function {name}")
    from datasets.fingerprint import Hasher  # noqa: PLC0415 - loaded already, since the source is its dataset

    try:
        return str(Hasher.hash(function))
    except Exception:  # whatever pickling raises
        return name


def _describe_reader(part: Any, doubts: list[str]) -> list[Any]:
    kwargs = part.kwargs
    shards = kwargs.get("shards")
    if shards and all(hasattr(shard, "_fingerprint") for shard in shards):
        return [[shard._fingerprint, len(shard)] for shard in shards]
    files = list(_list_files(kwargs))
    generate = getattr(part, "generate_tables_fn", None) or getattr(part, "generate_examples_fn", None)
    owner = type(getattr(generate, "__self__", None))
    if owner.__name__ == "Generator" or not files:
        doubts.append("it is made by a function")
    found = [describe_file(file) for file in files]
    remote = next((file for file, size, _ in found if size < 0 and "@" not in file), None)
    if remote is not None:
        doubts.append(f"{remote} has no size and time of change")
    return [f"{owner.__module__}.{owner.__name__}", found]


def _list_files(kwargs: dict[str, Any]) -> Iterator[str]:
    """Yield the paths and URLs in a reader's arguments."""
    key = next((key for key in _FILE_KEYS if kwargs.get(key)), None)
    values = [kwargs[key]] if key else list(kwargs.values())
    while values:
        value = values.pop(0)
        if isinstance(value, (str, os.PathLike)):
            yield os.fspath(value)
        elif isinstance(value, (list, tuple)) or type(value).__name__ == "FilesIterable":
            values = [*value, *values]


def describe_file(file: str) -> tuple[str, int, int]:
    """Return the path, bytes and modification time of a file; -1 and 0 if it is not on this machine."""
    try:
        known = Path(file).stat()
    except (OSError, ValueError):  # on the hub: the URL contains the revision
        return file, -1, 0
    return os.path.abspath(file), known.st_size, known.st_mtime_ns


def _hash(value: Any) -> str:
    content = json.dumps(value, sort_keys=True).encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).hexdigest()[:16]
