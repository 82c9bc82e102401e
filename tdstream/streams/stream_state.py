"""What is in the state of a live stream beside its nodes: which stream it is, and how far."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from tdstream.core.checks import LARGEST
from tdstream.core.errors import GeometryError, SourceError, StateError
from tdstream.core.state import STATE_KEY, differences
from tdstream.streams.total_hint import TotalHint

logger = logging.getLogger(__name__)

CURSOR = "stream"
"""The part of a state that is no node's identity."""
GEOMETRY = ("batch_size", "dp_rank", "dp_world_size", "worker", "num_workers")
STANDS = ("before", "in", "behind")
"""Where in its epoch a loader can stand."""
NO_LENGTH = (
    "a live stream has no length: how many batches its text gives is known when all of it was tokenized. "
    "tdstream.count(source, tokenizer, ...) counts them once, tdstream.progress shows how far it is by "
    'documents or by an estimate, and with cache_dir=... (or kind="memory" for a list) the length is exact.'
)


def refuse_cut(state: dict[str, Any], place: dict[str, Any]) -> None:
    """Refuse a loader's state that does not say where it stands, and each of its streams.

    Args:
        state: It.
        place: Its part that is no node's identity.

    Raises:
        StateError: If it does not.
    """
    numbers = [state.get("epoch"), *(place.get(name) for name in ("batches_done", "step", "num_workers"))]
    counts = all(isinstance(number, int) and 0 <= number <= LARGEST for number in numbers)
    loader, stands = place.get("loader"), place.get("stands")
    fits = counts and stands in STANDS and isinstance(loader, dict)
    if not fits or (stands == "in" and len(list(stream_states(loader))) != max(place["num_workers"], 1)):
        raise StateError(
            "the state is none of a tdstream.loader over a live stream, or was cut. Load what its "
            "state_dict() returned, on the rank that saved it."
        )


def stream_states(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the states of a rank's streams from StatefulDataLoader's state."""
    if isinstance(value, dict):
        if STATE_KEY in value:
            yield value
        else:
            for inner in value.values():
                yield from stream_states(inner)


def refuse_geometry(saved: dict[str, Any], current: dict[str, Any]) -> None:
    """Refuse a place that belongs to another stream.

    Raises:
        GeometryError: If ranks, workers or batches were others.
    """
    was, now = ({field: part.get(field) for field in current} for part in (saved, current))
    found = differences(CURSOR, was, now)
    if found:
        raise GeometryError(
            f"the state was saved under another geometry: {'; '.join(found)}. A live stream goes on only "
            f"with the same ranks, workers and batches, each rank from its own state; nothing was loaded. To "
            f"change them between runs, prepare the text once: cache_dir=..."
        )


def refuse_emptiness(epoch: int, rows: int, seq_len: int, *, strict: bool) -> None:
    """Refuse, or warn of, an epoch without a batch: a trainer that counts steps would wait for ever.

    Raises:
        SourceError: If strict.
    """
    phrase = (
        f"the stream ended without a batch in epoch {epoch}: the text of some rank was over before it filled "
        f"{rows} x {seq_len} tokens. Use more text, a smaller seq_len, batch_size or number of workers, or "
        f"strict=False, if an empty epoch is meant."
    )
    if strict:
        raise SourceError(phrase)
    logger.warning("%s", phrase)


def hint_of_places(
    places: list[dict[str, Any]], num_rows: int | None, dp_world_size: int
) -> TotalHint | None:
    """Return how far the streams of a rank are, by documents, if the source knows how many it has."""
    if not num_rows:
        return None
    total = max(num_rows // dp_world_size, 1)
    done = sum(place["read"] * place["served"] // max(place["cut"], 1) for place in places)
    return TotalHint(kind="documents", total=total, done=min(done, total), unit="doc")
