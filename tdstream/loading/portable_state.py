"""The portable state: one small dict, equal on all ranks, that loads under any geometry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tdstream.core.errors import StateError
from tdstream.core.state import STATE_KEY, STATE_VERSION, unwrap_state
from tdstream.core.state_schema import (
    COUNT,
    SIZE,
    TEXT,
    check_nesting,
    equal,
    listed,
    one_of,
    read_fields,
    shorten,
)
from tdstream.schedule.partition import EpochLengths, batches_before, serves_rest
from tdstream.schedule.run_cursor import RunCursor, RunSpan

_SNAPSHOT = "_snapshot"  # keys inside StatefulDataLoader's state, which has no methods to ask
_FETCHER = "fetcher_state"
_ITERATOR = "dataset_iter_state"
_STREAM = "stream"  # only states of live streams have this key
_CUT = "this StatefulDataLoader's state was not made over a tdstream pipeline, or was cut."


def make_portable_state(
    epoch: int, position: int, identities: dict[str, dict[str, Any]], partition: dict[str, Any]
) -> dict[str, Any]:
    """Return {"tdstream", "epoch", "position", "nodes"}.

    `position` counts the samples of the epoch that trainers were given (or that were skipped) over all
    ranks; `partition`, the splitter's part, serves people and `locate`, and does not bind who loads it.
    """
    return {
        STATE_KEY: STATE_VERSION,
        "epoch": epoch,
        "position": position,
        "nodes": {**identities, "splitter": partition},
    }


def describe_partition(cursor: RunCursor, dp_world_size: int, tail: str) -> dict[str, Any]:
    """Return the splitter's part of a state: how batches are dealt out now, and the spans of the run."""
    return {
        "batch_size": cursor.batch_size,
        "dp_world_size": dp_world_size,
        "tail": tail,
        "batches_done": 0 if cursor.place[1] == 0 else cursor.batches_done,
        "step": cursor.step,
        "history": cursor.history(),
    }


def open_portable(state: dict[str, Any]) -> tuple[int, int, dict[str, dict[str, Any]]]:
    """Return a portable state's epoch, position and nodes."""
    if isinstance(state, dict) and STATE_KEY not in state and any(_find_states(state)):
        raise StateError(
            "this is not a portable state but contains one: a checkpoint, or a StatefulDataLoader's own "
            "state, of one rank and its workers. Pass tdstream.position_of(state) instead."
        )
    nodes = unwrap_state(state)
    _check_not_stream(nodes)
    place = {field: state.get(field) for field in ("epoch", "position")}
    try:
        found = read_fields("place", place, dict.fromkeys(place, COUNT))
    except StateError:
        epoch, position = map(shorten, place.values())
        raise StateError(
            f"the state has no valid position: epoch={epoch}, position={position}; expected two integers "
            f"of at least 0. Load what state_dict() of a tdstream.loader, or tdstream.position_of, returned."
        ) from None
    if "splitter" not in nodes:
        raise StateError("the state has no entry for splitter, so it was cut or changed. Load a whole one.")
    return found["epoch"], found["position"], nodes


_PROGRESS = {"step": COUNT, "batches_done": COUNT}
_PARTITION = {
    "batch_size": COUNT,
    "dp_world_size": SIZE,
    "tail": one_of("drop", "wrap", "keep", None),
    "history": listed(listed(COUNT, 4, 5), 0, 10_000),
}
_CURSOR = {"batch_size": COUNT, "dp_world_size": SIZE, "start": COUNT, "epoch": COUNT, "tail": TEXT}


