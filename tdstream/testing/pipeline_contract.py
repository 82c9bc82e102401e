"""The contract of a whole pipeline: exact resume at every position."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice, repeat
from typing import Any

from torchdata.stateful_dataloader import StatefulDataLoader

from tdstream.core.errors import ConfigError, GeometryError
from tdstream.distributed.topology import Topology
from tdstream.loading.loader import Loader
from tdstream.loading.torchdata_workarounds import silence_set_vital
from tdstream.nodes.splitter import Splitter
from tdstream.pipelines.pipeline import Pipeline
from tdstream.testing.contract import (
    Row,
    list_batch,
    list_batch_rows,
    open_files,
    read_state,
    require,
    require_processes,
    require_refusal,
)

Make = Callable[[], Pipeline]

_MOST = 64  # items of an epoch that is resumed at every position
_ROUNDS = 10  # epochs, to see drift


def check_pipeline(make_pipeline: Callable[[], Pipeline], *, workers: Sequence[int] = (0, 2)) -> None:
    """Check that a pipeline resumes exactly, at every position of its first epoch.

    - Two fresh pipelines, a pickled copy, a forked and a spawned process serve the same epoch, and `len` is
      its number of items. `set_epoch` serves any epoch again. Epochs differ if the pipeline shuffles.
    - Resumed from the state at any position, the rest of the epoch and the next epoch follow: in the
      pipeline's own iterator, in StatefulDataLoader and in `tdstream.loader`, with each number of workers.
    - A state of two ranks resumes on one rank, with the same and with another batch size.
    - States hold JSON types and name each node, and a state of other data is refused.
    - Epoch after epoch, no state grows and no file stays open.

    Pipelines of single samples, without a batch size, skip what `tdstream.loader` does.

    Args:
        make_pipeline: Returns a fresh pipeline, over data that do not change, with an epoch of 4 to 64 items.
        workers: Numbers of loader workers. Each position starts as many processes; 0 starts none.

    Raises:
        ContractError: If the pipeline breaks the contract; the message is one sentence on how.
        ConfigError: If it is no pipeline, or its epoch has fewer or more items.
    """
    pipeline = make_pipeline()
    if not isinstance(pipeline, Pipeline):
        raise ConfigError(f"check_pipeline checks a tdstream.Pipeline, got a {type(pipeline).__name__}.")
    if not 4 <= len(pipeline) <= _MOST:
        raise ConfigError(
            f"check_pipeline resumes at every position of an epoch, which must have 4 to {_MOST} items. This "
            f"one has {len(pipeline):,}; use other data, or another batch size."
        )
    epochs = _check_epochs(make_pipeline)
    _check_iterators(make_pipeline, epochs)
    _check_refusals(make_pipeline)
    batched = pipeline.splitter.batch_size is not None
    for number in workers:
        _check_stateful(make_pipeline, epochs, number, batched=batched)
        if batched:
            _check_loader(make_pipeline, epochs, number)
    if batched:
        _check_elastic(make_pipeline)
    require_processes(pipeline, "the pipeline", read_epoch, lambda opened: next(iter(opened)))
    _check_drift(make_pipeline)


def read_epoch(pipeline: Pipeline) -> list[Row]:
    """Return the items of the first epoch."""
    pipeline.set_epoch(0)
    return list(map(list_batch, pipeline))


def _check_epochs(make: Make) -> list[list[Row]]:
    """Return the items of the first two epochs."""
    pipeline = make()
    epochs = [list(map(list_batch, pipeline)) for _ in range(2)]
    for epoch, items in enumerate(epochs):
        fresh = make()
        fresh.set_epoch(epoch)
        require(
            list(map(list_batch, fresh)) == items,
            f"two fresh pipelines serve different items in epoch {epoch}: what a pipeline serves depends on "
            f"its settings alone.",
        )
        pipeline.set_epoch(epoch)
        require(
            list(map(list_batch, pipeline)) == items,
            f"served again after set_epoch({epoch}), epoch {epoch} has other items.",
        )
        fresh.set_epoch(epoch)
        require(
            len(fresh) == len(items), f"len() is {len(fresh)} in epoch {epoch}, which has {len(items)} items."
        )
    order = pipeline.identities().get("permutation", {}).get("order")
    if order is not None:
        same, how = epochs[0] == epochs[1], f'the order of epochs is "{order}"'
        require(
            same == (order == "sequential"), f"{how}, and epochs 0 and 1 are {'' if same else 'not '}equal."
        )
    return epochs


def _check_iterators(make: Make, epochs: list[list[Row]]) -> None:
    for done, state in enumerate(_states(iter(make()), epochs[0], "the pipeline's iterator")):
        pipeline = make()
        iterator = iter(pipeline)
        iterator.load_state_dict(state)
        _require_rest([iterator, pipeline], epochs, done, "the pipeline's iterator")


def _check_stateful(make: Make, epochs: list[list[Row]], workers: int, *, batched: bool) -> None:
    how = f"StatefulDataLoader with num_workers={workers}"

    def loader() -> Any:
        with silence_set_vital():
            options = {} if batched else {"batch_size": None}
            return StatefulDataLoader(make(), num_workers=workers, **options)

    if not batched and workers:
        epochs = [list(map(list_batch, loader()))]  # as many streams, which end elsewhere
    whole = loader()
    for done, state in enumerate(_loader_states(whole, epochs[0], how), start=1):
        resumed = loader()
        resumed.load_state_dict(state)
        _require_rest(repeat(resumed, 2), epochs[: 1 if workers else 2], done, how)


def _check_loader(make: Make, epochs: list[list[Row]], workers: int) -> None:
    how = f"tdstream.loader with num_workers={workers}"
    whole = Loader(make(), num_workers=workers)
    states = [read_state(whole, how), *_loader_states(whole, epochs[0], how)]
    for done, state in enumerate(states):
        resumed = Loader(make(), num_workers=workers)
        resumed.load_state_dict(copy.deepcopy(state))
        passes = 1 if workers and done < len(epochs[0]) else 2
        _require_rest(repeat(resumed, 2), epochs[:passes], done, how)


def _states(iterator: Any, items: list[Row], how: str) -> Iterator[dict[str, Any]]:
    """Yield the states before the first item, after it, and so on."""
    yield read_state(iterator, how)
    for number, (item, wanted) in enumerate(zip(iterator, items, strict=True)):
        require(
            list_batch(item) == wanted, f"{how} serves another item {number} than iterating the pipeline."
        )
        yield read_state(iterator, how)


def _loader_states(loader: Any, items: list[Row], how: str) -> Iterator[dict[str, Any]]:
    """Yield a loader's states after its first item, its second, and so on."""
    number = -1
    for number, item in enumerate(loader):
        require(
            number < len(items) and list_batch(item) == items[number],
            f"{how} serves another item {number} than iterating the pipeline.",
        )
        yield copy.deepcopy(loader.state_dict())
    require(number + 1 == len(items), f"{how} serves {number + 1} items, the pipeline {len(items)}.")


