"""What a loader must hand out, and where it must stand, computed anew from the written rules.

Every corpus of these tests holds the tokens 0, 1, 2, ...: a token's value is its position, so a batch tells
which samples it holds. Truths are lists of global batches, each a tuple of the samples of all ranks, in
order of rank. Only the feistel bijection is the library's own; its values are pinned elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tdstream.schedule.order import feistel_order

Ids = tuple[int, ...]
"""The samples of one batch, in order."""

SEQ_LEN = 3
STRIDE = 4
NUM_SAMPLES = 277  # 4 global batches of 64 and 21 over, 138 of 2 and 1 over
SHARD_TOKENS = (330, 1, 502, 277)  # 1,110 tokens: 277 samples and 2 tokens; no border is a multiple of 4
SEED = 7


def write_counting_corpus(directory: Path, shard_tokens: tuple[int, ...], first: int = 0) -> Path:
    """Write the tokens first, first + 1, first + 2, ... as the disk format says."""
    directory.mkdir(parents=True)
    chunks = []
    for number, tokens in enumerate(shard_tokens):
        file = f"chunk_{number:06d}.bin"
        np.arange(first, first + tokens, dtype="<u4").tofile(directory / file)
        chunks.append({"file": file, "tokens": tokens})
        first += tokens
    content = {
        "created_at_unix": 1, "tokenizer_name_or_path": "gpt2", "is_fast": True, "dtype": "uint32",
        "eos_token_id": 0, "tokens_per_chunk": max(shard_tokens), "chunks": chunks,
        "total_tokens": sum(shard_tokens),
    }  # fmt: skip
    (directory / "meta.json").write_text(json.dumps(content))
    return directory


@dataclass(frozen=True)
class Geometry:
    """How samples are dealt out."""

    world: int = 1
    workers: int = 0
    batch_size: int = 4
    persistent: bool = False

    @property
    def size(self) -> int:
        """G, the samples of a global batch."""
        return self.world * self.batch_size

    def __str__(self) -> str:
        return f"r{self.world}w{self.workers}{'p' * self.persistent}b{self.batch_size}"


OTHER_ORDERS: dict[str, Callable[[int], Ids]] = {}
"""What serves an epoch's samples in another way, by the name that tests give it."""


@lru_cache(maxsize=256)
def epoch_order(order: str, epoch: int, num_samples: int = NUM_SAMPLES, seed: int = SEED) -> Ids:
    """Return the sample that stands at each position of an epoch."""
    if order in OTHER_ORDERS:
        return OTHER_ORDERS[order](epoch)
    if order == "numpy":
        return tuple(np.random.default_rng(seed + epoch * 1000003).permutation(num_samples).tolist())
    if order == "feistel":
        return tuple(feistel_order(num_samples, seed, epoch)(np.arange(num_samples)).tolist())
    return tuple(range(num_samples))


def rest(
    size: int, epoch: int, position: int = 0, *, order: str = "numpy", num_samples: int = NUM_SAMPLES
) -> list[Ids]:
    """Return the global batches of G samples from a position to the end of its epoch."""
    samples = epoch_order(order, epoch, num_samples)
    return [samples[first : first + size] for first in range(position, num_samples - size + 1, size)]


