"""The data-parallel rank and loader worker of this process; the only reader of the environment."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from tdstream.core.checks import check_int
from tdstream.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Topology:
    """The data-parallel coordinate. Peers in tensor, pipeline or context parallelism share one."""

    dp_rank: int
    """0 .. dp_world_size - 1."""
    dp_world_size: int
    """Ranks that receive different rows."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A loader's worker process, or the main process where the loader has none."""

    id: int
    """0 .. count - 1."""
    count: int
    """Worker processes of this rank's loader; 1 where it has none."""
    is_process: bool
    """Whether this is a process of its own."""


def resolve_topology(dp_rank: int | None = None, dp_world_size: int | None = None) -> Topology:
    """Return the given coordinate, else torch.distributed's, else RANK and WORLD_SIZE's, else 0 of 1."""
    if (dp_rank is None) != (dp_world_size is None):
        raise ConfigError(
            f"dp_rank and dp_world_size are given together or not at all, got dp_rank={dp_rank} and "
            f"dp_world_size={dp_world_size}."
        )
    if dp_rank is not None and dp_world_size is not None:
        return _check_rank("dp_rank", dp_rank, "dp_world_size", dp_world_size)
    if (group := group_topology()) is not None:
        return group
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return _check_rank("RANK", _read_variable("RANK"), "WORLD_SIZE", _read_variable("WORLD_SIZE"))
    return Topology(0, 1)


def group_topology() -> Topology | None:
    """Return torch.distributed's coordinate; None where this process has no process group."""
    distributed = sys.modules.get("torch.distributed")  # Unless something has imported it, there is no group.
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return Topology(distributed.get_rank(), distributed.get_world_size())
    return None


def current_worker() -> Worker:
    """Return this process's place among the workers of the loader that runs it."""
    data = sys.modules.get("torch.utils.data")  # A loader's worker has imported it.
    info = None if data is None else data.get_worker_info()
    return Worker(0, 1, False) if info is None else Worker(info.id, info.num_workers, True)


def _check_rank(rank_name: str, rank: int, world_name: str, world_size: int) -> Topology:
    rank, world_size = check_int(rank_name, rank, at_least=0), check_int(world_name, world_size, at_least=1)
    if rank >= world_size:
        raise ConfigError(
            f"{rank_name} must be 0 to {world_size - 1} with {world_name}={world_size}, got {rank}."
        )
    return Topology(rank, world_size)


def _read_variable(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError:
        raise ConfigError(
            f"the environment variable {name} must be an integer, got {os.environ[name]!r}."
        ) from None
