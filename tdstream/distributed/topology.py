"""The data-parallel rank and loader worker of this process; the only reader of the environment."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field

from tdstream.core.checks import check_int
from tdstream.core.errors import ConfigError, GeometryError

_LAUNCHERS = (
    ("SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")),
    ("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",)),
    ("PMI_RANK", ("PMI_SIZE",)),
    ("MV2_COMM_WORLD_RANK", ("MV2_COMM_WORLD_SIZE",)),
    ("PALS_RANKID", ("PALS_SIZE",)),
    ("JSM_NAMESPACE_RANK", ("JSM_NAMESPACE_SIZE",)),
    ("FLUX_TASK_RANK", ("FLUX_JOB_SIZE",)),
)
"""Where launchers that start several processes without RANK and WORLD_SIZE tell which one this is."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The data-parallel coordinate. Peers in tensor, pipeline or context parallelism share one."""

    dp_rank: int
    """0 .. dp_world_size - 1."""
    dp_world_size: int
    """Ranks that receive different rows."""
    found: bool = field(default=False, compare=False, repr=False)
    """Whether it was found, not given: a process group that is made later must agree with it."""


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
    """Return the given coordinate, else torch.distributed's, else RANK and WORLD_SIZE's, else 0 of 1.

    Raises ConfigError if only a launcher says that there are several processes: whether they are ranks, it
    does not say, and each would read all rows.
    """
    if (dp_rank is None) != (dp_world_size is None):
        raise ConfigError(
            f"dp_rank and dp_world_size are given together or not at all, got dp_rank={dp_rank} and "
            f"dp_world_size={dp_world_size}."
        )
    if dp_rank is not None and dp_world_size is not None:
        return _check_rank("dp_rank", dp_rank, "dp_world_size", dp_world_size)
    known = _known_topology()
    if known is None:
        _check_alone()
    return known or Topology(0, 1, found=True)


def find_topology() -> Topology:
    """Return the coordinate as `resolve_topology` does; 0 of 1 where only a launcher says otherwise."""
    return _known_topology() or Topology(0, 1, found=True)


def _known_topology() -> Topology | None:
    """Return torch.distributed's coordinate, else RANK and WORLD_SIZE's; None if there is neither."""
    group = group_topology()
    if group is None and "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        rank, world_size = _read_variable("RANK"), _read_variable("WORLD_SIZE")
        return _check_rank("RANK", rank, "WORLD_SIZE", world_size, found=True)
    return group


def _check_alone() -> None:
    """Refuse to take this process for the only one where its environment says that there are others."""
    said = ""
    if _read_variable("WORLD_SIZE", 1) > 1 or _read_variable("RANK", 0) > 0:
        there, missing = ("RANK", "WORLD_SIZE") if "RANK" in os.environ else ("WORLD_SIZE", "RANK")
        said = f"{there}={os.environ[there]} is set, but {missing} is not"
    for rank_name, size_names in _LAUNCHERS:
        size_name = next((name for name in size_names if name in os.environ), "")
        if rank_name in os.environ and size_name and _read_variable(size_name) > 1:
            rank, size = os.environ[rank_name], os.environ[size_name]
            said = said or (
                f"this is process {rank} of {size} ({rank_name}, {size_name}), but neither a process group "
                f"of torch.distributed nor RANK and WORLD_SIZE say which rank it is"
            )
    if said:
        raise ConfigError(
            f"{said}, so every process would read the same rows. Call "
            f"torch.distributed.init_process_group before, set RANK and WORLD_SIZE, or pass dp_rank and "
            f"dp_world_size (0 and 1 for a process that reads all rows)."
        )


def check_group_agrees(topology: Topology) -> None:
    """Refuse a coordinate that was found before the process group was made, if that says something else."""
    group = group_topology()
    if topology.found and group is not None and group != topology:
        raise GeometryError(
            f"this process is rank {group.dp_rank} of {group.dp_world_size}, but its data was opened before "
            f"torch.distributed.init_process_group, as rank {topology.dp_rank} of {topology.dp_world_size}: "
            f"ranks would read the same rows. Open it afterwards, or pass dp_rank and dp_world_size."
        )


def check_dealt_once(topology: Topology) -> None:
    """Refuse a coordinate that was found, not given, where accelerate deals out a dataset's items again."""
    state = getattr(sys.modules.get("accelerate.state"), "PartialState", None)
    processes = getattr(state, "_shared_state", {}).get("num_processes", 1)
    if topology.found and topology.dp_world_size > 1 and processes > 1:
        raise ConfigError(
            f"accelerate runs {processes} processes and deals out once more what a dataset yields: each rank "
            f"would see a part of its part. Use tdstream.loader(source, batch_size=...), which accelerate "
            f"takes as it is. Or, for a loader that accelerate prepares, pass dp_rank=0 and dp_world_size=1; "
            f"for one that it does not, pass dp_rank={topology.dp_rank} and "
            f"dp_world_size={topology.dp_world_size}."
        )


def group_topology() -> Topology | None:
    """Return torch.distributed's coordinate; None where this process has no process group."""
    distributed = sys.modules.get("torch.distributed")  # Unless something has imported it, there is no group.
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return Topology(distributed.get_rank(), distributed.get_world_size(), found=True)
    return None


def current_worker() -> Worker:
    """Return this process's place among the workers of the loader that runs it."""
    data = sys.modules.get("torch.utils.data")  # A loader's worker has imported it.
    info = None if data is None else data.get_worker_info()
    return Worker(0, 1, False) if info is None else Worker(info.id, info.num_workers, True)


def _check_rank(
    rank_name: str, rank: int, world_name: str, world_size: int, *, found: bool = False
) -> Topology:
    rank, world_size = check_int(rank_name, rank, at_least=0), check_int(world_name, world_size, at_least=1)
    if rank >= world_size:
        raise ConfigError(
            f"{rank_name} must be 0 to {world_size - 1} with {world_name}={world_size}, got {rank}."
        )
    return Topology(rank, world_size, found)


def _read_variable(name: str, default: int | None = None) -> int:
    if default is not None and name not in os.environ:
        return default
    try:
        return int(os.environ[name])
    except ValueError:
        raise ConfigError(
            f"the environment variable {name} must be an integer, got {os.environ[name]!r}."
        ) from None
