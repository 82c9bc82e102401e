"""Put an end-of-text token behind every document, without touching documents one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.preparation.encoder import Encoded


def with_eos(encoded: Encoded, eos_token_id: int) -> NDArray[np.int64]:
    """Return the ids of all documents, each followed by the end-of-text id.

    Args:
        encoded: Some documents.
        eos_token_id: The id to put behind each, empty ones too.

    Returns:
        Shape [num_tokens + num_documents].
    """
    return np.insert(encoded.ids, encoded.offsets[1:], eos_token_id)


def count_empty(encoded: Encoded) -> int:
    """Return how many documents have no token of their own."""
    return int(np.count_nonzero(np.diff(encoded.offsets) == 0))


def count_holding(encoded: Encoded, token_id: int) -> int:
    """Return how many documents hold a token id in their own text."""
    places: NDArray[Any] = np.flatnonzero(encoded.ids == token_id)
    return len(np.unique(np.searchsorted(encoded.offsets, places, side="right")))
