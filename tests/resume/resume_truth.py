"""What a loader must hand out, computed anew from the written rules; nothing of the library's is used.

Every corpus of these tests holds the tokens 0, 1, 2, ...: a token's value is its position, so a batch tells
which samples it holds. The truth is a list of batches, each a tuple of sample numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

Ids = tuple[int, ...]
"""The samples of one batch, in order."""

TOTAL_TOKENS = 225
SHARD_TOKENS = (33, 1, 100, 91)  # no border is a multiple of a sample's length
SEED = 42


@dataclass(frozen=True)
class Data:
    """What is dealt out, and to how many."""

    mode: str = "batch"
    """"batch" (build with batch_size), "sample" (the loader batches) or "reference" (DistributedDataset)."""
    seq_len: int = 4
    batch_size: int = 4
    skip: int = 0
    shuffle: bool = True
    seed: int = SEED
    tail: str = "drop"
    rank: int = 0
    world: int = 1
    total_tokens: int = TOTAL_TOKENS
    stride: int | None = None

    @property
    def num_samples(self) -> int:
        """N: how many windows of seq_len + 1 tokens begin at multiples of the stride."""
        step = self.stride or self.seq_len + 1
        return sum(
            1 for start in range(0, self.total_tokens, step) if start + self.seq_len < self.total_tokens
        )


# Chosen so that workers get unlike numbers of batches and something is left over: of 45 samples
# 11 batches of 4; of 37 samples 13 batches of 3; of 37 samples without the first 6, 7 batches of 5.
MODES: Mapping[str, Data] = {
    "batch": Data("batch", seq_len=4, batch_size=4),
    "sample": Data("sample", seq_len=5, batch_size=3),
    "reference": Data("reference", seq_len=5, batch_size=5, skip=6),
}


def epoch_order(data: Data, epoch: int) -> list[int]:
    """Return the sample that stands at each position of an epoch (the "numpy" order)."""
    if not data.shuffle:
        return list(range(data.num_samples))
    generator = np.random.default_rng(data.seed + epoch * 1000003)
    return [int(sample) for sample in generator.permutation(data.num_samples)]


def truth(data: Data, epoch: int, workers: int = 0) -> list[Ids]:
    """Return one rank's batches of an epoch, in the order in which its loader hands them out."""
    order = epoch_order(data, epoch)
    return batches_of(data, order) if data.mode == "batch" else samples_of(data, order, workers)


def batches_of(data: Data, order: list[int]) -> list[Ids]:
    """Deal out batches: step t is G positions in a row, of which rank r takes the r-th part."""
    size = data.batch_size * data.world
    steps = len(order) // size + (data.tail == "wrap" and len(order) % size > 0)
    endless = order * (1 + steps * size // len(order))
    firsts = [step * size + data.rank * data.batch_size for step in range(steps)]
    return [tuple(endless[first : first + data.batch_size]) for first in firsts]


def streams_of(data: Data, order: list[int], workers: int) -> list[list[int]]:
    """Deal out samples one by one to all ranks' workers; return the streams of this rank."""
    per_rank = max(workers, 1)
    streams = data.world * per_rank
    left = order[data.skip :]
    if data.mode == "sample" and data.world > 1:
        left = left[: len(left) // streams * streams]
    return [left[data.rank * per_rank + worker :: streams] for worker in range(per_rank)]


def samples_of(data: Data, order: list[int], workers: int) -> list[Ids]:
    """Batch each worker's stream by itself, and take the workers in turn."""
    size, streams = data.batch_size, streams_of(data, order, workers)
    cut = [[tuple(stream[i : i + size]) for i in range(0, len(stream), size)] for stream in streams]
    rounds = range(max(map(len, cut)))
    return [batches[turn] for turn in rounds for batches in cut if turn < len(batches)]


def ids_of(batch: Mapping[str, torch.Tensor], data: Data) -> Ids:
    """Return the samples that a batch holds, having looked at every one of its tokens."""
    inputs, labels = batch["input_ids"], batch["labels"]
    assert sorted(batch) == ["input_ids", "labels"]
    assert inputs.dtype == labels.dtype == torch.int64
    assert inputs.is_contiguous()
    assert labels.is_contiguous()
    rows = inputs.reshape(-1, data.seq_len)
    step = data.stride or data.seq_len + 1
    expected = rows[:, :1] + torch.arange(data.seq_len)
    assert torch.equal(rows, expected)
    assert torch.equal(labels.reshape(-1, data.seq_len), expected + 1)
    assert not (rows[:, 0] % step).any()
    return tuple((rows[:, 0] // step).tolist())


@dataclass
class Model:
    """Where a bare StatefulDataLoader stands: the epoch of the running or next pass, and a position in it.

    The rules: epochs count themselves; one that was left early is begun again; set_epoch chooses the next
    pass; a loaded state wins over a set_epoch until its epoch has ended.
    """

    epoch: int = 0
    position: int = 0
    asked: int | None = None
    loaded: bool = False
    saved: list[tuple[int, int, bool]] = field(default_factory=list)

    def open(self) -> None:
        """Begin a pass."""
        if self.loaded:
            self.loaded, self.asked = False, None
            return
        self.position = 0
        if self.asked is not None:
            self.epoch, self.asked = self.asked, None

    def finish(self) -> None:
        """End a pass whose last batch has been taken."""
        self.epoch, self.position = self.epoch + 1, 0


def flat(passes: Iterable[Iterable[Any]]) -> list[Any]:
    """Return the items of all passes, one after the other."""
    return [item for one in passes for item in one]
