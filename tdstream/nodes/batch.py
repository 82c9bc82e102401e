"""The batch: a dict that every trainer takes, and that leaves a loader's worker as small as it is stored.

A worker's batch of two int64 tensors would travel as two pieces of shared memory, each a file descriptor and
fresh pages that the kernel must clear. The stored rows, uint16 or uint32, are 4 to 8 times smaller and go
through the loader's pipe as plain bytes; they become tensors where they arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data._utils.collate import default_collate_fn_map

_Flat = tuple[bytes, str, tuple[int, ...]]  # an array's content, type and shape


class Batch(dict[str, Any]):
    """A ready batch, {"input_ids": [B, T], "labels": [B, T], ...}: tensors, and the int "max_seqlen".

    A loader whose own batch_size is 1 (the default) would stack a dataset's items once more, to [1, B, T].
    Batch is registered with torch's default collation, so that such a loader hands it on unchanged.
    """


class PackedBatch(Batch):
    """A batch that has not been unpacked: pickled, it travels as its parts; touched, it becomes a Batch.

    Args:
        unpack: A function of a module, from the parts to the batch's tensors.
        parts: What it takes; arrays, in the type that they are stored in.
        stays_packed: Whether it arrives packed as well, to be unpacked on a device.
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
        # As bytes: numpy's own way of pickling an array costs more than reading the rows did.
        return arrive, (unpack, *((part.tobytes(), part.dtype.str, part.shape) for part in parts))

    def _unpack(self) -> None:
        unpack, parts = self.packed
        del self.packed, self._stays_packed
        self.__class__ = Batch  # type: ignore[assignment]  # from now on it is nothing else
        self.update(unpack(*parts))


def _unpacked(unpack: Callable[..., dict[str, Any]], *parts: _Flat) -> Batch:
    return Batch(unpack(*map(_array, parts)))


def _packed_again(unpack: Callable[..., dict[str, Any]], *parts: _Flat) -> PackedBatch:
    # Copied, since torch takes no array that must not be written to, such as one over received bytes.
    return PackedBatch(unpack, *(_array(part).copy() for part in parts), stays_packed=True)


def _array(flat: _Flat) -> NDArray[Any]:
    content, dtype, shape = flat
    return np.frombuffer(content, dtype).reshape(shape)


def _touching(name: str) -> Callable[..., Any]:
    """Return a method that unpacks the batch and then does what a dict does."""

    def method(self: PackedBatch, *args: Any, **kwargs: Any) -> Any:
        self._unpack()
        return getattr(self, name)(*args, **kwargs)

    method.__name__ = name
    return method


for _name in (
    *("__contains__", "__delitem__", "__eq__", "__getitem__", "__ior__", "__iter__", "__len__", "__ne__"),
    *(
        "__or__",
        "__repr__",
        "__reversed__",
        "__ror__",
        "__setitem__",
        "clear",
        "copy",
        "get",
        "items",
        "keys",
    ),
    *("pop", "popitem", "setdefault", "update", "values"),
):
    setattr(PackedBatch, _name, _touching(_name))


def hand_on(batch: Batch) -> Batch:
    """Return the batch as it is; the collate_fn of a loader that does not batch."""
    return batch


def _collate_batches(batches: list[Batch], **_: Any) -> Batch:
    """Hand on the only batch of the list; called by torch's default_collate."""
    if len(batches) != 1:
        raise ValueError(
            f"the loader's batch_size is {len(batches)} on top of the batches that build(batch_size=...) "
            f"has already made; that would group the batches of one worker and change the order. "
            f"Leave the loader's batch_size at 1 or None, or build without batch_size."
        )
    return batches[0]


# At import, so that a spawned worker, which imports this module to unpickle a batch's class, has it too.
default_collate_fn_map[Batch] = default_collate_fn_map[PackedBatch] = _collate_batches


_LARGEST = 16 << 20  # bytes; glibc learns from no larger pieces than 32 MB


@lru_cache(maxsize=1)
def keep_freed_memory() -> None:
    """Let this process's malloc keep up to 32 MB that are free at its heap's end.

    glibc gives them back as soon as they are twice as much as the largest piece that was ever freed. A batch
    is several tensors, which together are more than twice one of them: each batch's pages would be asked for
    anew, and cleared by the kernel, which costs several times more than reading the batch. A piece that is
    freed once, and never written to, teaches it otherwise.
    """
    np.empty(_LARGEST, np.uint8)
