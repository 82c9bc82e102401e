"""The tokens of a step, found from a state alone: nothing is run, and no tokens are read.

Where documents decide what a sample holds, the corpus's index of documents, or its plan, is asked as well.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from tdstream.core.checks import check_int
from tdstream.core.errors import ConfigError, StateError
from tdstream.core.state_schema import COUNT, PART, SEED, SIZE, TEXT, one_of, read_fields
from tdstream.loading.portable_state import SavedPartition, open_portable
from tdstream.nodes.base import ReaderNode
from tdstream.nodes.shard_source import expand_sizes
from tdstream.schedule.mixture_plan import MixturePlan
from tdstream.schedule.mixture_schedule import Ints
from tdstream.schedule.order import MAX_SAMPLES, ORDER_VERSIONS, Order, make_order
from tdstream.schedule.partition import EpochLengths, SameLength, deal, folded
from tdstream.schedule.run_cursor import RunCursor, RunSpan

Shards = tuple[Sequence[str], Sequence[int]]
"""File names, and offsets in the stream of tokens with one more entry."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive tokens of one shard."""

    shard: str
    """The shard's file name."""
    first: int
    """The first token's place in the shard."""
    tokens: int
    document: int = -1
    """The number of their document, where documents decide what a row holds; else -1."""


@dataclass(frozen=True, slots=True)
class LocatedSample:
    """One row of a batch."""

    rank: int
    """The data-parallel rank that had it; -1 where the state does not tell."""
    position: int
    """Its place in the epoch's served order."""
    index: int
    """Its place in the stored order."""
    first_token: int
    """Its first token's place in the corpus read as one stream; -1 where the state does not tell."""
    pieces: tuple[Piece, ...]
    """Where its tokens lie: seq_len + 1 or, where documents decide, at most that many; empty where the state
    does not tell and no corpus was given."""
    source: str = ""
    """The name of its source in a mixture; index and tokens are counted in that source."""


@dataclass(frozen=True, slots=True)
class Located:
    """The samples of a step."""

    step: int
    epoch: int
    samples: tuple[LocatedSample, ...]


_MOST_LISTED = 1_000_000  # samples of a step
_MOST_PERMUTED = 2**30  # samples of which an order is kept in memory


def _read_reader(reader: dict[str, Any]) -> dict[str, Any]:
    sizes = {"stride": SIZE, "samples": SIZE, "tokens": SIZE, "first_token": COUNT, "first_sample": COUNT}
    needed = {"seq_len": SIZE} | ({} if "cut" in reader else {"stride": SIZE})
    names = {"cut": TEXT, "min_tail_len": COUNT, "pad_id": COUNT, "window": SIZE}
    return read_fields("reader", reader, needed) | read_fields("reader", reader, sizes | names, optional=True)


def _read_order(order: dict[str, Any]) -> dict[str, Any]:
    found = read_fields("permutation", order, {"order": one_of(*ORDER_VERSIONS), "seed": SEED})
    versions = {"version": one_of(ORDER_VERSIONS[found["order"]]), "block_samples": COUNT}
    return found | read_fields("permutation", order, versions, optional=True)


