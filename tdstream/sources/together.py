"""Let sources that are alike be ordered and read together, in a call for all of them and not one for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tdstream.corpus.joined_maps import JoinedMaps
from tdstream.corpus.shard_maps import ShardMaps
from tdstream.joint_order import JointOrder
from tdstream.node import ReaderNode
from tdstream.nodes.document_marks import DocumentMarks
from tdstream.nodes.epoch_permutation import EpochPermutation
from tdstream.nodes.memmap_reader import MemmapReader
from tdstream.nodes.sample_range import SampleRange
from tdstream.plain_rows import PlainRows
from tdstream.rows import RowEnds

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
    maps = [part for part in (reader.maps for reader, _ in plain) if isinstance(part, ShardMaps)]
    if len(maps) < len(found) or len({part.dtype for part in maps}) > 1:
        return None
    joined, reader = JoinedMaps(maps), plain[0][0]
    firsts = [int(reader.first_tokens(np.array(first))) for reader, first in plain]
    return PlainRows(
        maps=joined, firsts=np.add(joined.firsts, firsts), stride=reader.stride, seq_len=reader.seq_len
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
    return reader.ends_in if isinstance(reader, DocumentMarks) else None


def _shifted(within: Callable[[Ints], RowEnds], first: int, indices: Ints) -> RowEnds:
    return within(indices + first)
