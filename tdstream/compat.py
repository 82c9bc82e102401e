"""A drop-in replacement for code written against the reference loader."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from tdstream.core.checks import check_bool, check_int
from tdstream.core.errors import TdstreamError
from tdstream.distributed.shared_epoch import SharedCells
from tdstream.distributed.topology import Topology, current_worker, group_topology, resolve_topology
from tdstream.nodes.collate import Collate
from tdstream.nodes.epoch_permutation import EpochPermutation
from tdstream.nodes.memmap_reader import MemmapReader
from tdstream.nodes.shard_source import ShardSource
from tdstream.nodes.splitter import Splitter
from tdstream.pipelines.pipeline import Pipeline, PipelineIterator


@dataclass(frozen=True, slots=True)
class Settings:
    """What can be set on a DistributedDataset between two passes."""

    shuffle: bool
    seed: int
    global_skip_batches: int
    strict: bool
    dp_rank: int | None
    dp_world_size: int | None

    def to_cells(self) -> list[int]:
        """Return the settings as integers; -1 is None."""
        return [-1 if value is None else int(value) for value in astuple(self)]

    @classmethod
    def from_cells(cls, cells: list[int]) -> Settings:
        """Return the settings that `to_cells` turned into integers."""
        shuffle, seed, skip, strict, *ranks = cells
        return cls(bool(shuffle), seed, skip, bool(strict), *(None if rank < 0 else rank for rank in ranks))


class DistributedDataset(Pipeline):
    """Single samples in the reference loader's order, to the bit, and stateful like every pipeline.

    Samples are blocks of seq_len + 1 tokens. With shuffle, an epoch's order is
    np.random.default_rng(seed + epoch * 1000003).permutation(total_samples), without its first
    global_skip_batches entries; stream s = dp_rank * num_workers + worker_id of S = dp_world_size *
    num_workers takes every S-th from s. Yields {"input_ids", "labels"}, int64 [T] each.

    Its attributes are those of the reference loader. `epoch`, `shuffle`, `seed`, `global_skip_batches`,
    `strict`, `dp_rank` and `dp_world_size` can be set: the next pass follows, in running workers as well.

    Args:
        data_dir: A corpus directory.
        seq_len: T, tokens of a sample's input.
        dtype: "uint16" or "uint32", if the corpus has no meta.json.
        shuffle: Whether each epoch has an order of its own.
        seed: Decides the orders, together with the epoch.
        global_skip_batches: *Samples*, over all ranks, to leave out at the beginning of every epoch; for
            continuing the reference loader's checkpoints. None is 0. New code uses states.
        strict: Whether to refuse fewer samples than streams, and states of other data or settings.
        dp_rank: This process's data-parallel rank; default torch.distributed's, else RANK, else 0.
        dp_world_size: The number of data-parallel ranks; given together with dp_rank.

    Attributes:
        data_dir: The corpus directory, as it was given.
        block_size: Tokens of a sample, seq_len + 1.
        dtype: np.uint16 or np.uint32.
        chunk_files: The paths of the shards, in order.
        num_chunks: The number of shards.
        chunk_token_counts: Tokens of each shard.
        chunk_starts: Tokens before each shard.
        total_tokens: Tokens of all shards.

    Raises:
        TdstreamError: As `build`.
    """

    def __init__(
        self,
        data_dir: str | Path,
        seq_len: int = 2048,
        dtype: DTypeLike | None = None,
        shuffle: bool = False,
        seed: int = 42,
        global_skip_batches: int | None = 0,
        strict: bool = True,
        dp_rank: int | None = None,
        dp_world_size: int | None = None,
    ) -> None:
        source = ShardSource(data_dir, dtype=dtype)
        reader = MemmapReader(source, seq_len=seq_len)
        self.data_dir, self.block_size, self.dtype = data_dir, reader.seq_len + 1, source.dtype.type
        self.chunk_files = [os.path.join(data_dir, file) for file in source.files]
        self.num_chunks, self.total_tokens = len(source.files), source.total_tokens
        self.chunk_token_counts: list[int] = np.diff(source.offsets).tolist()
        self.chunk_starts: list[int] = source.offsets[:-1].tolist()
        self._settings = Settings(
            check_bool("shuffle", shuffle),
            check_int("seed", seed, at_least=0),
            _check_skip(global_skip_batches),
            check_bool("strict", strict),
            dp_rank,
            dp_world_size,
        )
        self._cells = SharedCells(len(self._settings.to_cells()))
        self._cells.write(self._settings.to_cells())
        permutation, splitter = self._compose(reader, resolve_topology(dp_rank, dp_world_size))
        super().__init__([source, reader, permutation], splitter, Collate(batched=False), strict=strict)

    def __len__(self) -> int:
        """Samples of the corpus, over all ranks, as in the reference loader."""
        return self.total_samples

    def __iter__(self) -> PipelineIterator:
        """Open one pass over the next epoch, with the settings of now."""
        worker = self._enter_process()
        self._follow(Settings.from_cells(self._cells.read_for_pass(in_worker=worker.is_process)))
        return PipelineIterator(self, worker)

    @property
    def epoch(self) -> int:
        """The epoch that the next pass serves, or that the running one is in; setting it is `set_epoch`."""
        return super().epoch

    @epoch.setter
    def epoch(self, value: int) -> None:
        self.set_epoch(value)

    @property
    def shuffle(self) -> bool:
        """Whether each epoch has an order of its own."""
        return self._settings.shuffle

    @shuffle.setter
    def shuffle(self, value: bool) -> None:
        self._set(shuffle=check_bool("shuffle", value))

    @property
    def seed(self) -> int:
        """Decides the orders, together with the epoch."""
        return self._settings.seed

    @seed.setter
    def seed(self, value: int) -> None:
        self._set(seed=check_int("seed", value, at_least=0))

    @property
    def global_skip_batches(self) -> int:
        """Samples, over all ranks, that are left out at the beginning of every epoch."""
        return self._settings.global_skip_batches

    @global_skip_batches.setter
    def global_skip_batches(self, value: int | None) -> None:
        self._set(global_skip_batches=_check_skip(value))

    @property
    def strict(self) -> bool:
        """Whether to refuse fewer samples than streams, and states of other data or settings."""
        return self._settings.strict

    @strict.setter
    def strict(self, value: bool) -> None:
        self._set(strict=check_bool("strict", value))

    @property
    def dp_rank(self) -> int | None:
        """The data-parallel rank that was given; None where torch.distributed or RANK decides."""
        return self._settings.dp_rank

    @dp_rank.setter
    def dp_rank(self, value: int | None) -> None:
        self._set(dp_rank=None if value is None else check_int("dp_rank", value, at_least=0))

    @property
    def dp_world_size(self) -> int | None:
        """The number of ranks that was given; None where torch.distributed or WORLD_SIZE decides."""
        return self._settings.dp_world_size

    @dp_world_size.setter
    def dp_world_size(self, value: int | None) -> None:
        self._set(dp_world_size=None if value is None else check_int("dp_world_size", value, at_least=1))

    def _set(self, **changes: Any) -> None:
        settings = replace(self._settings, **changes)
        if settings == self._settings:
            return
        self._cells.write(settings.to_cells())
        self._settings = settings
        with suppress(TdstreamError):  # raised by the pass: a rank may be set before the number of ranks
            self._follow(settings)

    def _follow(self, settings: Settings) -> None:
        """Compose the nodes anew if settings or ranks have changed. A running pass keeps its own."""
        self._settings, topology = settings, self._find_topology()
        if (settings, topology) == self._composed:
            return
        source, reader, _ = self.indexed
        permutation, self.splitter = self._compose(reader, topology)
        self.indexed = (source, reader, permutation)

    def _compose(self, reader: Any, topology: Topology) -> tuple[EpochPermutation, Splitter]:
        """Return the nodes that depend on settings."""
        settings = self._settings
        permutation = EpochPermutation(reader, shuffle=settings.shuffle, seed=settings.seed, order="numpy")
        skip, strict = settings.global_skip_batches, settings.strict
        splitter = Splitter(permutation, topology=topology, tail="keep", skip=skip, strict=strict)
        self._composed = (settings, topology)
        return permutation, splitter

    def _find_topology(self) -> Topology:
        """Return the coordinate of the next pass: a process group may have been made meanwhile."""
        rank, world_size = self._settings.dp_rank, self._settings.dp_world_size
        if rank is not None and world_size is not None:
            return resolve_topology(rank, world_size)
        if current_worker().is_process:
            return group_topology() or self.splitter.topology  # a spawned worker has no process group
        return resolve_topology()

    def check_ranks(self) -> None:
        """Refuse nothing: each pass looks for the process group anew."""

    def __getstate__(self) -> dict[str, Any]:
        with suppress(TdstreamError):
            self._follow(self._settings)
        return self.__dict__


def _check_skip(value: int | None) -> int:
    return check_int("global_skip_batches", 0 if value is None else value, at_least=0)
