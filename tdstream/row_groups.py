"""Put rows that several sources have read together into one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.rows import DocumentRows, MarkedRows, RowEnds, SourceRows, Tokens


def joined(parts: Sequence[SourceRows], groups: Sequence[NDArray[np.int64]], dtype: Any) -> SourceRows:
    """Return the rows of several parts as one.

    Args:
        parts: Rows of the same kind, at least one.
        groups: Of each part, where its rows stand in the result, [n].
        dtype: The type of the result's tokens.
    """
    together = _tokens(parts, groups, dtype)
    there = np.concatenate(groups)
    order = np.empty_like(there)
    order[there] = np.arange(len(there))  # where each row of the result stands in all parts, one by one
    marked = [part for part in parts if isinstance(part, MarkedRows)]
    if marked:
        lengths, overlaps, stops = (
            np.concatenate([getattr(part, field) for part in marked])[order]
            for field in ("lengths", "overlaps", "stops")
        )
        ends = _joined_ends([part.ends for part in marked if part.ends is not None], order)
        return MarkedRows(together, lengths, overlaps, stops, ends)
    documents = [part.ends for part in parts if isinstance(part, DocumentRows)]
    ends = _joined_ends(documents, order)
    return together if ends is None else DocumentRows(together, ends)


def _tokens(parts: Sequence[SourceRows], groups: Sequence[NDArray[np.int64]], dtype: Any) -> Tokens:
    tokens = [part if isinstance(part, np.ndarray) else part.tokens for part in parts]
    together: Tokens = np.empty((sum(map(len, groups)), tokens[0].shape[1]), dtype)
    for part, group in zip(tokens, groups, strict=True):
        together[group] = part
    return together


def _joined_ends(parts: Sequence[RowEnds], order: NDArray[np.int64]) -> RowEnds | None:
    if not parts:
        return None
    counts, places = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("counts", "places")
    )
    begins = np.cumsum(counts) - counts
    chosen = counts[order]
    shifts = begins[order] - (np.cumsum(chosen) - chosen)  # from a row's places there to its places here
    return RowEnds(chosen, places[np.repeat(shifts, chosen) + np.arange(len(places))])
