"""The batch: a dict that every trainer takes, and that leaves a worker process in the storage type.

A worker would send a batch of two int64 tensors as two pieces of shared memory, each with a file descriptor
and fresh pages that the kernel must clear. The stored rows, uint16 or uint32, are 4 to 8 times smaller: they
are sent as bytes through the loader's pipe, and become tensors on arrival.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data._utils.collate import default_collate_fn_map

from tdstream.core.errors import ConfigError
from tdstream.distributed.shared_memory import is_shared, share
from tdstream.distributed.topology import current_worker

logger = logging.getLogger(__name__)

_Flat = tuple[bytes, str, tuple[int, ...]]  # an array's content, type and shape


class Batch(dict[str, Any]):
    """A batch, {"input_ids": [B, T], "labels": [B, T], ...}: tensors, and the int "max_seqlen".

    A loader whose own batch_size is 1 (the default) would stack batches again, to [1, B, T]. Batch is
    registered with torch's default collation, so that such a loader returns it unchanged.

    A worker sends the tensors in shared memory or, while that is full, as bytes: torch would lose the batch
    in a thread, and the loader would wait for it for ever.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        if not current_worker().is_process:
            return type(self), (dict(self),)
        return _received, ({name: _send(value) for name, value in self.items()},)


class PackedBatch(Batch):
    """A batch that is not unpacked yet: it is pickled as its parts, and becomes a Batch when it is used.

    `unpack`, a module's function, makes the tensors from the parts, arrays in the storage type. A batch that
    `stays_packed` also arrives packed, to be unpacked on a device.
    """

    def __init__(
        self, unpack: Callable[..., dict[str, Any]], *parts: NDArray[Any], stays_packed: bool = False
    ) -> None:
        super().__init__()
        self.packed = (unpack, parts)
        self._stays_packed = stays_packed

    def __reduce__(self) -> tuple[Any, ...]:
        unpack, parts = self.packed
        arrive = _packed_again if self._stays_packed else _unpacked
        # As bytes, since numpy's own pickling of an array costs more than reading the rows.
        return arrive, (unpack, *((part.tobytes(), part.dtype.str, part.shape) for part in parts))

    def _unpack(self) -> None:
        unpack, parts = self.packed
        del self.packed, self._stays_packed
        self.__class__ = Batch  # type: ignore[assignment]
        self.update(unpack(*parts))


def _unpacked(unpack: Callable[..., dict[str, Any]], *parts: _Flat) -> Batch:
    return Batch(unpack(*map(_array, parts)))


def _packed_again(unpack: Callable[..., dict[str, Any]], *parts: _Flat) -> PackedBatch:
    # A copy, since torch takes no read-only array, such as one over received bytes.
    return PackedBatch(unpack, *(_array(part).copy() for part in parts), stays_packed=True)


def _array(flat: _Flat) -> NDArray[Any]:
    content, dtype, shape = flat
    return np.frombuffer(content, dtype).reshape(shape)


class _Sent(NamedTuple):
    """A tensor as bytes."""

    flat: _Flat


def _send(value: Any) -> Any:
    """Return a tensor in shared memory or, if that is full, as bytes; anything else as it is."""
    if not isinstance(value, Tensor) or value.device.type != "cpu" or is_shared(share(value)):
        return value
    _warn_of_full_memory()
    array = value.detach().numpy()
    return _Sent((array.tobytes(), array.dtype.str, array.shape))


@lru_cache(maxsize=1)
def _warn_of_full_memory() -> None:
    logger.warning(
        "Shared memory (/dev/shm) is full: workers send batches as bytes, which is slower. Give the "
        "container more (docker run --shm-size=1g), or use tdstream.loader, whose batches need none."
    )


def _received(values: dict[str, Any]) -> Batch:
    arrived = {
        name: torch.from_numpy(_array(value.flat).copy()) if isinstance(value, _Sent) else value
        for name, value in values.items()
    }
    return Batch(arrived)


def _touching(name: str) -> Callable[..., Any]:
    """Return a method that unpacks the batch and then calls the dict's method."""

    def method(self: PackedBatch, *args: Any, **kwargs: Any) -> Any:
        self._unpack()
        return getattr(self, name)(*args, **kwargs)

    method.__name__ = name
    return method


_ADDED = {*dir(dict)} - {*dir(object), "__class_getitem__", "fromkeys"}
for _name in _ADDED | {"__eq__", "__ne__", "__repr__"}:
    setattr(PackedBatch, _name, _touching(_name))


def hand_on(batch: Batch) -> Batch:
    """Return the batch unchanged; the collate_fn of a loader that does not batch."""
    return batch


def _collate_batches(batches: list[Batch], **_: Any) -> Batch:
    """Return the only batch of a list; called by torch's default_collate."""
    if len(batches) != 1:
        raise ConfigError(
            f"the loader's batch_size is {len(batches)}, on top of the batches that build(batch_size=...) "
            f"makes; that would group the batches of one worker and change the order. "
            f"Leave the loader's batch_size at 1 or None, or build without batch_size."
        )
    return batches[0]


# At import, so that it also applies in a spawned worker, which imports this module to unpickle a batch.
default_collate_fn_map[Batch] = default_collate_fn_map[PackedBatch] = _collate_batches


_LARGEST = 16 << 20  # bytes; glibc does not learn from pieces above 32 MB


@lru_cache(maxsize=1)
def keep_freed_memory() -> None:
    """Let this process's malloc keep up to 32 MB of freed memory.

    glibc returns memory to the kernel once twice the largest piece ever freed is free. The tensors of a batch
    exceed that, so the kernel would clear new pages for each batch, which costs several times more than
    reading it. Freeing one large piece, never written to, raises the limit.
    """
    np.empty(_LARGEST, np.uint8)
