"""Topology: the arguments, else torch.distributed, else the environment, else alone."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from tdstream.core.errors import ConfigError
from tdstream.distributed.topology import Topology, Worker, current_worker, resolve_topology


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No launcher's variables."""
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)


@pytest.fixture
def environment(monkeypatch):
    """As torchrun sets it for rank 2 of 4."""
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")


def test_alone_is_rank_0_of_1():
    """Nothing says otherwise."""
    assert resolve_topology() == Topology(0, 1)


def test_the_environment_counts(environment):
    """RANK and WORLD_SIZE, as torchrun sets them."""
    assert resolve_topology() == Topology(2, 4)


def test_torch_distributed_counts_more(environment, tmp_path):
    """An initialised process group knows better than the variables."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        assert resolve_topology() == Topology(0, 1)
    finally:
        dist.destroy_process_group()


def test_arguments_count_most(environment):
    """Tensor-parallel peers pass the data-parallel coordinate that they share."""
    assert resolve_topology(1, 2) == Topology(1, 2)


@pytest.mark.parametrize(("rank", "world"), [(0, None), (None, 2)])
def test_half_a_coordinate_is_refused(rank, world):
    """Rank and world size are given together or not at all."""
    with pytest.raises(ConfigError, match="together or not at all"):
        resolve_topology(rank, world)


@pytest.mark.parametrize(
    ("rank", "world", "message"),
    [
        (2, 2, "dp_rank must be 0 to 1 with dp_world_size=2, got 2"),
        (-1, 2, "dp_rank must be an integer of at least 0, got -1"),
        (0, 0, "dp_world_size must be an integer of at least 1, got 0"),
    ],
)
def test_a_rank_outside_the_world_is_refused(rank, world, message):
    """With both numbers."""
    with pytest.raises(ConfigError, match=message):
        resolve_topology(rank, world)


def test_a_broken_environment_is_refused(monkeypatch):
    """By the variable's name."""
    monkeypatch.setenv("RANK", "first")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ConfigError, match="RANK must be an integer, got 'first'"):
        resolve_topology()
    monkeypatch.setenv("RANK", "4")
    with pytest.raises(ConfigError, match="RANK must be 0 to 3 with WORLD_SIZE=4, got 4"):
        resolve_topology()


def test_the_main_process_is_the_only_worker():
    """Where there are no others."""
    assert current_worker() == Worker(0, 1, False)