def _require_rest(passes: Iterable[Iterable[Any]], epochs: list[list[Row]], done: int, how: str) -> None:
    """Refuse passes that serve, after some items of the first epoch, anything else than those that follow."""
    wanted = [*chain.from_iterable(epochs)][done:]
    found = list(map(list_batch, islice(chain.from_iterable(passes), len(wanted))))
    same = [item == other for item, other in zip(found, wanted, strict=False)]
    require(
        found == wanted,
        f"{how}, resumed after {done} items, differs from item {done + same.index(False)} on."
        if False in same
        else f"{how}, resumed after {done} items, serves {len(found)} instead of {len(wanted)}.",
    )


def _with_ranks(pipeline: Pipeline, rank: int, ranks: int, batch_size: int) -> Pipeline:
    """Return the same nodes, dealt out in another way."""
    own = pipeline.splitter
    tail = "wrap" if own.tail == "keep" else own.tail  # so that rows stand in their order
    splitter = Splitter(
        own.upstream, topology=Topology(rank, ranks), batch_size=batch_size, tail=tail, skip=own.skip
    )
    return Pipeline(pipeline.indexed, splitter, pipeline.collate, strict=pipeline.strict)


def _check_elastic(make: Make) -> None:
    """Save on two ranks at every step, and resume on one."""
    batch_size = make().splitter.batch_size or 1
    one = _with_ranks(make(), 0, 1, 1)
    order, next_order = ([row for batch in one for row in list_batch_rows(batch)] for _ in range(2))
    try:
        ranks = [Loader(_with_ranks(make(), rank, 2, batch_size)) for rank in range(2)]
    except GeometryError as error:
        raise ConfigError(f"check_pipeline also serves two ranks: {error}") from None
    steps = len(ranks[0])
    for step, batches in enumerate(zip(*ranks, strict=True), start=1):
        first = (step - 1) * 2 * batch_size
        rows = [row for batch in batches for row in list_batch_rows(batch)]
        wanted = order[first : first + len(rows)]
        require(rows[: len(wanted)] == wanted, f"two ranks serve other rows than one in step {step - 1}.")
        state, other = (read_state(rank, "tdstream.loader") for rank in ranks)
        require(state == other, f"the states of two ranks differ after step {step - 1}: {state} and {other}.")
        following = order[first + len(rows) :] if step < steps else next_order
        for size in (batch_size, max(batch_size // 2, 1)):
            loader = Loader(_with_ranks(make(), 0, 1, size))
            loader.load_state_dict(copy.deepcopy(state))
            rest = [row for batch in loader for row in list_batch_rows(batch)]
            number = min(len(rest), len(following))  # a tail may be dropped, or filled up
            require(
                rest[:number] == following[:number] and len(following) - number < size,
                f"a state of two ranks after {step} steps, resumed on one rank with batch_size={size}, "
                f"serves other rows than those that follow.",
            )


def _check_refusals(make: Make) -> None:
    """Take away what each node's part of a state holds, and refuse a pipeline that loads it."""
    state = read_state(iter(make()), "the pipeline's iterator")
    names = [node.name for node in make().identified_nodes()]
    require(
        list(state["nodes"]) == [*names[:-1], "splitter", names[-1]],
        f"the state names {', '.join(state['nodes'])}; expected {', '.join(names)}, and the splitter.",
    )
    for name in names:
        changed = copy.deepcopy(state)
        changed["nodes"][name] = {}
        iterator = iter(make())
        require_refusal(partial(iterator.load_state_dict, changed), name, f"nothing of {name}")


def _check_drift(make: Make) -> None:
    pipeline = make()
    wanted = read_epoch(pipeline)
    state, files = read_state(iter(make()), "the pipeline's iterator"), len(open_files())
    for _ in range(_ROUNDS):
        require(read_epoch(pipeline) == wanted, "epoch 0 has other items when it is served again: it drifts.")
        iter(pipeline).load_state_dict(copy.deepcopy(state))
    now = len(open_files())
    require(now <= files, f"the pipeline has {now - files} more files open after {_ROUNDS} epochs.")
    pipeline.set_epoch(0)
    require(
        read_state(iter(pipeline), "the pipeline's iterator") == state,
        "the state at an epoch's beginning changes from one pass to the next.",
    )
