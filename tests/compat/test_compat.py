"""The drop-in for the reference loader: its attributes, what can be set, and a script of its users."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream
from helpers_corpus import write_corpus

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--local_addr=127.0.0.1", "--nproc_per_node=2"]
TORCHRUN += ["--run_path", "--start_method=fork"]
SAMPLES, BLOCK = 37, 5
SPAWNED = pytest.param((1, False, "spawn"), marks=pytest.mark.exhaustive)  # seconds for each pass
WORKERS = [(0, False, None), (2, False, None), (2, True, None), SPAWNED]


@pytest.fixture
def corpus(tmp_path):
    """37 samples of 4 + 1 tokens and 3 tokens more, in two shards; sample i begins with token 5 i."""
    return write_corpus(tmp_path / "corpus", np.arange(188, dtype=np.uint16), [120, 68])


def order(seed, epoch, samples=SAMPLES):
    """Return the reference loader's order of an epoch."""
    return np.random.default_rng(seed + epoch * 1000003).permutation(samples).tolist()


def one_pass(loader):
    """Return the indices of the samples of one pass, as its workers deal them out."""
    return [int(token) // BLOCK for batch in loader for token in batch["input_ids"][:, 0]]


def make_loader(dataset, setup, kind=StatefulDataLoader):
    """Return a loader of single samples, whose order no batch of a worker hides."""
    workers, persistent, method = setup
    how = {"num_workers": workers, "persistent_workers": persistent, "multiprocessing_context": method}
    return kind(dataset, batch_size=1, **how)


def test_the_attributes_of_the_reference_loader_are_there(corpus):
    """All public ones, with the values that its definition gives them."""
    dataset = tdstream.DistributedDataset(str(corpus), seq_len=4, shuffle=True, seed=7, global_skip_batches=3)
    expected = {
        "data_dir": str(corpus), "seq_len": 4, "block_size": 5, "shuffle": True, "seed": 7, "epoch": 0,
        "global_skip_batches": 3, "strict": True, "dp_rank": None, "dp_world_size": None, "dtype": np.uint16,
        "chunk_files": [f"{corpus}/chunk_000000.bin", f"{corpus}/chunk_000001.bin"],
        "chunk_token_counts": [120, 68], "num_chunks": 2, "chunk_starts": [0, 120], "total_tokens": 188,
        "total_samples": 37,
    }  # fmt: skip
    assert {name: getattr(dataset, name) for name in expected} == expected
    assert dataset.dtype is np.uint16
    assert tdstream.DistributedDataset(corpus, 4, global_skip_batches=None).global_skip_batches == 0


@pytest.mark.parametrize("setup", WORKERS, ids=str)
def test_the_next_pass_follows_what_was_set(setup, corpus):
    """skip, seed, shuffle and epoch, with workers that were forked, spawned, or live on."""
    dataset = tdstream.DistributedDataset(corpus, seq_len=4, shuffle=True, seed=7, global_skip_batches=30)
    loader = make_loader(dataset, setup)
    assert one_pass(loader) == order(7, 0)[30:]
    dataset.global_skip_batches = 0
    assert one_pass(loader) == order(7, 1)
    dataset.seed, dataset.epoch = 8, 5
    assert (dataset.seed, dataset.epoch) == (8, 5)
    assert one_pass(loader) == order(8, 5)
    dataset.shuffle, dataset.global_skip_batches = False, None
    assert one_pass(loader) == list(range(SAMPLES))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_running_pass_keeps_its_settings(workers, corpus):
    """Its state, too, names the seed that it was opened with."""
    dataset = tdstream.DistributedDataset(corpus, seq_len=4, shuffle=True, seed=7)
    loader = make_loader(dataset, (workers, False, None))
    batches = iter(loader)
    first = [int(next(batches)["input_ids"][0, 0]) // BLOCK for _ in range(10)]
    dataset.seed, dataset.global_skip_batches, dataset.shuffle = 8, 20, False
    saved = loader.state_dict()
    rest = [int(batch["input_ids"][0, 0]) // BLOCK for batch in batches]
    assert first + rest == order(7, 0)

    resumed = make_loader(
        tdstream.DistributedDataset(corpus, seq_len=4, shuffle=True, seed=7), (workers, False, None)
    )
    resumed.load_state_dict(saved)
    assert one_pass(resumed) == order(7, 0)[10:]


def test_ranks_can_be_set_one_after_the_other(corpus):
    """Between the two assignments no pass is opened, so nothing is refused."""
    dataset = tdstream.DistributedDataset(corpus, seq_len=4, dp_rank=0, dp_world_size=1)
    dataset.dp_rank = 2
    dataset.dp_world_size = 4
    assert one_pass(make_loader(dataset, (0, False, None), DataLoader)) == list(range(2, SAMPLES, 4))
    dataset.dp_world_size = 2
    with pytest.raises(tdstream.ConfigError, match="dp_rank must be 0 to 1 with dp_world_size=2, got 2"):
        iter(dataset)


def test_what_cannot_be_set_is_refused(corpus):
    """At the assignment; the dataset stays as it was."""
    dataset = tdstream.DistributedDataset(corpus, seq_len=4, seed=7)
    for name, value in (
        ("seed", -1), ("seed", "7"), ("shuffle", 1), ("global_skip_batches", -1), ("epoch", -1),
        ("strict", None), ("dp_rank", -1), ("dp_world_size", 0),
    ):  # fmt: skip
        with pytest.raises(tdstream.ConfigError, match=name):
            setattr(dataset, name, value)
    for name in ("seq_len", "total_samples"):
        with pytest.raises(AttributeError, match=name):
            setattr(dataset, name, 3)
    assert one_pass(make_loader(dataset, (0, False, None))) == list(range(SAMPLES))


def test_a_skip_of_everything_is_refused_by_the_pass_unless_lenient(corpus):
    """A strict dataset refuses a pass without samples; after strict = False it is empty, as there."""
    dataset = tdstream.DistributedDataset(corpus, seq_len=4)
    dataset.global_skip_batches = 50
    with pytest.raises(tdstream.GeometryError, match="0 samples, fewer than the 1"):
        iter(dataset)
    dataset.strict = False
    assert one_pass(make_loader(dataset, (0, False, None))) == []


@pytest.mark.parametrize(("workers", "skip"), [(0, 0), (2, 9)])
def test_a_script_of_the_reference_loader_runs_as_it_is(workers, skip, tmp_path):
    """Under torchrun, with workers that live on: every sample once per epoch, in as many batches as told."""
    samples = 200  # tqdm.auto opens two passes, the first for nothing: its batches must not end the epoch
    corpus = write_corpus(tmp_path / "long", np.arange(samples * BLOCK, dtype=np.uint16), [500, 500])
    script = Path(__file__).with_name("reference_demo.py")
    command = [sys.executable, *TORCHRUN, f"--log_dir={tmp_path / 'torchrun'}", script, corpus, workers, skip]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode == 0, done.stderr
    lines = re.findall(r"(\d) (\d) \[([^]]*)\]", done.stdout)
    for epoch in range(3):
        found = [
            int(token) // BLOCK for _, one, row in lines if int(one) == epoch for token in row.split(", ")
        ]
        assert sorted(found) == sorted(order(123, epoch, samples)[skip if epoch == 0 else 0 :])
    assert "100%" in done.stderr
