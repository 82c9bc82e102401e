"""What accelerate is told of a loader that its `prepare` took; accelerate is never imported here."""

from __future__ import annotations

import sys
from typing import Any

import torch


def add_to_gradient_state(loader: Any) -> None:
    """Name a loader as the one that is being iterated: `accumulate` then steps after its last batch."""
    state = _gradient_state()
    if state is not None and not any(known is loader for known in state.dataloader_references):
        state._add_dataloader(loader)


def remove_from_gradient_state(loader: Any) -> None:
    """Note that a loader's pass has ended, or was left."""
    state = _gradient_state()
    if state is not None:
        state._remove_dataloader(loader)


def accelerate_device() -> torch.device | None:
    """Return the CUDA device of accelerate's process; None if it has another one."""
    state: Any = getattr(sys.modules.get("accelerate.state"), "PartialState", None)
    found = None if state is None else getattr(state(), "device", None)
    return found if isinstance(found, torch.device) and found.type == "cuda" else None


def _gradient_state() -> Any:
    state: Any = getattr(sys.modules.get("accelerate.state"), "GradientState", None)
    return None if state is None else state()
