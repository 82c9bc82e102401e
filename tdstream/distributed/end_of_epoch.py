"""Let ranks that do not know how much each of them has left end an epoch at the same step.

Before each batch every rank says whether it has one. If one of them has none, the epoch is over for all: what
the others still have is left out, as the last incomplete global batch of a corpus is. It is one tiny
collective on the CPU for each batch, and only where there are several ranks.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
import torch.distributed

from tdstream.core.errors import ConfigError

logger = logging.getLogger(__name__)


class EndOfEpochSync:
    """The ranks of this job; alone, and where no process group was made, every rank decides for itself.

    Args:
        several: Whether there are to be several ranks.
    """

    def __init__(self, *, several: bool) -> None:
        self._several = several
        self._group: Any = None
        self._warned = False

    def all_have(self, has: bool) -> bool:
        """Return whether all ranks have a batch; called by all of them."""
        if not self._several:
            return has
        if not is_initialized():
            self._warn()
            return has
        if self._group is None:
            self._group = _cpu_group()
        said = torch.tensor([int(has)])
        torch.distributed.all_reduce(said, torch.distributed.ReduceOp.MIN, group=self._group)
        return bool(said.item())

    def _warn(self) -> None:
        if not self._warned:
            logger.warning(
                "Several ranks, but torch.distributed has no process group: they cannot agree on an epoch's "
                "last batch, and may end it at different steps."
            )
        self._warned = True

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_group": None}


def is_initialized() -> bool:
    """Return whether this process belongs to a process group of several."""
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def refuse_workers_alone(*, agreed: bool, several: bool) -> None:
    """Refuse that a worker ends an epoch by itself.

    Args:
        agreed: Whether its loader lets ranks agree.
        several: Whether its loader's process belongs to several.

    Raises:
        ConfigError: If nobody would ask the other ranks.
    """
    if not agreed and (several or is_initialized()):
        raise ConfigError(
            "workers of a StatefulDataLoader cannot ask other ranks whether they have a batch left, and "
            "ranks whose streams differ would end an epoch at different steps and hang. Use "
            "tdstream.loader(source, ...), num_workers=0, or cache_dir=..."
        )


def _cpu_group() -> Any:
    """Return a group of all ranks that can speak of tensors on the CPU."""
    backend = str(torch.distributed.get_backend())
    if "gloo" in backend or "mpi" in backend:
        return torch.distributed.group.WORLD
    return torch.distributed.new_group(backend="gloo")
