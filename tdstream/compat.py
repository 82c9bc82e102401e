"""A drop-in replacement for code written against the reference loader."""

from __future__ import annotations

from pathlib import Path

from numpy.typing import DTypeLike

from tdstream.distributed.topology import resolve_topology
from tdstream.nodes.collate import Collate
from tdstream.nodes.epoch_permutation import EpochPermutation
from tdstream.nodes.memmap_reader import MemmapReader
from tdstream.nodes.shard_source import ShardSource
from tdstream.nodes.splitter import Splitter
from tdstream.pipelines.pipeline import Pipeline


class DistributedDataset(Pipeline):
    """Single samples in the reference loader's order, to the bit, and stateful like every pipeline.

    Samples are blocks of seq_len + 1 tokens. With shuffle, an epoch's order is
    np.random.default_rng(seed + epoch * 1000003).permutation(total_samples), without its first
    global_skip_batches entries; stream s = dp_rank * num_workers + worker_id of S = dp_world_size *
    num_workers takes every S-th from s. Yields {"input_ids", "labels"}, int64 [T] each.

    Args:
        data_dir: A corpus directory.
        seq_len: T, tokens of a sample's input.
        dtype: "uint16" or "uint32", if the corpus has no meta.json.
        shuffle: Whether each epoch has an order of its own.
        seed: Decides the orders, together with the epoch.
        global_skip_batches: *Samples*, over all ranks, to leave out at the beginning of every epoch; for
            continuing the reference loader's checkpoints. New code uses states.
        strict: Whether to refuse fewer samples than streams, and states of other data or settings.
        dp_rank: This process's data-parallel rank; default torch.distributed's, else RANK, else 0.
        dp_world_size: The number of data-parallel ranks; given together with dp_rank.

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
        global_skip_batches: int = 0,
        strict: bool = True,
        dp_rank: int | None = None,
        dp_world_size: int | None = None,
    ) -> None:
        source = ShardSource(data_dir, dtype=dtype)
        reader = MemmapReader(source, seq_len=seq_len)
        permutation = EpochPermutation(reader, shuffle=shuffle, seed=seed, order="numpy")
        topology = resolve_topology(dp_rank, dp_world_size)
        splitter = Splitter(
            permutation, topology=topology, tail="keep", skip=global_skip_batches, strict=strict
        )
        super().__init__([source, reader, permutation], splitter, Collate(batched=False), strict=strict)

    def __len__(self) -> int:
        """Samples of the corpus, over all ranks, as in the reference loader."""
        return self.total_samples