class SavedPipeline:
    """What the identities in a state tell of the pipeline."""

    def __init__(self, nodes: dict[str, dict[str, Any]]) -> None:
        self.nodes = nodes
        parts = nodes.get("mixture", nodes)
        found = read_fields("nodes", parts, {"reader": PART, "permutation": PART})
        self.reader = {**found["reader"], **_read_reader(found["reader"])}
        self.order = {**found["permutation"], **_read_order(found["permutation"])}
        try:
            self.plan = self._read_plan()
            """The plan of a mixture, if it reads one."""
            self.lengths: EpochLengths = self.plan.schedule if self.plan else self._read_length()
        except StateError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
            raise StateError(
                f"the state does not tell what it counts ({type(error).__name__}: {error}); it was changed."
            ) from None

    def _read_plan(self) -> MixturePlan | None:
        if "mixture" not in self.nodes:
            return None
        seed = None if self.order.get("order") == "sequential" else self.order.get("seed")
        return MixturePlan.from_state(self.nodes["mixture"], seed)

    def _read_length(self) -> SameLength:
        if "samples" in self.reader:  # a part of the samples, or documents decide how many there are
            return SameLength(self.reader["samples"])
        seq_len, stride, tokens = self.reader["seq_len"], self.reader["stride"], self.reader.get("tokens")
        if tokens is None:
            source = read_fields("nodes", self.nodes, {"source": PART})["source"]
            tokens = read_fields("source", source, {"total_tokens": SIZE})["total_tokens"]
        samples = (tokens - seq_len - 1) // stride + 1
        if samples < 1:
            raise ValueError(f"{tokens:,} tokens are no sample of {seq_len:,}")
        return SameLength(samples)

    def shards(self) -> dict[str, Shards]:
        """Return the names, by the format's rule, and offsets of one corpus's shards; {} for a mixture."""
        if self.plan is not None:
            return {}
        source = read_fields("nodes", self.nodes, {"source": PART})["source"]
        if "format" in source:
            return {}  # files of another tool have names of their own
        sizes = expand_sizes(source.get("shard_tokens", ""))
        names = [f"chunk_{number:06d}.bin" for number in range(len(sizes))]
        return {"": (names, [0, *accumulate(sizes)])}

    def find_samples(self, positions: Ints, epoch: int) -> tuple[list[str], list[int]]:
        """Return, of positions [n], the names of their sources ("" for one corpus) and the stored indices."""
        plan = self.plan
        if not len(positions):
            return [], []
        if plan is None:
            order = self._make_order(self.lengths.num_samples(epoch), epoch)
            return [""] * len(positions), order(positions).tolist()
        sources, numbers = plan.schedule.at(positions, epoch)
        own_epochs, own_positions = plan.own_places(sources, numbers)
        places = zip(
            sources.tolist(), own_epochs.tolist(), np.split(own_positions, len(positions)), strict=True
        )
        indices = [
            int(self._make_order(plan.entries[which].samples, when)(at)[0]) for which, when, at in places
        ]
        return [plan.names[source] for source in sources.tolist()], indices

    def _make_order(self, num_samples: int, epoch: int) -> Order:
        if num_samples > (_MOST_PERMUTED if self.order["order"] == "numpy" else MAX_SAMPLES):
            raise StateError(
                f"the state's order of {num_samples:,} samples cannot be computed: a corpus has fewer. It "
                f"was cut or changed."
            )
        return make_order(
            self.order["order"],
            num_samples=num_samples,
            seed=self.order["seed"],
            epoch=epoch,
            block_samples=self.order.get("block_samples") or 1,
        )


def read_cursor(state: dict[str, Any]) -> tuple[RunCursor, SavedPipeline]:
    """Return where the run of a portable state stands, and what it reads."""
    epoch, position, nodes = open_portable(state)
    pipeline, partition = SavedPipeline(nodes), SavedPartition.read(nodes["splitter"])
    step, done, spans = partition.progress_at(epoch, position, pipeline.lengths)
    last = spans[-1]
    cursor = RunCursor(
        num_samples=pipeline.lengths, global_batch=last.global_batch, wrap=partition.tail == "wrap",
        keep=partition.tail == "keep", batch_size=last.batch_size,
    )  # fmt: skip
    cursor.restore((epoch, position), step, done, spans)
    return cursor, pipeline


def locate_step(
    cursor: RunCursor,
    pipeline: SavedPipeline,
    step: int,
    rank: int | None = None,
    shards: Mapping[str, Shards] | None = None,
    readers: Mapping[str, ReaderNode] | None = None,
) -> Located:
    """Return the samples of a step, counted from 0 over the run; with a rank only that rank's rows.

    `shards`, by source ("" for one corpus), default to what the state tells; `readers`, by source, tell where
    samples lie if documents decide that.
    """
    try:
        span = cursor.locate(step)
    except LookupError as error:
        raise ConfigError(f"{error.args[0]} Use a state from before that.") from None
    if span.global_batch > _MOST_LISTED:
        raise StateError(
            f"step {step:,} has {span.global_batch:,} samples by the state, and at most {_MOST_LISTED:,} can "
            f"be listed; it was cut or changed."
        )
    positions, ranks = _find_rows(cursor, span, rank)
    names, indices = pipeline.find_samples(positions, span.epoch)
    known = pipeline.shards() if shards is None else shards
    find: Callable[[str, int], Found]
    if "cut" in pipeline.reader:
        find = partial(_find_stretches, _check_readers(pipeline, readers), known)
    elif pipeline.plan is not None and pipeline.plan.has_parts:
        find = partial(_find_stretches, {}, known)  # a mixture's state does not tell where its parts begin
    else:
        find = partial(_find_window, pipeline.reader, known)
    samples = [
        LocatedSample(its_rank, position, index, *find(name, index), source=name)
        for its_rank, position, name, index in zip(ranks, positions.tolist(), names, indices, strict=True)
    ]
    return Located(step, span.epoch, tuple(samples))


