"""Compose the indexed nodes of one source, from what lies on disk to an order of samples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from numpy.typing import DTypeLike

from tdstream.nodes.epoch_permutation import EpochPermutation
from tdstream.nodes.memmap_reader import MemmapReader
from tdstream.nodes.shard_source import ShardSource


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """How samples are cut from a source and ordered; the fields are `build`'s arguments."""

    seq_len: int
    stride: int | None = None
    shuffle: bool | str = False
    seed: int = 42
    order: str = "feistel"
    block_samples: int = 1024


Chain = tuple[ShardSource, MemmapReader, EpochPermutation]


def shard_chain(directory: str | Path, cut: Cut, *, dtype: DTypeLike | None = None) -> Chain:
    """Return the nodes of a corpus directory, from left to right; the last one is read by a splitter.

    Args:
        directory: The corpus.
        cut: How its samples are cut and ordered.
        dtype: "uint16" or "uint32", where it has no meta.json.

    Raises:
        TdstreamError: As `build`.
    """
    shards = ShardSource(directory, dtype=dtype)
    reader = MemmapReader(shards, seq_len=cut.seq_len, stride=cut.stride)
    permutation = EpochPermutation(
        reader, shuffle=cut.shuffle, seed=cut.seed, order=cut.order, block_samples=cut.block_samples
    )
    return shards, reader, permutation
