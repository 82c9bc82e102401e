"""Topology: the arguments, else torch.distributed, else the environment, else alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream
from helpers_corpus import write_corpus
from tdstream.core.errors import ConfigError, GeometryError
from tdstream.distributed.topology import (
    _LAUNCHERS,
    Topology,
    Worker,
    current_worker,
    find_topology,
    resolve_topology,
)


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No launcher's variables."""
    for rank, sizes in [*_LAUNCHERS, ("RANK", ("WORLD_SIZE",))]:
        for name in (rank, *sizes):
            monkeypatch.delenv(name, raising=False)


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


LAUNCHED = [
    {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"},
    {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "2"},
    {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
    {"PMI_RANK": "0", "PMI_SIZE": "2"},
    {"WORLD_SIZE": "2", "LOCAL_RANK": "1"},
    {"RANK": "1"},
]


@pytest.fixture
def corpus(tmp_path):
    """A corpus of 80 tokens."""
    return write_corpus(tmp_path / "corpus", np.arange(80, dtype="<u2"), [40, 40])


@pytest.fixture
def join_group():
    """A function that makes the process group of rank 1 of 2; the other rank is not there."""
    yield lambda: dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize("variables", LAUNCHED, ids=",".join)
@pytest.mark.parametrize("source", ["corpus", "text", "stream"])
def test_a_launcher_that_tells_no_rank_is_refused(corpus, tokenizer_dir, monkeypatch, variables, source):
    """As srun and mpirun without RANK: each process would read all rows. Coordinates that are given count."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    given = {"corpus": corpus, "text": ["some words"] * 40, "stream": lambda: ["some words"] * 40}[source]
    options = {"tokenizer": None if source == "corpus" else str(tokenizer_dir), "seq_len": 4}
    with pytest.raises(ConfigError, match=r"every process would read the same rows\. Call torch\.dist"):
        tdstream.loader(given, batch_size=2, **options)
    tdstream.loader(given, batch_size=2, dp_rank=0, dp_world_size=1, **options)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert resolve_topology() == Topology(1, 3)


@pytest.mark.parametrize("variables", LAUNCHED, ids=",".join)
def test_what_is_only_shown_refuses_nothing(monkeypatch, variables):
    """Bars, and preparations in a batch script, which has the variables of a launcher as well."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert find_topology() == Topology(0, 1)


def test_one_process_of_a_launcher_is_alone(monkeypatch):
    """As srun with one task."""
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "8")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    assert resolve_topology() == Topology(0, 1)


OPENED = {
    "loader": lambda corpus, tokenizer: tdstream.loader(corpus, seq_len=4, batch_size=2),
    "workers": lambda corpus, tokenizer: tdstream.loader(corpus, seq_len=4, batch_size=2, num_workers=1),
    "mixture": lambda corpus, tokenizer: tdstream.loader({"a": (corpus, 1)}, seq_len=4, batch_size=2),
    "stream": lambda corpus, tokenizer: tdstream.loader(
        lambda: ["some words"] * 40, tokenizer=tokenizer, seq_len=4, batch_size=2
    ),
    "pipeline": lambda corpus, tokenizer: tdstream.build(corpus, seq_len=4),
    "stateful": lambda corpus, tokenizer: StatefulDataLoader(
        tdstream.build(corpus, seq_len=4, batch_size=2), batch_size=None, num_workers=1
    ),
    "spawned": lambda corpus, tokenizer: StatefulDataLoader(
        tdstream.build(corpus, seq_len=4, batch_size=2), batch_size=None, num_workers=1,
        multiprocessing_context="spawn",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", OPENED)
def test_a_group_made_later_must_agree(corpus, tokenizer_dir, join_group, kind):
    """A loader that took itself for 0 of 1 does not serve rank 0's rows to rank 1."""
    opened = OPENED[kind](corpus, str(tokenizer_dir))
    join_group()
    with pytest.raises(GeometryError, match=r"this process is rank 1 of 2, but .* as rank 0 of 1"):
        next(iter(opened))


def test_a_group_made_later_may_agree(corpus, join_group, monkeypatch):
    """What RANK said, what was given, and what is opened afterwards."""
    given = tdstream.loader(corpus, seq_len=4, batch_size=2, dp_rank=0, dp_world_size=1)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    told = tdstream.loader(corpus, seq_len=4, batch_size=2)
    join_group()
    rows = [next(iter(one))["input_ids"][0, 0].item() for one in (told, given)]
    assert rows == [2 * 5, 0]
    assert next(iter(tdstream.loader(corpus, seq_len=4, batch_size=2)))["input_ids"][0, 0] == 10
    assert next(iter(tdstream.DistributedDataset(corpus, seq_len=4)))["input_ids"][0] == 5
