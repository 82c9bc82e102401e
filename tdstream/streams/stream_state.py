"""The part of a live stream's state that is no node's identity: which stream it is, and its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tdstream.core.checks import LARGEST
from tdstream.core.errors import GeometryError, StateError
from tdstream.core.state import STATE_KEY, differences

CURSOR = "stream"
"""The key of this part."""
STANDS = ("before", "in", "behind")
"""Where in its epoch a loader can stand."""
NO_LENGTH = (
    "a live stream has no length: how many batches its text gives is known when all of it was tokenized. "
    "tdstream.count(source, tokenizer, ...) counts them once, tdstream.progress shows progress by "
    'documents or by an estimate, and with cache_dir=... (or kind="memory" for a list) the length is exact.'
)


def check_loader_state(state: dict[str, Any], place: dict[str, Any]) -> None:
    """Refuse a loader's state whose place, the part under CURSOR, is incomplete."""
    numbers = [state.get("epoch"), *(place.get(name) for name in ("batches_done", "step", "num_workers"))]
    counts = all(isinstance(number, int) and 0 <= number <= LARGEST for number in numbers)
    loader, stands = place.get("loader"), place.get("stands")
    fits = counts and stands in STANDS and isinstance(loader, dict)
    if not fits or (stands == "in" and len(list(find_stream_states(loader))) != max(place["num_workers"], 1)):
        raise StateError(
            "the state is not one of a tdstream.loader over a live stream, or was cut. Load what its "
            "state_dict() returned, on the rank that saved it."
        )


def find_stream_states(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the states of a rank's streams from StatefulDataLoader's state."""
    if isinstance(value, dict):
        if STATE_KEY in value:
            yield value
        else:
            for inner in value.values():
                yield from find_stream_states(inner)


def check_geometry(saved: dict[str, Any], current: dict[str, Any]) -> None:
    """Refuse the place of another stream."""
    was, now = ({field: part.get(field) for field in current} for part in (saved, current))
    found = differences(CURSOR, was, now)
    if found:
        raise GeometryError(
            f"the state was saved under another geometry: {'; '.join(found)}. A live stream resumes only "
            f"with the same ranks, workers and batches, each rank from its own state; nothing was loaded. To "
            f"change them between runs, prepare the text once: cache_dir=..."
        )
