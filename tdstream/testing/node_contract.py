"""The contract of one node."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import numpy as np

from tdstream.core.errors import TdstreamError
from tdstream.distributed.topology import Worker
from tdstream.nodes.base import DocumentSource, LazyStream, TokenSource
from tdstream.nodes.rows import MarkedRows, SourcedRows
from tdstream.nodes.splitter import Splitter
from tdstream.testing.contract import (
    ContractError,
    Row,
    list_rows,
    open_files,
    pickled,
    read_state,
    require,
    require_processes,
    require_refusal,
)

_MOST = 64  # samples that are read of a large node
_ROUNDS = 40  # of reading and loading, to see drift
_SLACK = 64  # bytes by which a pickle may grow
_STORED = (np.dtype("uint16"), np.dtype("uint32"))


def check_node(
    make_node: Callable[[], Any],
    *,
    make_other: Callable[[], Any] | None = None,
    descriptive: Collection[str] = (),
) -> None:
    """Check that a node keeps the contract that exact resume rests on.

    Every node: its state holds JSON types, is built fresh at each call, loads into a fresh node, and is
    refused with a StateError that names the field where it differs. Two fresh nodes, a pickled copy, a forked
    and a spawned process read the same. Reading and loading again and again changes nothing, and leaves no
    file open.

    An indexed node also reads the same samples in any order, one by one, together and planned, as rows of one
    shape and storage type. An ordered node's indices depend on position and epoch alone. A token source reads
    the same ranges as rows and as slices, and its documents end within it. A splitter resumes at every item.

    Args:
        make_node: Returns a fresh node, over data that do not change. Of a large one some samples are read.
        make_other: Returns a node with other data or other settings, whose state must be refused.
        descriptive: Fields of the state that are not compared, because they only describe.

    Raises:
        ContractError: If the node breaks the contract; the message is one sentence on how.
    """
    node = make_node()
    name = getattr(node, "name", None)
    require(
        isinstance(name, str) and bool(name),
        f"{type(node).__name__}.name is {name!r}; it must be a string, the key of the node's part in states.",
    )
    label = type(node).__name__
    _check_state(make_node, label, make_other)
    if isinstance(node, Splitter):
        _check_splitter(make_node)
    else:
        _check_refusals(make_node, descriptive)
    if _is_source(node):
        _check_source(node, label)
    elif _is_indexed(node):
        _check_rows(node, label)
    require(
        read_all(make_node()) == read_all(make_node()),
        f"two fresh nodes of {label} read different samples; these depend on data and settings alone.",
    )
    if _is_indexed(node):
        _check_reads(make_node, label)
    require_processes(node, label, read_all, _read_first)
    _check_drift(make_node, label)


def read_all(node: Any) -> list[Row]:
    """Return what a node of any kind reads, or its first and last samples and some between."""
    if isinstance(node, Splitter):
        return list(_items(node.begin(0, Worker(0, 1, False))))
    if _is_source(node):
        starts, length = _ranges(node)
        return list_rows(LazyStream(node).rows(starts, length))
    return list_rows(node.read(_indices(node))) if _is_indexed(node) else []


def _read_first(node: Any) -> None:
    if _is_indexed(node):
        node.read(np.zeros(1, np.int64))


def _is_indexed(node: Any) -> bool:
    return hasattr(node, "read") and hasattr(node, "__len__") and not isinstance(node, Splitter)


def _is_source(node: Any) -> bool:
    return hasattr(node, "open") and hasattr(node, "total_tokens")


def _indices(node: Any) -> Any:
    """Return all indices of a small node; of a large one the first, the last, and some between."""
    if len(node) <= _MOST:
        return np.arange(len(node), dtype=np.int64)
    between = np.random.default_rng(0).integers(0, len(node), _MOST // 2)
    edge = _MOST // 4
    return np.concatenate([np.arange(edge), np.arange(len(node) - edge, len(node)), between])


def _ranges(source: TokenSource) -> tuple[Any, int]:
    """Return first tokens [n] and a length, within a source."""
    length = min(source.total_tokens, 9)
    last = source.total_tokens - length
    return np.unique(np.linspace(0, last, _MOST, dtype=np.int64)), length


def _check_state(make_node: Callable[[], Any], label: str, make_other: Callable[[], Any] | None) -> None:
    state = read_state(make_node(), label)
    other = read_state(make_node(), label)
    require(state == other, f"two fresh nodes of {label} have different states: {state} and {other}.")
    fresh = make_node()
    _load(fresh, state, f"{label} refuses the state of an equal node")
    require(read_state(fresh, label) == state, f"{label} has another state after loading its own.")
    require(fresh.differences(state) == [], f"{label}.differences names some between equal nodes.")
    if make_other is not None:
        _require_apart(make_node, make_other, label)


def _load(node: Any, state: dict[str, Any], sentence: str) -> None:
    try:
        node.load_state_dict(copy.deepcopy(state))
    except TdstreamError as error:
        raise ContractError(f"{sentence}: {error}") from error


def _require_apart(make_node: Callable[[], Any], make_other: Callable[[], Any], label: str) -> None:
    state = read_state(make_other(), label)
    try:
        make_node().load_state_dict(state)
    except TdstreamError:
        return
    raise ContractError(
        f"{label} loads the state of the node that make_other returns, which has other data or settings: its "
        f"identity, {state}, does not tell them apart. Add what decides the samples, such as a checksum."
    )


def _check_refusals(make_node: Callable[[], Any], descriptive: Collection[str]) -> None:
    """Change each field of the state in turn, and refuse a node that loads it."""
    node = make_node()
    state = read_state(node, node.name)
    if _is_source(node):
        require(
            state.get("total_tokens") == node.total_tokens,
            f'the identity of a source holds "total_tokens", {node.total_tokens:,} here; it is {state}.',
        )
    for path, changed in _changes(state):
        if descriptive and set(path) & set(descriptive):
            continue
        fresh, what = make_node(), f"another {'.'.join(path).rstrip('.')}"
        require_refusal(partial(fresh.load_state_dict, changed), path[-1], what)
        require(
            read_state(fresh, node.name) == state,
            f"a state with {what} was refused, but has changed {type(node).__name__}.",
        )


def _changes(value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each field of a state, as a path of keys, and a copy of the state in which it is another one.

    A path ends with "" at an entry of a list, which a node names in its own words.
    """
    if isinstance(value, dict):
        for key in value:
            for path, inner in _changes(value[key]):
                yield (key, *path), {**value, key: inner}
    elif isinstance(value, list):
        for place in range(len(value)):
            for _, inner in _changes(value[place]):
                yield ("",), [*value[:place], inner, *value[place + 1 :]]
    elif isinstance(value, (bool, type(None))):
        yield (), not value
    else:
        yield (), value + 1 if isinstance(value, (int, float)) else f"{value}x"


