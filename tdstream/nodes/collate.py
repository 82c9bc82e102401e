"""Turn stored rows into the tensors that a model is trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tdstream.batch import Batch, PackedBatch
from tdstream.node import Rows
from tdstream.state import differences, refuse


class Collate:
    """Inputs and labels from rows: labels are the inputs one token later.

    Args:
        batched: Whether an item is a batch; if not, rows hold one sample, which is handed out as a plain
            dict, so that the caller's loader can stack it.
    """

    name = "collate"

    def __init__(self, *, batched: bool) -> None:
        self.batched = batched

    def __repr__(self) -> str:
        return f"Collate({'batches' if self.batched else 'samples'})"

    stays_packed = False
    """Whether batches that travel arrive as rows, to be unpacked on a device; set by the loader."""

    def __call__(self, rows: Rows, *, travels: bool = False) -> dict[str, Tensor]:
        """Return {"input_ids", "labels"}, int64 and contiguous: [B, T], or [T] each of a sample.

        Args:
            rows: Samples in the storage type, [B, T + 1]; one row where items are samples.
            travels: Whether the item goes to another process; a batch then goes as its rows.
        """
        if self.batched and travels:
            return PackedBatch(inputs_and_labels, rows, stays_packed=self.stays_packed)
        if self.batched:
            return Batch(inputs_and_labels(rows))
        return {name: tensor[0] for name, tensor in inputs_and_labels(rows).items()}

    def state_dict(self) -> dict[str, Any]:
        """Return what decides an item's form."""
        return {"labels": "next"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Compare a saved identity with this node's.

        Raises:
            StateError: If a field differs.
        """
        refuse(self.differences(state))

    def differences(self, saved: dict[str, Any]) -> list[str]:
        """Return a phrase for each field of a saved identity that is not this node's."""
        return differences(self.name, saved, self.state_dict())


def inputs_and_labels(rows: Rows | Tensor) -> dict[str, Tensor]:
    """Return the int64 tensors [B, T] of rows [B, T + 1]: the first T tokens, and the last T."""
    return {"input_ids": _as_tensor(rows[:, :-1]), "labels": _as_tensor(rows[:, 1:])}


def _as_tensor(tokens: Rows | Tensor) -> Tensor:
    if isinstance(tokens, Tensor):
        return tokens.to(torch.int64).contiguous()
    return torch.from_numpy(tokens.astype(np.int64, order="C"))
