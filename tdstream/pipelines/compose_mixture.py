"""Compose the sources of a mixture to one ordered node."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tdstream.core.errors import ConfigError
from tdstream.corpus.shard_reader import JoinedMaps, ShardMaps
from tdstream.nodes.base import ReaderNode
from tdstream.nodes.document_marks import DocumentMarks
from tdstream.nodes.epoch_permutation import EpochPermutation
from tdstream.nodes.memmap_reader import MemmapReader
from tdstream.nodes.mixture_node import MixtureNode, Part, PlainRows
from tdstream.nodes.rows import RowEnds
from tdstream.nodes.sample_range import SampleRange
from tdstream.nodes.shard_source import ShardSource
from tdstream.pipelines.compose import Chain, shard_chain
from tdstream.pipelines.mixture import Mixture
from tdstream.pipelines.source_kind import is_path
from tdstream.pipelines.views import View
from tdstream.schedule.order import JointOrder
from tdstream.schedule.sample_spec import SampleSpec

Ints = NDArray[np.int64]


def joint_orders(ordered: Sequence[EpochPermutation]) -> JointOrder | None:
    """Return the sources' orders as one, where they are "feistel"."""
    if any(source.order != "feistel" for source in ordered):
        return None
    return JointOrder([len(source) for source in ordered], ordered[0].seed)


def plain_rows(readers: Sequence[ReaderNode]) -> PlainRows | None:
    """Return the sources' shards as one stream, where samples are windows of it, of one storage type."""
    found = [_plain(reader) for reader in readers]
    plain = [pair for pair in found if pair is not None]
    if len(plain) < len(found):
        return None
    maps = [part for part in (reader.stream for reader, _ in plain) if isinstance(part, ShardMaps)]
    if len(maps) < len(found) or len({part.dtype for part in maps}) > 1:
        return None
    joined, reader = JoinedMaps(maps), plain[0][0]
    firsts = [int(reader.first_tokens(np.array(first))) for reader, first in plain]
    return PlainRows(
        stream=joined, firsts=np.add(joined.firsts, firsts), stride=reader.stride, seq_len=reader.seq_len
    )


def _plain(reader: ReaderNode) -> tuple[MemmapReader, int] | None:
    """Return what cuts plain windows, and the first sample of it that is read; None for other readers."""
    if isinstance(reader, SampleRange):
        within = _plain(reader.upstream)
        return None if within is None else (within[0], within[1] + reader.first)
    inner = reader.upstream if isinstance(reader, DocumentMarks) else reader
    return (inner, 0) if isinstance(inner, MemmapReader) else None


def ends_of(reader: ReaderNode) -> Callable[[Ints], RowEnds] | None:
    """Return what says where documents end in a reader's samples; None where that is not asked."""
    if isinstance(reader, SampleRange):
        within = ends_of(reader.upstream)
        return within and partial(_shifted, within, reader.first)
    return reader.find_ends if isinstance(reader, DocumentMarks) else None


def _shifted(within: Callable[[Ints], RowEnds], first: int, indices: Ints) -> RowEnds:
    return within(indices + first)


logger = logging.getLogger(__name__)

_SHARED = ("seq_len", "stride", "cut")  # fields of a reader that are the same for all sources


def mixture_node(
    mixture: Mixture,
    cut: SampleSpec,
    *,
    dtype: DTypeLike | None = None,
    strict: bool = True,
    source_id: bool = False,
) -> MixtureNode:
    """Return a mixture's node; a splitter reads it.

    Args:
        mixture: The sources, weights and rules.
        cut: How samples of all sources are cut and ordered.
        dtype: As `shard_chain`.
        strict: Whether sources of different tokenizers are refused, or only warned of.
        source_id: Whether rows say which source they are of.

    Raises:
        TdstreamError: As `build`.
    """
    for name, source in mixture.sources.items():
        if not is_path(source) and not isinstance(source, View):
            raise ConfigError(
                f"source {name} of a mixture must be a corpus directory, or a part of one from split, got "
                f"{type(source).__name__}. Text is prepared before: tdstream prepare makes a corpus of it."
            )
    chains = {name: shard_chain(source, cut, dtype=dtype) for name, source in mixture.sources.items()}
    _check_tokenizers(chains, strict=strict)
    parts = [_part(name, chain, mixture.max_epochs.get(name, 0)) for name, chain in chains.items()]
    permutation = next(iter(chains.values()))[-1]
    order = permutation.state_dict()
    readers = [chain[1].state_dict() for chain in chains.values()]
    return MixtureNode(
        parts,
        stages=mixture.stages({part.name: len(part.ordered) for part in parts}),
        stop=mixture.stop,
        shared={
            "reader": {field: readers[0][field] for field in _SHARED if field in readers[0]},
            "permutation": order,
        },
        seed=None if order["order"] == "sequential" else permutation.seed,
        source_id=source_id,
        has_parts=any("first_token" in reader or "first_sample" in reader for reader in readers),
        orders=joint_orders([chain[-1] for chain in chains.values()]),
        plain=plain_rows([chain[1] for chain in chains.values()]),
    )


def _part(name: str, chain: Chain, max_epochs: int) -> Part:
    source, reader, permutation = chain
    return Part(
        name=name,
        source=source,
        ordered=permutation,
        dtype=cast("ShardSource", source).dtype,
        fingerprint=_fingerprint(chain[:-1]),
        find_ends=ends_of(reader),
        max_epochs=max_epochs,
    )


def _fingerprint(nodes: Sequence[object]) -> str:
    """Return a digest of what nodes hold, but for what all sources of a mixture share."""
    states = [node.state_dict() for node in nodes]  # type: ignore[attr-defined]
    own = [{field: value for field, value in state.items() if field not in _SHARED} for state in states]
    return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:16]


def _check_tokenizers(chains: dict[str, Chain], *, strict: bool) -> None:
    """Refuse sources of different tokenizers, as far as they tell."""
    known = {name: cast("ShardSource", chain[0]).tokenizer_fingerprint for name, chain in chains.items()}
    known = {name: fingerprint for name, fingerprint in known.items() if fingerprint}
    first = next(iter(known), "")
    other = next((name for name in known if known[name] != known[first]), None)
    if other is None:
        return
    message = (
        f"{first} and {other} were prepared with different tokenizers: the same ids mean different text."
    )
    if strict:
        raise ConfigError(f"{message} Prepare them with one, or pass strict=False to mix them all the same.")
    logger.warning("%s Going on, since strict=False.", message)