def _check_reads(make_node: Callable[[], Any], label: str) -> None:
    node = make_node()
    indices = _indices(node)
    known = dict(zip(indices.tolist(), list_rows(make_node().read(indices)), strict=True))

    def require_rows(rows: Any, wanted: Any, how: str) -> None:
        require(
            list_rows(rows) == [known[index] for index in wanted.tolist()],
            f"{label} reads other samples {how}: a sample depends on its index alone, not on earlier reads.",
        )

    order = np.random.default_rng(1).permutation(indices)
    for index in order:
        require_rows(node.read(np.array([index])), np.array([index]), "one by one than together")
    require_rows(node.read(order), order, "in another order")
    twice = np.repeat(indices[:3], 2)
    require_rows(node.read(twice), twice, "when an index comes twice")
    bounds = _bounds(len(order))
    plan = node.plan(order, bounds)
    for item in [*range(len(bounds) - 1)[::-1], 0]:
        node.read(order[:1])
        own = order[bounds[item] : bounds[item + 1]]
        require_rows(plan.read(item), own, "by a plan than by read()")
    if hasattr(node, "indices"):
        _check_order(make_node, label)


def _bounds(number: int) -> list[int]:
    """Return the bounds of items of 1, 2, 3, 1, 2, 3, ... samples."""
    bounds = [0]
    while bounds[-1] < number:
        bounds.append(min(bounds[-1] + 1 + (len(bounds) - 1) % 3, number))
    return bounds


def _check_rows(node: Any, label: str) -> None:
    """Refuse rows of another shape or type than a reader's."""
    require(len(node) > 0, f"{label} has no samples, so there is nothing to check; give it a few.")
    indices = _indices(node)
    rows = node.read(indices)
    inner = rows.rows if isinstance(rows, SourcedRows) else rows
    tokens: Any = inner if isinstance(inner, np.ndarray) else getattr(inner, "tokens", None)
    found = getattr(tokens, "dtype", type(inner).__name__)
    require(found in _STORED, f"{label} reads rows of {found}; they are arrays of uint16 or uint32.")
    wanted = (len(indices), getattr(node, "seq_len", tokens.shape[-1] - 1) + 1)
    require(
        tokens.shape == wanted,
        f"{label} reads rows of shape {list(tokens.shape)} for {len(indices)} indices; [n, seq_len + 1] is "
        f"{list(wanted)}.",
    )
    if isinstance(inner, MarkedRows):
        require(
            bool((inner.lengths > 0).all() and (inner.lengths <= wanted[1]).all()),
            f"{label} reads rows whose lengths are not 1 to seq_len + 1.",
        )


