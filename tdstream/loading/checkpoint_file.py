"""The loader's state in a checkpoint: a file of torch.save or JSON, or a torch.distributed.checkpoint."""

from __future__ import annotations

import json
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from tdstream.core.errors import StateError
from tdstream.loading.portable_state import position_of


def read_state(path: str | Path) -> dict[str, Any]:
    """Return the portable state in a checkpoint, at any depth.

    A file executes nothing. Of a directory, all entries that are not tensors are read, and these are
    unpickled: open only a directory that you trust.
    """
    path = Path(path)
    if not path.exists():
        raise StateError(f"{path} does not exist; expected a checkpoint file or directory.")
    try:
        content = _read_directory(path) if path.is_dir() else _read_file(path)
    except OSError as error:
        raise StateError(f"{path} cannot be read ({error.strerror or error}).") from None
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
        except (ValueError, RecursionError) as error:  # also of integers with thousands of digits
            raise StateError(f"{path} looks like JSON but is not valid ({error}).") from None
    try:
        # Mapped, so that of a large checkpoint only the small entries are read; old files cannot be mapped.
        if not _is_utf8(path):  # torch cannot open it by its name
            with path.open("rb") as file:
                return torch.load(file, map_location="cpu", weights_only=True)
        mapped = zipfile.is_zipfile(path)
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except OSError:
        raise
    except Exception as error:  # bytes that are no pickle raise anything
        raise StateError(
            f"{path} is neither JSON nor a file of torch.save that holds only tensors and plain values "
            f"({type(error).__name__}). Save the loader's state in a file of its own."
        ) from None


def _is_utf8(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_directory(path: Path) -> Any:
    """Return the entries of a torch.distributed.checkpoint that are not tensors, nested as saved."""
    # Slow to import, and only needed here.
    from torch.distributed.checkpoint._nested_dict import unflatten_state_dict  # noqa: PLC0415
    from torch.distributed.checkpoint.filesystem import FileSystemReader  # noqa: PLC0415
    from torch.distributed.checkpoint.metadata import BytesStorageMetadata  # noqa: PLC0415
    from torch.distributed.checkpoint.state_dict_loader import load  # noqa: PLC0415

    try:
        metadata = FileSystemReader(path).read_metadata()
        entries = metadata.state_dict_metadata.items()
        flat: dict[str, Any] = {key: 0 for key, kind in entries if isinstance(kind, BytesStorageMetadata)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is only one process, and no process group
            load(flat, checkpoint_id=path)
        paths: dict[str, Any] = {key: (key,) for key in flat} | (metadata.planner_data or {})
        return unflatten_state_dict(flat, paths)
    except Exception as error:  # bytes that are no pickle raise anything
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StateError(f"{path} is not a directory of torch.distributed.checkpoint ({what}).") from None
