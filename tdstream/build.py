"""Compose the nodes into a dataset."""

from __future__ import annotations

from pathlib import Path

from numpy.typing import DTypeLike

from tdstream.chain import Cut, shard_chain
from tdstream.nodes.collate import Collate
from tdstream.nodes.splitter import Splitter
from tdstream.pipeline import Pipeline
from tdstream.topology import resolve_topology


def build(
    source: str | Path,
    *,
    seq_len: int = 2048,
    batch_size: int | None = None,
    shuffle: bool | str = False,
    seed: int = 42,
    order: str = "feistel",
    stride: int | None = None,
    block_samples: int = 1024,
    dtype: DTypeLike | None = None,
    labels: str = "next",
    tail: str = "drop",
    strict: bool = True,
    dp_rank: int | None = None,
    dp_world_size: int | None = None,
) -> Pipeline:
    """Return a dataset of token batches (or samples) for StatefulDataLoader or DataLoader.

    Args:
        source: A corpus directory: token shards and meta.json.
        seq_len: T, tokens of a sample's input.
        batch_size: B, samples per rank and step. The dataset then yields batches, whatever the loader's own
            batch_size of 1 or None; None yields single samples and leaves batching to the loader.
        shuffle: Whether each epoch has an order of its own. "block" permutes blocks of neighbouring samples,
            and the samples in each, for storage that is slow at random reads.
        seed: Decides the orders, together with the epoch.
        order: "feistel" (no memory) or "numpy" (the reference loader's order, 8 bytes per sample).
        stride: Tokens from one sample's start to the next one's; default seq_len + 1.
        block_samples: Samples of a block, for shuffle="block".
        dtype: "uint16" or "uint32", where the corpus has no meta.json.
        labels: "next": labels[i] is the token after input_ids[i]. "same": labels are the inputs, for models
            that shift them inside, as those of transformers do.
        tail: "drop" leaves out an epoch's last incomplete global batch; "wrap" fills it from the epoch's
            beginning.
        strict: Whether to refuse fewer samples than one global batch (or, without batch_size, than
            streams), and states of other data or settings. False lets streams be empty, and warns.
        dp_rank: This process's data-parallel rank; default torch.distributed's, else RANK, else 0.
        dp_world_size: The number of data-parallel ranks; given together with dp_rank.

    Returns:
        An IterableDataset. It yields {"input_ids", "labels"}, int64 [B, T] (or [T] each without
        batch_size); len() is the number of items of this rank per epoch.

    Raises:
        ConfigError: If an argument is out of range.
        CorpusNotFoundError: If the directory or a shard is missing.
        CorpusError: If the corpus is damaged, unfinished, or too small for one sample.
        GeometryError: If strict and a stream would be empty.
    """
    topology = resolve_topology(dp_rank, dp_world_size)
    cut = Cut(
        seq_len=seq_len, stride=stride, shuffle=shuffle, seed=seed, order=order, block_samples=block_samples
    )
    chain = shard_chain(source, cut, dtype=dtype)
    splitter = Splitter(chain[-1], topology=topology, batch_size=batch_size, tail=tail, strict=strict)
    collate = Collate(batched=batch_size is not None, labels=labels)
    return Pipeline(chain, splitter, collate, strict=strict)
