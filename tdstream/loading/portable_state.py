"""The portable state: one small dict, equal on all ranks, that loads under any geometry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tdstream.core.checks import LARGEST
from tdstream.core.errors import StateError
from tdstream.core.state import STATE_KEY, STATE_VERSION, unwrap_state
from tdstream.schedule.partition import EpochLengths, as_lengths, batches_before
from tdstream.schedule.run_cursor import RunCursor, RunSpan

_SNAPSHOT = "_snapshot"  # names inside StatefulDataLoader's state, which has no interface to ask
_FETCHER = "fetcher_state"
_ITERATOR = "dataset_iter_state"
_LIVE = "stream"  # what only states of live streams have
_CUT = "this StatefulDataLoader's state was not made over a tdstream pipeline, or was cut."


def portable_state(
    epoch: int,
    position: int,
    identities: dict[str, dict[str, Any]],
    dealing: dict[str, Any],
) -> dict[str, Any]:
    """Return {"tdstream", "epoch", "position", "nodes"}.

    Args:
        epoch: The epoch.
        position: Samples of it that trainers have been given (or that were left out), over all ranks.
        identities: What decides content and order, by node.
        dealing: The splitter's part, for people and for locating steps; another geometry may load it.
    """
    return {
        STATE_KEY: STATE_VERSION,
        "epoch": epoch,
        "position": position,
        "nodes": {**identities, "splitter": dealing},
    }


def dealing_of(journey: RunCursor, dp_world_size: int, tail: str) -> dict[str, Any]:
    """Return the splitter's part: how batches are dealt out now, and how the run came here.

    Args:
        journey: Where the run stands.
        dp_world_size: The ranks.
        tail: What becomes of an epoch's last incomplete global batch.
    """
    return {
        "batch_size": journey.batch_size,
        "dp_world_size": dp_world_size,
        "tail": tail,
        "batches_done": 0 if journey.place[1] == 0 else journey.batches_done,
        "step": journey.step,
        "history": journey.history(),
    }


def open_portable(state: dict[str, Any]) -> tuple[int, int, dict[str, dict[str, Any]]]:
    """Return a portable state's epoch, position and nodes.

    Raises:
        StateError: If it is none, is a newer one, or its place is none.
    """
    if isinstance(state, dict) and STATE_KEY not in state and any(_snapshots(state)):
        raise StateError(
            "this is not a portable state but holds one: a checkpoint, or a StatefulDataLoader's own "
            "state, of one rank and its workers. Pass tdstream.position_of(state) instead."
        )
    nodes = unwrap_state(state)
    _refuse_live(nodes)
    epoch, position = state.get("epoch"), state.get("position")
    if not all(isinstance(value, int) and 0 <= value <= LARGEST for value in (epoch, position)):
        raise StateError(
            f"the state's place is none: epoch={epoch!r}, position={position!r}; expected two integers of at "
            f"least 0. Load what state_dict() of a tdstream.loader, or tdstream.position_of, returned."
        )
    return int(state["epoch"]), int(state["position"]), nodes


def position_of(state: dict[str, Any]) -> dict[str, Any]:
    """Return the portable state of a bare StatefulDataLoader's, for a `tdstream.loader` of any geometry.

    Args:
        state: What StatefulDataLoader.state_dict() returned over `build(..., batch_size=...)`, or a
            checkpoint in which it, or a portable state, is contained at any depth. Any rank's will do.

    Raises:
        StateError: If there is no state in it, several that disagree, or one of single samples.
    """
    found = [_portable(snapshot) for snapshot in _snapshots(state)]
    if not found:
        raise StateError(
            "there is no state of a StatefulDataLoader over a tdstream pipeline in what was given."
        )
    if any(other != found[0] for other in found):
        raise StateError(
            f"there are {len(found)} loader states in what was given, at different places. Pass one."
        )
    return found[0]


def _snapshots(value: object) -> Iterator[dict[str, Any]]:
    """Find loader states, whole or portable, in nested dicts and lists."""
    if isinstance(value, dict):
        if STATE_KEY in value or _SNAPSHOT in value or isinstance(value.get(_FETCHER), dict):
            yield value
        else:
            for inner in value.values():
                yield from _snapshots(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _snapshots(inner)


def _portable(snapshot: dict[str, Any]) -> dict[str, Any]:
    if STATE_KEY in snapshot and "position" in snapshot:
        open_portable(snapshot)
        return snapshot
    if STATE_KEY in snapshot:
        _refuse_live(unwrap_state(snapshot))
    stream, batches = _stream_of(snapshot)
    nodes = unwrap_state(stream)
    _refuse_live(nodes)
    cursor = nodes.get("splitter", {})
    if cursor.get("batch_size") == 0:
        raise StateError(
            "this state counts single samples in each worker's stream; how many of them the trainer was "
            "given is known only to the loader that batched them, so it has no position in the global order. "
            "Resume it with the same ranks and workers, or use build(..., batch_size=...)."
        )
    try:
        dealing = {name: cursor[name] for name in ("batch_size", "dp_world_size", "tail")}
        position = cursor["start"] + batches * dealing["batch_size"] * dealing["dp_world_size"]
        epoch = cursor["epoch"]
    except (KeyError, TypeError):
        raise StateError(_CUT) from None
    identities = {name: dict(part) for name, part in nodes.items() if name != "splitter"}
    return portable_state(epoch, position, identities, dealing)


def _refuse_live(nodes: dict[str, dict[str, Any]]) -> None:
    if _LIVE in nodes:
        raise StateError(
            "this is the state of a live stream: it counts what one rank read of text that is tokenized on "
            "the fly, and has no position in a global order. Load it into a loader over the same stream, on "
            "the rank that saved it; text with cache_dir=... has states that go everywhere."
        )


def _stream_of(snapshot: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Return one process's part of a StatefulDataLoader's state, and the batches handed out."""
    try:
        if _SNAPSHOT in snapshot:
            inner = snapshot[_SNAPSHOT]
            worker = inner["_worker_snapshots"]["worker_0"]
            return worker[_FETCHER][_ITERATOR], inner["_snapshot_step"] + snapshot["_steps_since_snapshot"]
        if STATE_KEY in snapshot:
            raise StateError(
                "this is the state of one worker's stream; pass what the loader's state_dict() returned."
            )
        return snapshot[_FETCHER][_ITERATOR], snapshot["_num_yielded"]
    except (KeyError, TypeError):
        raise StateError(_CUT) from None


