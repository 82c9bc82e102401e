"""Numbers that processes share."""

from __future__ import annotations

from torch import Tensor


def shared(cells: Tensor) -> Tensor:
    """Move a tensor to shared memory; one that is there stays where it is."""
    moved: Tensor = cells.share_memory_()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
    return moved
