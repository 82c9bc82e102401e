"""Loaders under test: how they are made, run to a place, saved, and restored in another process."""

from __future__ import annotations

import io
import multiprocessing
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from resume_truth import Data, Ids, ids_of
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream

HERE = Path(__file__).parent
# So that a fork server's workers need not import torch each; a spawned worker takes seconds for that.
multiprocessing.set_forkserver_preload(["torchdata.stateful_dataloader", "tdstream"])


@dataclass(frozen=True)
class Setup:
    """How a loader is set up."""

    workers: int = 0
    persistent: bool = False
    snapshot: int = 1
    prefetch: int | None = None
    method: str | None = None


# Workers that do not live on are started in each pass, so only one number of them is everywhere.
CONFIGURATIONS = [Setup(), Setup(1, True), Setup(2), Setup(2, True), Setup(3, True)]
CASES = [
    *(("batch", setup) for setup in CONFIGURATIONS),
    ("sample", Setup(3, True)),
    ("reference", Setup(2, True)),
]


def name_of(value: Any) -> str:
    """Return a test id for a mode or a setup."""
    if isinstance(value, str):
        return value
    return f"w{value.workers}{'p' * value.persistent}{value.method or ''}"


def make_dataset(corpus: Path | str, data: Data, **options: Any) -> tdstream.Pipeline:
    """Return a fresh dataset."""
    common = {"seq_len": data.seq_len, "shuffle": data.shuffle, "seed": data.seed}
    common |= {"dp_rank": data.rank, "dp_world_size": data.world} | options
    if data.mode == "reference":
        return tdstream.DistributedDataset(corpus, global_skip_batches=data.skip, **common)
    batch_size = data.batch_size if data.mode == "batch" else None
    common = {"order": "numpy", "stride": data.stride, "tail": data.tail, **common}
    return tdstream.build(corpus, batch_size=batch_size, **common)


def wrap(dataset: Any, data: Data, setup: Setup, kind: Any = StatefulDataLoader) -> Any:
    """Return a loader around a dataset."""
    options: dict[str, Any] = {"num_workers": setup.workers, "persistent_workers": setup.persistent}
    if data.mode != "batch":
        options["batch_size"] = data.batch_size
    if setup.workers:
        options |= {"prefetch_factor": setup.prefetch, "multiprocessing_context": setup.method}
    if kind is StatefulDataLoader:
        options["snapshot_every_n_steps"] = setup.snapshot
    return kind(dataset, **options)


def make_loader(corpus: Path | str, data: Data, setup: Setup, **options: Any) -> Any:
    """Return a fresh StatefulDataLoader over a fresh dataset."""
    return wrap(make_dataset(corpus, data, **options), data, setup)


def through_file(state: dict[str, Any]) -> dict[str, Any]:
    """Send a state through a checkpoint as a careful trainer writes and reads it."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def one_pass(loader: Any, data: Data) -> list[Ids]:
    """Return a whole pass."""
    return [ids_of(batch, data) for batch in loader]


def take(iterator: Iterator[Any], count: int, data: Data) -> list[Ids]:
    """Return the next few batches."""
    return [ids_of(next(iterator), data) for _ in range(count)]


def saved_at(corpus: Path, data: Data, setup: Setup, count: int) -> dict[str, Any]:
    """Return the state of a fresh loader after some batches of epoch 0."""
    loader = make_loader(corpus, data, setup)
    take(iter(loader), count, data)
    return through_file(loader.state_dict())


def loaded(corpus: Path, data: Data, setup: Setup, state: dict[str, Any]) -> Any:
    """Return a fresh loader with a state."""
    loader = make_loader(corpus, data, setup)
    loader.load_state_dict(state)
    return loader


def child_env(**more: str) -> dict[str, str]:
    """Return the environment of a new process that can import these helpers."""
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def strict_warnings() -> None:
    """Turn warnings into errors, as the tests' own process does, except those of other makers."""
    warnings.filterwarnings("error")
    warnings.filterwarnings("ignore", message=".*set_vital.*")
    warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
    warnings.filterwarnings(
        "ignore", message="This process .* is multi-threaded", category=DeprecationWarning
    )
