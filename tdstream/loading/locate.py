"""Say which tokens were in a step, from a state alone: nothing is run, and no tokens are read.

Where documents decide what a sample holds, the corpus's index of documents, or its plan, is asked as well.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from tdstream.core.checks import check_int
from tdstream.core.errors import ConfigError, StateError
from tdstream.loading.portable_state import legs_of, open_portable
from tdstream.nodes.base import ReaderNode
from tdstream.nodes.shard_source import expanded_sizes
from tdstream.schedule.mixture_plan import MixturePlan
from tdstream.schedule.mixture_schedule import Ints
from tdstream.schedule.order import Order, make_order
from tdstream.schedule.partition import EpochLengths, SameLength, folded
from tdstream.schedule.run_cursor import RunCursor, RunSpan

Shards = tuple[Sequence[str], Sequence[int]]
"""File names, and offsets in the stream of tokens with one more entry."""
_NONE: Shards = ((), ())


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive tokens of one shard."""

    shard: str
    """The shard's file name."""
    first: int
    """The first token's place in the shard."""
    tokens: int
    document: int = -1
    """The number of the document that they are of, where documents decide what a row holds; else -1."""


Place = Callable[[str, int], tuple[int, tuple[Piece, ...]]]
"""Returns, of a source's sample, its first token and its pieces."""


def by_stride(reader: dict[str, Any], shards: Mapping[str, Shards] | None) -> Place:
    """Return where samples lie that begin at multiples of a stride.

    Args:
        reader: The reader's identity.
        shards: Of each source by name, its shards; None where it is not known where a source begins.
    """
    stride = int(reader["stride"])
    begin = reader.get("first_token", 0) + reader.get("first_sample", 0) * stride

    def place(name: str, index: int) -> tuple[int, tuple[Piece, ...]]:
        if shards is None:
            return -1, ()
        first = begin + index * stride
        return first, _pieces(shards.get(name, _NONE), first, reader["seq_len"] + 1)

    return place


def by_documents(
    reader: dict[str, Any],
    shards: Mapping[str, Shards],
    readers: Mapping[str, ReaderNode] | None,
    *,
    nameable: bool = True,
) -> Place:
    """Return where samples lie if documents decide that.

    Args:
        reader: The reader's identity.
        shards: Of each source by name, its shards.
        readers: Of each source, what tells where its samples lie.
        nameable: Whether the command line can name the source: one corpus, or a range of its samples.

    Raises:
        ConfigError: If nobody tells.
    """
    if readers is None:
        by_data = "Name the corpus with --data, or ask" if nameable else "Ask"
        raise ConfigError(
            f'samples of cut="{reader["cut"]}" begin where documents do, which the state does not tell. '
            f"{by_data} loader.locate."
        )

    def place(name: str, index: int) -> tuple[int, tuple[Piece, ...]]:
        if name not in readers:
            return -1, ()
        starts, lengths, documents = (part.tolist() for part in readers[name].stretches(index))
        pieces = [
            replace(piece, document=document)
            for start, tokens, document in zip(starts, lengths, documents, strict=True)
            for piece in _pieces(shards.get(name, _NONE), start, tokens)
        ]
        return starts[0], tuple(pieces)

    return place


def _pieces(shards: Shards, first: int, tokens: int) -> tuple[Piece, ...]:
    """Return where tokens first, first + 1, ... of the stream lie."""
    names, offsets = shards
    pieces = []
    while tokens and len(names):
        shard = bisect_right(offsets, first) - 1
        here = min(offsets[shard + 1] - first, tokens)
        pieces.append(Piece(names[shard], first - offsets[shard], here))
        first, tokens = first + here, tokens - here
    return tuple(pieces)


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
    """Where its tokens lie, seq_len + 1 or, where documents decide, up to so many; empty where the state
    cannot tell and no corpus was given."""
    source: str = ""
    """The name of its source in a mixture; index and tokens are counted in that source."""


@dataclass(frozen=True, slots=True)
class Located:
    """What a step had, or will have."""

    step: int
    epoch: int
    samples: tuple[LocatedSample, ...]


def journey_of(state: dict[str, Any]) -> tuple[RunCursor, dict[str, dict[str, Any]]]:
    """Return the journey and the identities of a portable state.

    Raises:
        StateError: If it is none, or was cut.
    """
    epoch, position, nodes = open_portable(state)
    lengths = lengths_of(nodes)
    step, done, legs = legs_of(nodes["splitter"], epoch, position, lengths)
    wrap = nodes["splitter"].get("tail") == "wrap"
    last = legs[-1]
    sizes = {"global_batch": last.global_batch, "batch_size": last.batch_size}
    journey = RunCursor(num_samples=lengths, wrap=wrap, **sizes)
    journey.restore((epoch, position), step, done, legs)
    return journey, nodes