def _find_rows(cursor: RunCursor, span: RunSpan, rank: int | None) -> tuple[Ints, list[int]]:
    """Return the positions of a step, or of one rank's part of it, and the rank of each; -1 if unknown."""
    num_samples = cursor.lengths.num_samples(span.epoch)
    left = num_samples - span.position
    size = min(span.global_batch, left) if cursor.keep else span.global_batch
    positions = np.arange(span.position, span.position + size, dtype=np.int64)
    positions = folded(positions, num_samples, cursor.lengths.fills_from(span.epoch))
    if not span.batch_size:
        if rank is not None:
            raise ConfigError(
                "the state does not tell which rank had which rows of that step; leave rank out."
            )
        return positions, [-1] * size
    shares = deal(size, span.global_batch // span.batch_size)
    if rank is None:
        return positions, [number for number, share in enumerate(shares) for _ in share]
    if check_int("rank", rank, at_least=0) >= len(shares):
        raise ConfigError(f"rank must be 0 to {len(shares) - 1} at step {span.step:,}, got {rank}.")
    own = shares[rank]
    return positions[own.start : own.stop], [rank] * len(own)


Found = tuple[int, tuple[Piece, ...]]
"""A sample's first token, -1 if unknown, and its pieces."""


def _find_window(reader: dict[str, Any], shards: Mapping[str, Shards], name: str, index: int) -> Found:
    """Find a sample that begins at a multiple of the stride."""
    stride = int(reader["stride"])
    first = reader.get("first_token", 0) + (reader.get("first_sample", 0) + index) * stride
    return first, _cut_at_shards(shards.get(name), first, reader["seq_len"] + 1)


def _find_stretches(
    readers: Mapping[str, ReaderNode], shards: Mapping[str, Shards], name: str, index: int
) -> Found:
    """Find a sample of which documents decide where it lies."""
    if name not in readers:
        return -1, ()
    starts, lengths, documents = (part.tolist() for part in readers[name].stretches(index))
    pieces = [
        replace(piece, document=document)
        for start, tokens, document in zip(starts, lengths, documents, strict=True)
        for piece in _cut_at_shards(shards.get(name), start, tokens)
    ]
    return starts[0], tuple(pieces)


def _cut_at_shards(shards: Shards | None, first: int, tokens: int) -> tuple[Piece, ...]:
    """Return where tokens first, first + 1, ... of the stream lie.

    With offsets [0, 10, 20], 4 tokens from 8 are tokens 8, 9 of the first shard and 0, 1 of the second.
    """
    names, offsets = shards or ((), ())
    pieces = []
    while tokens and names:
        shard = bisect_right(offsets, first) - 1
        if shard >= len(names):
            raise StateError(
                f"token {first:,} of the sample is after the {offsets[-1]:,} of the shards; the state "
                f"was cut or changed."
            )
        here = min(offsets[shard + 1] - first, tokens)
        pieces.append(Piece(names[shard], first - offsets[shard], here))
        first, tokens = first + here, tokens - here
    return tuple(pieces)


def _check_readers(
    pipeline: SavedPipeline, readers: Mapping[str, ReaderNode] | None
) -> Mapping[str, ReaderNode]:
    if readers is not None:
        return readers
    can_be_named = pipeline.plan is None and "first_document" not in pipeline.reader  # on the command line
    ask = "Name the corpus with --data, or ask" if can_be_named else "Ask"
    raise ConfigError(
        f'samples of cut="{pipeline.reader["cut"]}" begin where documents do, which the state does not tell. '
        f"{ask} loader.locate."
    )
