"""What is in the state of a live stream beside its nodes: which stream it is, and how far."""

from __future__ import annotations

import logging
from typing import Any

from tdstream.errors import GeometryError, SourceError
from tdstream.state import differences
from tdstream.totals import TotalHint

logger = logging.getLogger(__name__)

CURSOR = "stream"
"""The part of a state that is no node's identity."""
GEOMETRY = ("batch_size", "dp_rank", "dp_world_size", "worker", "num_workers")
NO_LENGTH = (
    "a live stream has no length: how many batches its text gives is known when all of it was tokenized. "
    "tdstream.count(source, tokenizer, ...) counts them once, tdstream.progress shows how far it is by "
    'documents or by an estimate, and with cache_dir=... (or kind="memory" for a list) the length is exact.'
)


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
