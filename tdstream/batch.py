"""The batch: a dict that every trainer takes and that torch's default collation hands on as it is."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils.data._utils.collate import default_collate_fn_map


class Batch(dict[str, Tensor]):
    """A ready batch, {"input_ids": [B, T], "labels": [B, T]}.

    A loader whose own batch_size is 1 (the default) would stack a dataset's items once more, to [1, B, T].
    Batch is registered with torch's default collation, so that such a loader hands it on unchanged.
    """


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
default_collate_fn_map[Batch] = _collate_batches