def lengths_of(nodes: dict[str, dict[str, Any]]) -> EpochLengths:
    """Return the samples of epochs, from the identities in a state.

    Raises:
        StateError: If they were cut or changed.
    """
    plan = plan_of(nodes)
    if plan is not None:
        return plan.schedule
    try:
        reader = nodes["reader"]
        if "samples" in reader:  # a part of them, or samples whose number documents decide
            return SameLength(int(reader["samples"]))
        tokens = reader.get("tokens", nodes["source"]["total_tokens"])
        return SameLength(int((tokens - reader["seq_len"] - 1) // reader["stride"] + 1))
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise _cut(error) from None


def plan_of(nodes: dict[str, dict[str, Any]]) -> MixturePlan | None:
    """Return the plan of the mixture in a state, if it is of one.

    Raises:
        StateError: If it was cut or changed.
    """
    if "mixture" not in nodes:
        return None
    order = cut_of(nodes)[1]
    seed = None if order.get("order") == "sequential" else order.get("seed")
    return MixturePlan.of_state(nodes["mixture"], seed)


def cut_of(nodes: dict[str, dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return how samples are cut, and how they are ordered: the identities of reader and permutation.

    Raises:
        StateError: If they were cut or changed.
    """
    try:
        parts = nodes.get("mixture", nodes)
        return {**parts["reader"]}, {**parts["permutation"]}
    except (KeyError, TypeError) as error:
        raise _cut(error) from None


def locate_step(
    journey: RunCursor,
    nodes: dict[str, dict[str, Any]],
    step: int,
    rank: int | None = None,
    shards: Mapping[str, Shards] | None = None,
    readers: Mapping[str, ReaderNode] | None = None,
) -> Located:
    """Return what a step had, or will have.

    Args:
        journey: Where the run stands, and how it came there.
        nodes: The identities of the pipeline's nodes.
        step: The step, counted from 0 over the whole run.
        rank: Only this data-parallel rank's rows; None means the global batch.
        shards: Of each source by name ("" where there is only one), file names, and offsets with one more
            entry; by default what the state tells.
        readers: Of each source, what tells where its samples lie if documents decide that.

    Raises:
        ConfigError: If the step is older than what the state remembers, there is no such rank, or documents
            decide where samples lie and nobody tells.
    """
    try:
        leg = journey.locate(step)
    except LookupError as error:
        raise ConfigError(f"{error.args[0]} Use a state from before that.") from None
    ends = journey.lengths.num_samples(leg.epoch), journey.lengths.fills_from(leg.epoch)
    positions = folded(_positions(leg, rank), *ends)
    names, indices = _places(nodes, positions, leg.epoch)
    if shards is None:
        shards = {} if "mixture" in nodes else {"": shards_of(nodes["source"])}
    reader, _ = cut_of(nodes)
    if "cut" in reader:
        nameable = "mixture" not in nodes and "first_document" not in reader
        place = by_documents(reader, shards, readers, nameable=nameable)
    else:
        plan = plan_of(nodes)  # without parts of sources, a mixture's state tells where their samples begin
        place = by_stride(reader, shards if plan is None or not plan.has_parts else None)
    first_row = 0 if rank is None else rank * leg.batch_size
    samples = []
    for row, (position, name, index) in enumerate(zip(positions.tolist(), names, indices, strict=True)):
        its_rank = (first_row + row) // leg.batch_size if leg.batch_size else -1
        samples.append(LocatedSample(its_rank, position, index, *place(name, index), source=name))
    return Located(step, leg.epoch, tuple(samples))


def _places(nodes: dict[str, dict[str, Any]], positions: Ints, epoch: int) -> tuple[list[str], list[int]]:
    """Return the names of the sources at positions ("" where there is one), and the samples' own indices."""
    plan, (_, order) = plan_of(nodes), cut_of(nodes)
    if plan is None:
        samples = lengths_of(nodes).num_samples(epoch)
        return [""] * len(positions), _order(order, samples, epoch)(positions).tolist()
    sources, numbers = plan.schedule.at(positions, epoch)
    own_epochs, own_positions = plan.own_places(sources, numbers)
    own = zip(sources.tolist(), own_epochs.tolist(), np.split(own_positions, len(positions)), strict=True)
    indices = [int(_order(order, plan.entries[which].samples, when)(at)[0]) for which, when, at in own]
    return [plan.names[source] for source in sources.tolist()], indices


def _order(order: dict[str, Any], num_samples: int, epoch: int) -> Order:
    return make_order(
        order["order"],
        num_samples=num_samples,
        seed=order["seed"],
        epoch=epoch,
        block_samples=order.get("block_samples") or 1,
    )


def shards_of(source: dict[str, Any]) -> Shards:
    """Return names and offsets of the shards as far as a state tells; names by the format's rule."""
    sizes = expanded_sizes(source["shard_tokens"])
    return [f"chunk_{number:06d}.bin" for number in range(len(sizes))], [0, *accumulate(sizes)]


def _cut(error: Exception) -> StateError:
    return StateError(
        f"the state does not tell what it counts ({type(error).__name__}: {error}); it was changed."
    )


def _positions(leg: RunSpan, rank: int | None) -> Ints:
    """Return the positions of a step, or of one rank's part of it."""
    if rank is None:
        return np.arange(leg.position, leg.position + leg.global_batch, dtype=np.int64)
    if not leg.batch_size:
        raise ConfigError("the state does not tell how that step was dealt out to ranks; leave rank out.")
    ranks = leg.global_batch // leg.batch_size
    if check_int("rank", rank, at_least=0) >= ranks:
        raise ConfigError(f"rank must be 0 to {ranks - 1} at step {leg.step:,}, got {rank}.")
    first = leg.position + rank * leg.batch_size
    return np.arange(first, first + leg.batch_size, dtype=np.int64)