def legs_of(
    dealing: dict[str, Any],
    epoch: int,
    position: int,
    num_samples: int | EpochLengths,
    tail: str | None = None,
) -> tuple[int, int, list[RunSpan]]:
    """Return (step, batches done in the epoch, legs) of a state's splitter part, for a loader with a tail.

    A state without a history (of `position_of`) is taken for a run whose epochs were all served whole, with
    the geometry that it names.

    Raises:
        StateError: If it was cut or changed.
    """
    try:
        batch_size, ranks = int(dealing.get("batch_size", 1)), int(dealing.get("dp_world_size", 1))
        global_batch = max(batch_size, 1) * max(ranks, 1)
        legs = [RunSpan(*map(int, leg)) for leg in dealing.get("history", [])]
        lengths = as_lengths(num_samples)
        samples = lengths.num_samples(epoch)
        if position > samples + max([global_batch, *(leg.global_batch for leg in legs)]):
            raise ValueError(f"position {position:,} of {samples:,} samples")
        if not legs:
            return _guessed(dealing, epoch, position, lengths, global_batch)
        step, done = int(dealing["step"]), int(dealing["batches_done"])
        _check_legs(step, done, legs)
        if tail not in (None, dealing.get("tail", tail)):
            # Steps before this one cannot be located any more: their epochs ended by another rule.
            legs = [legs[-1]._replace(step=step, epoch=epoch, position=position)]
        return step, done, legs
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise StateError(
            f"the state's splitter part does not fit, or was cut or changed "
            f"({type(error).__name__}: {error})."
        ) from None


def _check_legs(step: int, done: int, legs: list[RunSpan]) -> None:
    steps = [leg.step for leg in legs]
    if min(step, done, *(min(leg) for leg in legs)) < 0 or min(leg.global_batch for leg in legs) < 1:
        raise ValueError("a negative number, or a global batch of none")
    if max(step, done, *(max(leg) for leg in legs)) > LARGEST:
        raise ValueError("a number above 2^62")
    if sorted(set(steps)) != steps or steps[-1] > step:
        raise ValueError("steps out of order")


def _guessed(
    dealing: dict[str, Any], epoch: int, position: int, lengths: EpochLengths, global_batch: int
) -> tuple[int, int, list[RunSpan]]:
    before = batches_before(lengths, epoch, global_batch, wrap=dealing.get("tail") == "wrap")
    done = -(-position // global_batch)
    return before + done, done, [RunSpan(0, 0, 0, global_batch, dealing.get("batch_size", 0))]
