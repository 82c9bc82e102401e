"""Find the loader's state in a file: torch.save's, JSON, or a torch.distributed.checkpoint directory."""

from __future__ import annotations

import json
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from tdstream.core.errors import StateError
from tdstream.loading.portable_state import position_of


def read_state(path: str | Path) -> dict[str, Any]:
    """Return the portable state in a checkpoint, at whatever depth it lies there.

    Args:
        path: A file of torch.save or of JSON, or a directory of torch.distributed.checkpoint. Nothing in a
            file is executed; of a directory, only entries that are not tensors are read, and these are
            unpickled: open none that you do not trust.

    Raises:
        StateError: If there is no such file, it cannot be read, or there is no state in it, or several.
    """
    path = Path(path)
    if not path.exists():
        raise StateError(f"{path} does not exist; expected a checkpoint file, or a directory of one.")
    content = _read_directory(path) if path.is_dir() else _read_file(path)
    try:
        return position_of(content)
    except StateError as error:
        raise StateError(f"{path}: {error}") from None


def _read_file(path: Path) -> Any:
    with path.open("rb") as file:
        start = file.read(64).lstrip()[:1]
    if start in (b"{", b"["):
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise StateError(f"{path} looks like JSON, and is none ({error}).") from None
    try:
        # Mapped, so that of a large checkpoint only the small entries are read; old files cannot be mapped.
        mapped = zipfile.is_zipfile(path)
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # of bytes that are no pickle, it raises whatever they lead to
        raise StateError(
            f"{path} is neither JSON nor a file of torch.save that holds only tensors and plain values "
            f"({type(error).__name__}). Save the loader's state in a file of its own."
        ) from None


def _read_directory(path: Path) -> Any:
    """Read what is not a tensor from a torch.distributed.checkpoint, and nest it as it was saved."""
    # Slow to import, and only needed here.
    from torch.distributed.checkpoint.filesystem import FileSystemReader  # noqa: PLC0415
    from torch.distributed.checkpoint.metadata import BytesStorageMetadata  # noqa: PLC0415
    from torch.distributed.checkpoint.state_dict_loader import load  # noqa: PLC0415

    try:
        metadata = FileSystemReader(path).read_metadata()
    except (OSError, pickle.UnpicklingError, EOFError) as error:
        raise StateError(f"{path} is not a directory of torch.distributed.checkpoint ({error}).") from None
    entries = metadata.state_dict_metadata.items()
    flat: dict[str, Any] = {key: 0 for key, kind in entries if isinstance(kind, BytesStorageMetadata)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this is one process and no process group is on purpose
        load(flat, checkpoint_id=path)
    return _nested(flat, metadata.planner_data or {})


def _nested(flat: dict[str, Any], paths: dict[str, Any]) -> Any:
    """Return {"a": {"b": 1}} of {"a.b": 1} and {"a.b": ("a", "b")}."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *parents, last = paths.get(key, (key,))
        inner = nested
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = value
    return _with_lists(nested)


def _with_lists(value: Any) -> Any:
    """Turn {0: a, 1: b}, which was a list, into [a, b]."""
    if not isinstance(value, dict):
        return value
    inner = {key: _with_lists(part) for key, part in value.items()}
    if inner and all(isinstance(key, int) for key in inner):
        return [inner[key] for key in sorted(inner)]
    return inner
