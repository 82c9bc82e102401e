"""Put an end-of-text token behind every document, without touching documents one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.preparation.encoder import Encoded


def with_eos(encoded: Encoded, eos_token_id: int) -> NDArray[np.integer[Any]]:
    """Return the ids of all documents, each followed by the end-of-text id.

    Args:
        encoded: Some documents.
        eos_token_id: The id to put behind each, empty ones too.

    Returns:
        Shape [num_tokens + num_documents].
    """
    return np.insert(encoded.ids, encoded.offsets[1:], eos_token_id)


def ends_with_eos(encoded: Encoded) -> NDArray[np.int64]:
    """Return where each document ends among the ids of `with_eos`, shape [num_documents]."""
    return encoded.offsets[1:] + np.arange(1, len(encoded.offsets))


def which_hold(encoded: Encoded, token_id: int) -> NDArray[np.bool_]:
    """Return whether each document holds a token id in its own text, shape [num_documents]."""
    holding = np.zeros(len(encoded.offsets) - 1, np.bool_)
    places: NDArray[Any] = np.flatnonzero(encoded.ids == token_id)
    holding[np.searchsorted(encoded.offsets, places, side="right") - 1] = True
    return holding
