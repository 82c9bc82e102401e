"""A vote of all ranks before each batch, so that ranks whose streams differ end an epoch at the same step.

Every rank says whether it has a batch. If one has none, the epoch is over for all, and what the others still
have is dropped, like the last incomplete global batch of a corpus. The vote is one tiny collective on the CPU
per batch, and only where there are several ranks.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
import torch.distributed

from tdstream.core.errors import ConfigError

logger = logging.getLogger(__name__)


class EndOfEpochSync:
    """The vote; alone, or without a process group, a rank decides for itself."""

    def __init__(self, *, several_ranks: bool) -> None:
        self._several_ranks = several_ranks
        self._group: Any = None
        self._warned = False

    def all_have(self, has: bool) -> bool:
        """Return whether all ranks have a batch; all of them call this."""
        if not self._several_ranks:
            return has
        if not is_initialized():
            self._warn()
            return has
        if self._group is None:
            self._group = _make_cpu_group()
        votes = torch.tensor([int(has)], device="cpu")
        torch.distributed.all_reduce(votes, torch.distributed.ReduceOp.MIN, group=self._group)
        return bool(votes.item())

    def _warn(self) -> None:
        if not self._warned:
            logger.warning(
                "There are several ranks, but torch.distributed has no process group: they cannot agree on "
                "an epoch's last batch and may end it at different steps."
            )
        self._warned = True

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_group": None}


def is_initialized() -> bool:
    """Return whether this process belongs to a process group of several."""
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def check_worker_can_sync(*, loader_syncs: bool, in_group: bool) -> None:
    """Refuse a worker that would end an epoch by itself, in a loader whose process belongs to a group."""
    if not loader_syncs and (in_group or is_initialized()):
        raise ConfigError(
            "workers of a StatefulDataLoader cannot ask other ranks whether they have a batch left, and "
            "ranks whose streams differ would end an epoch at different steps and hang. Use "
            "tdstream.loader(source, ...), num_workers=0, or cache_dir=..."
        )


def _make_cpu_group() -> Any:
    """Return a group of all ranks that works on CPU tensors."""
    backend = str(torch.distributed.get_backend())
    if "gloo" in backend or "mpi" in backend:
        return torch.distributed.group.WORLD
    return torch.distributed.new_group(backend="gloo")
