"""Count what a batch holds, whatever kind of batch it is, without making a GPU wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor


def tokens_in(batch: Any) -> int:
    """Return the tokens of a batch; 0 where nothing in it looks like tokens.

    Args:
        batch: A mapping: the ones in `attention_mask` count, so padding does not; without a mask every
            element of `labels`, else of `input_ids`. Or a tensor of integers, or a sequence that begins with
            one: its elements. A mask on a GPU counts with its padding: to read it would stop the GPU.
    """
    if isinstance(batch, Mapping):
        mask = batch.get("attention_mask")
        if isinstance(mask, Tensor):
            return int(mask.count_nonzero()) if mask.device.type == "cpu" else mask.numel()
        named = (batch.get(name) for name in ("labels", "input_ids"))
        return next((rows.numel() for rows in named if isinstance(rows, Tensor)), 0)
    if isinstance(batch, (list, tuple)) and batch:
        batch = batch[0]
    return batch.numel() if isinstance(batch, Tensor) and not batch.is_floating_point() else 0


def bytes_in(batch: Any) -> int:
    """Return the bytes of all tensors of a batch: a mapping or a sequence of tensors, or a tensor."""
    if isinstance(batch, Tensor):
        return batch.numel() * batch.element_size()
    parts: Iterable[Any] = ()
    if isinstance(batch, Mapping):
        parts = batch.values()
    elif isinstance(batch, (list, tuple)):
        parts = batch
    return sum(bytes_in(part) for part in parts)
