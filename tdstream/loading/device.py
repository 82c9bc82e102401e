"""Batches copied to a device ahead of the trainer, in a thread; on the CPU they stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from tdstream.core.checks import check_int
from tdstream.core.errors import ConfigError
from tdstream.core.read_ahead import ReadAhead
from tdstream.nodes.batch import Batch, PackedBatch

Moved = tuple[Batch, Any]
"""A batch, and the event after which the device has it."""


class Transfer:
    """Copies a loader's batches to a device, `prefetch` of them ahead, one pass at a time."""

    def __init__(self, device: str | torch.device | None, prefetch: int) -> None:
        target = _check_device(device)
        self._mover = None if target.type == "cpu" else Mover(target)
        self._prefetch = check_int("prefetch", prefetch, at_least=1)
        self._ahead: ReadAhead[Moved] | None = None

    @property
    def needed(self) -> bool:
        """Whether batches are copied at all."""
        return self._mover is not None

    def begin(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Return the batches of a pass, on the device."""
        if self._mover is None:
            return batches
        self._ahead = ReadAhead(map(self._mover.start, batches), self._prefetch)
        return map(self._mover.finish, self._ahead)

    def copy_now(self, batch: Batch) -> Batch:
        """Return one batch, on the device; not ahead of the trainer."""
        return batch if self._mover is None else self._mover.finish(self._mover.start(batch))

    def end(self) -> None:
        """End the thread of the last pass: it must not take from workers that begin another one."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None


class Mover:
    """Copies to a CUDA device: pinned, without blocking, on a stream of its own, in the storage type."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's

    def start(self, batch: Batch) -> Moved:
        """Start the copy; called in the thread."""
        with torch.cuda.stream(self._stream):
            moved = copy_batch(batch, self._copy)
            event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch's
            event.record(self._stream)
        return moved, event

    def finish(self, moved: Moved) -> Batch:
        """Make the trainer's stream wait for the copy, and keep the memory for as long as it uses it."""
        batch, event = moved
        current = torch.cuda.current_stream(self.device)
        current.wait_event(event)
        for value in batch.values():
            if isinstance(value, Tensor):
                value.record_stream(current)
        return batch

    def _copy(self, tensor: Tensor) -> Tensor:
        return tensor.pin_memory().to(self.device, non_blocking=True)


def copy_batch(batch: Batch, copy: Callable[[Tensor], Tensor]) -> Batch:
    """Copy a batch's tensors; of a packed batch the stored arrays, which are unpacked on the device."""
    if isinstance(batch, PackedBatch):
        unpack, parts = batch.packed
        return Batch(unpack(*(copy(torch.from_numpy(part)) for part in parts)))
    return Batch({name: copy(value) if isinstance(value, Tensor) else value for name, value in batch.items()})


def _check_device(device: str | torch.device | None) -> torch.device:
    try:
        target = torch.device("cpu" if device is None else device)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(f"device={device!r} is not a device: {str(error).splitlines()[0]}") from None
    if target.type not in ("cpu", "cuda") or (target.type == "cuda" and not torch.cuda.is_available()):
        raise ConfigError(
            f"device={device!r} is not available; batches go to a CUDA device or stay on the CPU."
        )
    return target