class SavedPartition(NamedTuple):
    """The splitter's part of a portable state."""

    batch_size: int
    """B, 0 if unknown."""
    dp_world_size: int
    tail: str | None
    step: int
    batches_done: int
    """Batches of the epoch."""
    spans: list[RunSpan]
    """Empty in a state of `position_of`, which knows no step."""

    @classmethod
    def read(cls, part: dict[str, Any]) -> SavedPartition:
        """Read and check it."""
        found = read_fields("splitter", part, _PARTITION, optional=True)
        spans = [RunSpan(*span) for span in found.get("history", [])]
        if spans:
            found |= read_fields("splitter", part, _PROGRESS)
        step, done = (found["step"], found["batches_done"]) if spans else (0, 0)
        with _refuse_invalid():
            _check_spans(step, spans)
        sizes = found.get("batch_size", 0), found.get("dp_world_size", 1)
        return cls(*sizes, found.get("tail"), step, done, spans)

    @property
    def global_batch(self) -> int:
        """G of the last step."""
        if self.spans:
            return self.spans[-1].global_batch
        return max(self.batch_size, 1) * max(self.dp_world_size, 1)

    def progress_at(
        self, epoch: int, position: int, lengths: EpochLengths, tail: str | None = None
    ) -> tuple[int, int, list[RunSpan]]:
        """Return (step, batches done in the epoch, spans) of the state's place, for a loader with a tail.

        Without spans, earlier epochs are assumed to have been served completely, with the saved geometry.
        """
        with _refuse_invalid():
            samples = lengths.num_samples(epoch)
            if position > samples + max([self.global_batch, *(span.global_batch for span in self.spans)]):
                raise ValueError(f"position {position:,} of {samples:,} samples")
            if not self.spans:
                before = batches_before(lengths, epoch, self.global_batch, wrap=serves_rest(self.tail))
                done = -(-position // self.global_batch)
                return before + done, done, [RunSpan(0, 0, 0, self.global_batch, self.batch_size)]
        spans = self.spans
        if tail is not None and self.tail not in (None, tail):
            # The epochs of earlier steps ended by another rule: those steps can no longer be located.
            spans = [spans[-1]._replace(step=self.step, epoch=epoch, position=position)]
        return self.step, self.batches_done, spans


def _check_spans(step: int, spans: list[RunSpan]) -> None:
    """Raise ValueError unless numbers are in range and spans are in order."""
    steps = [span.step for span in spans]
    if any(span.global_batch < 1 or span.global_batch % (span.batch_size or 1) for span in spans):
        raise ValueError("an empty global batch, or one that its batch size does not divide")
    if sorted(set(steps)) != steps or (steps and steps[-1] > step):
        raise ValueError("steps out of order")


@contextmanager
def _refuse_invalid() -> Iterator[None]:
    """Turn what invalid values lead to into a StateError."""
    try:
        yield
    except (KeyError, TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
        raise StateError(
            f"the state's splitter part is invalid, or was cut or changed ({type(error).__name__}: {error})."
        ) from None


def position_of(state: dict[str, Any]) -> dict[str, Any]:
    """Return the portable state of a bare StatefulDataLoader's, for a `tdstream.loader` of any geometry.

    Args:
        state: What StatefulDataLoader.state_dict() returned over `build(..., batch_size=...)`, or a
            checkpoint that contains it, or a portable state, at any depth. Any rank's will do.

    Raises:
        StateError: If there is no state in it, several that differ, or one of single samples.
    """
    found = []
    for part in _find_states(state):
        check_nesting(part)
        found.append(_make_portable(part))
    if not found:
        raise StateError(
            f"there is no state of a StatefulDataLoader over a tdstream pipeline in what was given, a "
            f"{type(state).__name__}. Pass what its state_dict() returned, or a checkpoint that holds it."
        )
    if not all(equal(other, found[0]) for other in found):
        raise StateError(
            f"there are {len(found)} loader states in what was given, at different places. Pass one."
        )
    return found[0]


def _find_states(value: object) -> Iterator[dict[str, Any]]:
    """Yield loader states, StatefulDataLoader's or portable, from nested dicts and lists."""
    waiting, seen = [value], set[int]()
    while waiting:
        value = waiting.pop()
        if not isinstance(value, (dict, list, tuple)) or id(value) in seen:
            continue
        seen.add(id(value))  # a checkpoint may be deep, and contain itself
        if isinstance(value, dict) and (
            STATE_KEY in value or _SNAPSHOT in value or isinstance(value.get(_FETCHER), dict)
        ):
            yield value
        else:
            inner = list(value.values()) if isinstance(value, dict) else list(value)
            waiting += reversed(inner)


def _make_portable(state: dict[str, Any]) -> dict[str, Any]:
    if STATE_KEY in state and "position" in state:
        open_portable(state)
        return state
    if STATE_KEY in state:
        _check_not_stream(unwrap_state(state))
    process, batches = _read_process(state)
    nodes = unwrap_state(process)
    _check_not_stream(nodes)
    cursor = nodes.get("splitter", {})
    if cursor.get("batch_size") == 0:
        raise StateError(
            "this state counts single samples in each worker's stream; how many of them the trainer was "
            "given is known only to the loader that batched them, so it has no position in the global order. "
            "Resume it with the same ranks and workers, or use build(..., batch_size=...)."
        )
    place = read_fields("splitter", cursor, _CURSOR)
    partition = {name: place[name] for name in ("batch_size", "dp_world_size", "tail")}
    position = place["start"] + batches * place["batch_size"] * place["dp_world_size"]
    identities = {name: dict(part) for name, part in nodes.items() if name != "splitter"}
    portable = make_portable_state(place["epoch"], position, identities, partition)
    open_portable(portable)
    return portable


def _check_not_stream(nodes: dict[str, dict[str, Any]]) -> None:
    if _STREAM in nodes:
        raise StateError(
            "this is the state of a live stream: it counts what one rank read of text that is tokenized on "
            "the fly, and has no position in a global order. Load it into a loader over the same stream, on "
            "the rank that saved it; states of text prepared with cache_dir=... load anywhere."
        )


def _check_count(value: Any) -> int:
    count: int = read_fields("loader", {"count": value}, {"count": COUNT})["count"]
    return count


def _read_process(state: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Return one process's part of a StatefulDataLoader's state, and the batches handed out."""
    try:
        if _SNAPSHOT in state:
            inner = state[_SNAPSHOT]
            worker = inner["_worker_snapshots"]["worker_0"]
            counts = inner["_snapshot_step"], state["_steps_since_snapshot"]
            return worker[_FETCHER][_ITERATOR], sum(map(_check_count, counts))
        if STATE_KEY in state:
            raise StateError(
                "this is the state of one worker's stream; pass what the loader's state_dict() returned."
            )
        return state[_FETCHER][_ITERATOR], _check_count(state["_num_yielded"])
    except (KeyError, TypeError, IndexError):
        raise StateError(_CUT) from None
