"""The node of a mixture, composed from its sources."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import ConfigError
from tdstream.corpus.shard_reader import JoinedMaps
from tdstream.formats.description import NOTHING_TOLD, FormatOptions
from tdstream.nodes.base import Node, ReaderNode, TokenSource
from tdstream.nodes.document_marks import DocumentMarks
from tdstream.nodes.epoch_permutation import EpochPermutation
from tdstream.nodes.memmap_reader import MemmapReader
from tdstream.nodes.mixture_node import MixtureNode, Part, PlainRows
from tdstream.nodes.rows import RowEnds
from tdstream.nodes.sample_range import SampleRange
from tdstream.nodes.shard_source import ShardSource
from tdstream.pipelines.compose import compose_corpus
from tdstream.pipelines.mixture import Mixture
from tdstream.pipelines.source_kind import is_token_source
from tdstream.pipelines.views import View
from tdstream.schedule.order import JointOrder
from tdstream.schedule.windows import SampleSpec
from tdstream.text.options import is_path

logger = logging.getLogger(__name__)

Ints = NDArray[np.int64]

_SHARED = ("seq_len", "stride", "cut")  # fields of a reader that are the same for all sources


def compose_mixture(
    mixture: Mixture,
    spec: SampleSpec,
    *,
    files: FormatOptions = NOTHING_TOLD,
    strict: bool = True,
    source_id: bool = False,
) -> MixtureNode:
    """Return a mixture's node; with source_id its rows say which source they are of."""
    for name, source in mixture.sources.items():
        if not is_path(source) and not isinstance(source, View) and not is_token_source(source):
            raise ConfigError(
                f"source {name} of a mixture must be a corpus directory, a part of one from split, or a "
                f"token source, got {type(source).__name__}. Prepare text first: tdstream prepare makes a "
                f"corpus of it."
            )
    composed = {name: compose_corpus(source, spec, files) for name, source in mixture.sources.items()}
    _check_tokenizers({name: source for name, (source, _, _) in composed.items()}, strict=strict)
    parts = [
        Part(
            name=name,
            source=source,
            ordered=order,
            dtype=source.dtype,
            fingerprint=_fingerprint([source, reader]),
            find_ends=_find_ends(reader),
            max_epochs=mixture.max_epochs.get(name, 0),
        )
        for name, (source, reader, order) in composed.items()
    ]
    readers = [reader for _, reader, _ in composed.values()]
    orders = [order for _, _, order in composed.values()]
    order, identities = orders[0].state_dict(), [reader.state_dict() for reader in readers]
    return MixtureNode(
        parts,
        stages=mixture.stages({part.name: len(part.ordered) for part in parts}),
        stop=mixture.stop,
        shared={
            "reader": {field: identities[0][field] for field in _SHARED if field in identities[0]},
            "permutation": order,
        },
        seed=None if order["order"] == "sequential" else orders[0].seed,
        source_id=source_id,
        has_parts=any("first_token" in reader or "first_sample" in reader for reader in identities),
        orders=_join_orders(orders),
        plain=_join_plain_rows(readers),
    )


def _check_tokenizers(sources: dict[str, TokenSource], *, strict: bool) -> None:
    """Refuse sources of different tokenizers, if their meta.json names them."""
    known = {name: getattr(source, "tokenizer_fingerprint", "") for name, source in sources.items()}
    known = {name: fingerprint for name, fingerprint in known.items() if fingerprint}
    first = next(iter(known), "")
    other = next((name for name in known if known[name] != known[first]), None)
    if other is None:
        return
    message = (
        f"{first} and {other} were prepared with different tokenizers: the same ids mean different text."
    )
    if strict:
        raise ConfigError(
            f"{message} Prepare them with one tokenizer, or pass strict=False to mix them anyway."
        )
    logger.warning("%s Continuing, since strict=False.", message)


def _fingerprint(nodes: Sequence[Node]) -> str:
    """Return a digest of a source's own identities, without what all sources of a mixture share."""
    states = [node.state_dict() for node in nodes]
    own = [{field: value for field, value in state.items() if field not in _SHARED} for state in states]
    return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:16]


def _join_orders(orders: Sequence[EpochPermutation]) -> JointOrder | None:
    """Return the sources' orders as one, if they are "feistel"."""
    if any(order.order != "feistel" for order in orders):
        return None
    return JointOrder([len(order) for order in orders], orders[0].seed)


def _join_plain_rows(readers: Sequence[ReaderNode]) -> PlainRows | None:
    """Return the sources' shards as one stream, if samples are windows of it, of one storage type."""
    found = [_find_plain(reader) for reader in readers]
    plain = [pair for pair in found if pair is not None]
    if len(plain) < len(found):
        return None
    sources = [reader.source for reader, _ in plain]
    maps = [source.open() for source in sources if isinstance(source, ShardSource)]
    if len(maps) < len(found) or len({part.dtype for part in maps}) > 1:
        return None
    joined, reader = JoinedMaps(maps), plain[0][0]
    firsts = [int(reader.first_tokens(np.array(first))) for reader, first in plain]
    return PlainRows(
        stream=joined, firsts=np.add(joined.firsts, firsts), stride=reader.stride, seq_len=reader.seq_len
    )


def _find_plain(reader: ReaderNode) -> tuple[MemmapReader, int] | None:
    """Return the reader of plain windows, and its first sample that is read; None for other readers."""
    if isinstance(reader, SampleRange):
        within = _find_plain(reader.upstream)
        return None if within is None else (within[0], within[1] + reader.first)
    inner = reader.upstream if isinstance(reader, DocumentMarks) else reader
    return (inner, 0) if isinstance(inner, MemmapReader) else None


def _find_ends(reader: ReaderNode) -> Callable[[Ints], RowEnds] | None:
    """Return the function that tells where documents end in a reader's samples; None if it has none."""
    if isinstance(reader, SampleRange):
        within = _find_ends(reader.upstream)
        return within and partial(_shift, within, reader.first)
    return reader.find_ends if isinstance(reader, DocumentMarks) else None


def _shift(within: Callable[[Ints], RowEnds], first: int, indices: Ints) -> RowEnds:
    return within(indices + first)
