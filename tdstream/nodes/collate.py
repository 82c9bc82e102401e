"""Turn stored rows into the tensors that a model is trained on."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tdstream.batch import Batch, PackedBatch
from tdstream.errors import ConfigError
from tdstream.node import Rows
from tdstream.rows import MarkedRows
from tdstream.state import differences, refuse

IGNORED = -100
"""The label that torch's cross entropy leaves out."""
LABELS = ("next", "same")


class Collate:
    """Inputs and labels from rows.

    Args:
        batched: Whether an item is a batch; if not, rows hold one sample, which is handed out as a plain
            dict, so that the caller's loader can stack it.
        labels: "next": labels are the inputs one token later. "same": they are the inputs, for models that
            shift them inside.

    Raises:
        ConfigError: If labels is another word.
    """

    name = "collate"

    def __init__(self, *, batched: bool, labels: str = "next") -> None:
        if labels not in LABELS:
            raise ConfigError(f'labels must be "next" or "same", got {labels!r}.')
        self.batched, self.labels = batched, labels

    def __repr__(self) -> str:
        return f"Collate({'batches' if self.batched else 'samples'})"

    stays_packed = False
    """Whether batches that travel arrive as rows, to be unpacked on a device; set by the loader."""

    def __call__(self, rows: Rows | MarkedRows, *, travels: bool = False) -> dict[str, Tensor]:
        """Return an item's tensors: [B, T] or [B] of a batch, [T] or a scalar of a sample.

        Plain rows give {"input_ids", "labels"}, int64 and contiguous. Marked rows add "attention_mask",
        int64, 1 where an input is a token and 0 where it is padding, and "is_natural_stop", bool, whether the
        row is its document's last; labels are -100 at padding and where an earlier row has them.

        Args:
            rows: Samples in the storage type, [B, T + 1]; one row where items are samples.
            travels: Whether the item goes to another process; a batch then goes as its rows.
        """
        unpack, parts = self._plan(rows)
        if self.batched and travels:
            return PackedBatch(unpack, *parts, stays_packed=self.stays_packed)
        tensors = unpack(*parts)
        return Batch(tensors) if self.batched else {name: tensor[0] for name, tensor in tensors.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return what decides an item's form."""
        return {"labels": self.labels}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Compare a saved identity with this node's.

        Raises:
            StateError: If a field differs.
        """
        refuse(self.differences(state))

    def differences(self, saved: dict[str, Any]) -> list[str]:
        """Return a phrase for each field of a saved identity that is not this node's."""
        return differences(self.name, saved, self.state_dict())

    def _plan(self, rows: Rows | MarkedRows) -> tuple[Any, tuple[Any, ...]]:
        """Return a function that makes tensors, and the arrays that it takes."""
        if isinstance(rows, MarkedRows):
            shift = 1 if self.labels == "next" else 0
            parts = (rows.tokens, rows.lengths, rows.overlaps, rows.stops)
            return partial(marked_inputs_and_labels, shift), parts
        return (inputs_and_labels if self.labels == "next" else inputs_twice), (rows,)


def inputs_and_labels(rows: Rows | Tensor) -> dict[str, Tensor]:
    """Return the int64 tensors [B, T] of rows [B, T + 1]: the first T tokens, and the last T."""
    return {"input_ids": _as_tensor(rows[:, :-1]), "labels": _as_tensor(rows[:, 1:])}


def inputs_twice(rows: Rows | Tensor) -> dict[str, Tensor]:
    """Return the int64 tensors [B, T] of rows [B, T + 1]: the first T tokens, and the same again."""
    return {"input_ids": _as_tensor(rows[:, :-1]), "labels": _as_tensor(rows[:, :-1])}


def marked_inputs_and_labels(
    shift: int, tokens: Any, lengths: Any, overlaps: Any, stops: Any
) -> dict[str, Tensor]:
    """Return the tensors of marked rows; the arguments are MarkedRows' fields, as arrays or as tensors.

    Args:
        shift: 1 where labels are the next tokens, 0 where they are the inputs.
        tokens: [B, T + 1].
        lengths: [B].
        overlaps: [B].
        stops: [B].
    """
    rows, ends, begins = _as_tensor(tokens), _as_tensor(lengths)[:, None], _as_tensor(overlaps)[:, None]
    inputs = rows[:, :-1].contiguous()
    places = torch.arange(inputs.shape[1], device=inputs.device)
    has_label = (places >= begins) & (places + shift < ends)
    labels = rows[:, shift : shift + inputs.shape[1]].masked_fill(~has_label, IGNORED)
    natural = stops if isinstance(stops, Tensor) else torch.from_numpy(np.array(stops))
    return {
        "input_ids": inputs,
        "labels": labels,
        "attention_mask": (places < ends).to(torch.int64),
        "is_natural_stop": natural,
    }


def _as_tensor(tokens: Any) -> Tensor:
    if isinstance(tokens, Tensor):
        return tokens.to(torch.int64).contiguous()
    return torch.from_numpy(tokens.astype(np.int64, order="C"))
