"""Bring batches to a device ahead of the trainer, in a thread; on CPU there is nothing to bring."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from tdstream.core.checks import check_int
from tdstream.core.errors import ConfigError
from tdstream.nodes.batch import Batch, PackedBatch

Moved = tuple[Batch, Any]
"""A batch, and the event after which the device has it."""

_POLL_SECONDS = 0.1


class Ahead(Iterator[Batch]):
    """An iterator that a thread keeps a few batches ahead of.

    Args:
        source: The batches; only the thread takes from it.
        move: Brings one to the device; called in the thread.
        prefetch: Batches that may lie ready, at least 1.
    """

    def __init__(self, source: Iterator[Any], move: Mover, prefetch: int) -> None:
        self._move, self._stop = move, threading.Event()
        self._ready: queue.Queue[Any] = queue.Queue(prefetch)
        # The thread knows the queue and not this object, which can so be collected, and then ends it.
        self._thread = threading.Thread(
            target=_fill, args=(source, move, self._ready, self._stop), name="tdstream-ahead", daemon=True
        )
        self._thread.start()

    def __next__(self) -> Batch:
        """Return the next batch; what the source raised, its end included, is raised here."""
        moved = self._ready.get()
        if isinstance(moved, BaseException):
            self._ready.put(moved)  # for a next call
            raise moved
        return self._move.arrived(moved)

    def close(self) -> None:
        """End the thread; batches that lie ready are dropped."""
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def __del__(self) -> None:
        """End the thread with the iterator."""
        self._stop.set()


class Mover:
    """Copies to a CUDA device: pinned, without blocking, on a stream of its own, in the storage type.

    Args:
        device: The device.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's

    def __call__(self, batch: Batch) -> Moved:
        """Start the copy; called in the thread."""
        with torch.cuda.stream(self._stream):
            moved = on_device(batch, self._copy)
            event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch's
            event.record(self._stream)
        return moved, event

    def arrived(self, moved: Moved) -> Batch:
        """Let the trainer's stream wait for the copy, and hold the memory until it is done with it."""
        batch, event = moved
        current = torch.cuda.current_stream(self.device)
        current.wait_event(event)
        for value in batch.values():
            if isinstance(value, Tensor):
                value.record_stream(current)
        return batch

    def _copy(self, tensor: Tensor) -> Tensor:
        return tensor.pin_memory().to(self.device, non_blocking=True)


class Transfer:
    """What a loader does to bring its batches to a device, one pass at a time.

    Args:
        device: A CUDA device; None or a CPU leaves batches as they are.
        prefetch: Batches that lie ready on the device, at least 1.

    Raises:
        ConfigError: If there is no such device here, or prefetch is below 1.
    """

    def __init__(self, device: str | torch.device | None, prefetch: int) -> None:
        target = _device(device)
        self._mover = None if target.type == "cpu" else Mover(target)
        self._prefetch = check_int("prefetch", prefetch, at_least=1)
        self._ahead: Ahead | None = None

    @property
    def needed(self) -> bool:
        """Whether batches have to be brought anywhere."""
        return self._mover is not None

    def begin(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Return the batches of a pass, on the device."""
        if self._mover is None:
            return batches
        self._ahead = Ahead(batches, self._mover, self._prefetch)
        return self._ahead

    def bring(self, batch: Batch) -> Batch:
        """Return one batch, on the device; it is not brought ahead."""
        return batch if self._mover is None else self._mover.arrived(self._mover(batch))

    def end(self) -> None:
        """End the thread of the last pass, which must not take from workers that begin another."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None


def _device(device: str | torch.device | None) -> torch.device:
    try:
        target = torch.device("cpu" if device is None else device)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(f"device={device!r} is no device: {str(error).splitlines()[0]}") from None
    if target.type not in ("cpu", "cuda") or (target.type == "cuda" and not torch.cuda.is_available()):
        raise ConfigError(f"device={device!r} is not here; batches go to a CUDA device, or stay on the CPU.")
    return target


def on_device(batch: Batch, copy: Callable[[Tensor], Tensor]) -> Batch:
    """Copy a batch: a packed one as the arrays it was stored in, which become tensors on the device.

    Args:
        batch: The batch.
        copy: Copies one tensor to the device.
    """
    if isinstance(batch, PackedBatch):
        unpack, parts = batch.packed
        return Batch(unpack(*(copy(torch.from_numpy(part)) for part in parts)))
    return Batch({name: copy(value) if isinstance(value, Tensor) else value for name, value in batch.items()})


def _fill(source: Iterator[Any], move: Mover, ready: queue.Queue[Any], stop: threading.Event) -> None:
    """Take from the source, move, and put; at last put the exception that ended it."""
    last: BaseException = StopIteration()
    try:
        while not stop.is_set():
            _put(ready, move(next(source)), stop)
    except BaseException as error:
        last = error
    _put(ready, last, stop)


def _put(ready: queue.Queue[Any], item: Any, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            ready.put(item, timeout=_POLL_SECONDS)
        except queue.Full:
            continue
        return