def ids_of(batch: Mapping[str, torch.Tensor], seq_len: int = SEQ_LEN, stride: int = STRIDE) -> Ids:
    """Return the samples that a batch holds, having looked at every one of its tokens."""
    inputs, labels = batch["input_ids"], batch["labels"]
    assert sorted(batch) == ["input_ids", "labels"]
    assert inputs.dtype == labels.dtype == torch.int64
    assert inputs.shape == labels.shape
    assert inputs.is_contiguous()
    assert labels.is_contiguous()
    expected = inputs[:, :1] + torch.arange(seq_len)
    assert torch.equal(inputs, expected)
    assert torch.equal(labels, expected + 1)
    assert not (inputs[:, 0] % stride).any()
    return tuple((inputs[:, 0] // stride).tolist())


def loop(loader: Any) -> list[Ids]:
    """Return the batches of a whole loop."""
    return [ids_of(batch) for batch in loader]


def take(iterator: Iterator[Any], count: int) -> list[Ids]:
    """Return the next few batches."""
    return [ids_of(next(iterator)) for _ in range(count)]


@dataclass
class Model:
    """Where a run stands, stepped one global batch at a time: an epoch, a position, and what comes next.

    The rules: a loop serves one epoch and epochs count themselves; one that was left early is begun again;
    a loaded place, and one behind batches that were left out, is kept by the next loop, unless another epoch
    is chosen; an epoch of which no whole global batch is left, by the geometry that served it or by this
    one, is over, and the next begins (only for the very epoch that is chosen its empty rest is served).
    """

    size: int
    num_samples: int = NUM_SAMPLES
    epoch: int = 0
    position: int = 0
    done: int = 0
    step: int = 0
    served_by: int = 0
    held: bool = False
    asked: int | None = None
    since: int | None = None
    """The epoch from which batches were left out into this one."""
    empty: bool = False
    """Whether the loop that runs is one of an epoch whose rest was left out."""
    running: bool = False
    """Whether a loop has begun and was neither left nor seen to end."""
    log: list[tuple[int, int, int]] = field(default_factory=list)
    """(epoch, position, G) of each step that was handed out."""

    def __post_init__(self) -> None:
        self.served_by = self.served_by or self.size

    @property
    def over(self) -> bool:
        """Whether no whole global batch is left here, by the old or by this geometry."""
        return self.num_samples - self.position < max(self.served_by, self.size)

    @property
    def left(self) -> int:
        """Batches to the end of this epoch."""
        return 0 if self.over or self.empty else (self.num_samples - self.position) // self.size

    @property
    def following(self) -> tuple[int, int]:
        """Where the next loop begins."""
        if self.asked is not None:
            kept = self.held and (self.asked == self.epoch or self.passed_by)
            return (self.epoch, self.position) if kept else (self.asked, 0)
        if self.over:
            return self.epoch + 1, 0
        return self.epoch, self.position if self.held else 0

    @property
    def passed_by(self) -> bool:
        """Whether the rest of the chosen epoch was left out."""
        return self.held and self.since is not None and self.since <= (self.asked or 0) < self.epoch

    @property
    def choice_counts(self) -> bool:
        """Whether an epoch was chosen, and no loop is running that has batches left."""
        return self.asked is not None and (self.over or not self.running)

    @property
    def place(self) -> tuple[int, int]:
        """The epoch and position that a state says; of a chosen epoch the beginning, if no loop runs."""
        return self.following if self.choice_counts else (self.epoch, self.position)

    @property
    def length(self) -> int:
        """Batches of this epoch, those before this place included; of the next loop's, where none runs."""
        if not self.running and self.following != (self.epoch, self.position):
            return self.num_samples // self.size
        return self.done + self.left

    def open(self) -> None:
        """Ask for the first batch of a loop."""
        following, self.empty = self.following, self.asked is not None and self.passed_by
        self.asked, self.running = None, True
        if self.empty:
            return
        self.held, self.since = False, None
        if following != (self.epoch, self.position):
            self._to(*following)
        if not self.over:
            self.served_by = self.size

    def take(self) -> tuple[int, int] | None:
        """Hand out a batch, and return its epoch and position; None at the epoch's end."""
        if self.over or self.empty:
            self.running = self.empty = False
            return None
        place = self.epoch, self.position
        self.log.append((*place, self.size))
        self.position += self.size
        self.done, self.step = self.done + 1, self.step + 1
        return place

    def leave_out(self, count: int) -> None:
        """Leave out batches, one by one; where an epoch ends, in the next, or in the one that was chosen."""
        before, since = self.epoch, self.epoch
        if self.held and self.since is not None:
            since = self.since
        if self.choice_counts:
            since = since if self.passed_by else self.following[0]
            if self.following != (self.epoch, self.position):
                self._to(*self.following)
            self.asked = None
        if self.over:
            self._to(self.epoch + 1, 0)
        self.served_by = self.size
        for _ in range(count):
            self.position, self.done = self.position + self.size, self.done + 1
            if self.over:
                since = since if self.asked is None else self.asked
                self._to(self.epoch + 1 if self.asked is None else self.asked, 0)
                self.asked = None
        self.running = self.running and self.epoch == before
        self.since = since if since < self.epoch else None
        self.held = True

    def at(self, size: int) -> Model:
        """Return a model that has loaded, under another G, what this one would save."""
        here = self.place == (self.epoch, self.position)
        done, served_by = (self.done, self.served_by) if here else (0, self.size)
        return Model(
            size, self.num_samples, *self.place, done, self.step, served_by, held=True, log=[*self.log]
        )

    def batch(self, epoch: int, position: int, order: str = "numpy") -> Ids:
        """Return the global batch at a place."""
        return epoch_order(order, epoch, self.num_samples)[position : position + self.size]

    def _to(self, epoch: int, position: int) -> None:
        self.epoch, self.position, self.done, self.served_by = epoch, position, 0, self.size