def _check_order(make_node: Callable[[], Any], label: str) -> None:
    node, other = make_node(), make_node()
    for epoch in (0, 1, 0):
        number = min(node.num_samples(epoch), 4096)
        positions = np.arange(number, dtype=np.int64)
        found = node.indices(positions, epoch)
        require(
            found.dtype == np.int64 and found.shape == positions.shape,
            f"{label}.indices returns {found.dtype} of shape {list(found.shape)} for {number} positions.",
        )
        require(
            bool((found >= 0).all() and (found < len(node)).all()),
            f"{label}.indices returns indices that are not 0 to {len(node) - 1}.",
        )
        split = [other.indices(positions[at : at + 3][::-1], epoch)[::-1] for at in range(0, number, 3)]
        require(
            np.concatenate(split).tolist() == found.tolist(),
            f"{label}.indices depends on more than position and epoch: asked in other pieces, or by a fresh "
            f"node, it returns others in epoch {epoch}.",
        )


def _check_source(source: Any, label: str) -> None:
    require(source.name == "source", f'{label}.name is {source.name!r}; a token source is named "source".')
    require(
        np.dtype(source.dtype) in _STORED, f"{label}.dtype is {source.dtype}; it must be uint16 or uint32."
    )
    require(source.total_tokens > 0, f"{label} has no tokens, so there is nothing to check.")
    starts, length = _ranges(source)
    stream = LazyStream(source)
    rows = stream.rows(starts, length)
    require(
        rows.dtype == source.dtype and rows.shape == (len(starts), length),
        f"the stream of {label} reads {rows.dtype} of shape {list(rows.shape)}; expected {source.dtype} of "
        f"shape {[len(starts), length]}.",
    )
    shuffled = np.random.default_rng(1).permutation(len(starts))
    lengths = [1 + number % length for number in range(len(starts))]
    parts = stream.slices(starts[shuffled].tolist(), lengths)
    for number, part, wanted in zip(shuffled.tolist(), parts, lengths, strict=True):
        require(
            part.dtype == source.dtype and part.tolist() == rows[number, :wanted].tolist(),
            f"the stream of {label} reads other tokens at {starts[number]:,} as a slice of {wanted} than in "
            f"a row; they depend on the place alone.",
        )
    if isinstance(source, DocumentSource):
        _check_ends(source, label)


def _check_ends(source: DocumentSource, label: str) -> None:
    ends = source.ends()
    require(
        ends.total_tokens == source.total_tokens,
        f"{label}.ends() is of {ends.total_tokens:,} tokens, {label} has {source.total_tokens:,}.",
    )
    places = ends.between(0, ends.num_documents)
    require(
        bool((np.diff(places, prepend=0) > 0).all()) and int(places[-1]) == source.total_tokens,
        f"the ends of {label}'s documents do not rise up to {source.total_tokens:,}, its number of tokens.",
    )
    require(
        ends.identity() == source.ends().identity(), f"{label}.ends() returns other ends at the second call."
    )


def _items(splitter: Splitter) -> Iterator[Row]:
    while not splitter.exhausted:
        yield tuple(list_rows(splitter.read()))
        splitter.advance()


def _check_splitter(make_splitter: Callable[[], Splitter]) -> None:
    worker = Worker(0, 1, False)
    whole, opened = read_all(make_splitter()), make_splitter().begin(0, worker)
    for done in range(len(whole) + 1):
        state, resumed = read_state(opened, opened.name), make_splitter().begin(0, worker)
        _load(resumed, state, f"the splitter refuses its own state after {done} items")
        require(list(_items(resumed)) == whole[done:], f"resumed after {done} items, others follow.")
        if done < len(whole):
            opened.read()
            opened.advance()


def _check_drift(make_node: Callable[[], Any], label: str) -> None:
    node = make_node()
    state = read_state(node, label)

    def use(rounds: int) -> None:
        for _ in range(rounds):
            read_all(node)
            node.load_state_dict(copy.deepcopy(state))

    use(2)
    whole, files, size = read_all(node), len(open_files()), len(pickled(node, label))
    use(_ROUNDS)
    require(
        read_all(node) == whole, f"{label} reads other samples after {_ROUNDS} reads and loads: it drifts."
    )
    require(read_state(node, label) == state, f"the state of {label} changes while it is read.")
    now = len(open_files())
    require(now <= files, f"{label} has {now - files} more files open after {_ROUNDS} reads and loads.")
    now = len(pickle.dumps(node))
    require(
        now <= size + _SLACK,
        f"{label}, pickled, has grown from {size:,} to {now:,} bytes in {_ROUNDS} reads and loads.",
    )
