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
    together, order = _tokens(parts, groups, dtype), _order(groups)
    marked = [part for part in parts if isinstance(part, MarkedRows)]
    if marked:
        lengths, overlaps, stops = (
            np.concatenate([getattr(part, field) for part in marked])[order]
            for field in ("lengths", "overlaps", "stops")
        )
        ends = [part.ends for part in marked if part.ends is not None]
        return MarkedRows(together, lengths, overlaps, stops, joined_ends(ends, groups) if ends else None)
    ends = [part.ends for part in parts if isinstance(part, DocumentRows)]
    return DocumentRows(together, joined_ends(ends, groups)) if ends else together


def _tokens(parts: Sequence[SourceRows], groups: Sequence[NDArray[np.int64]], dtype: Any) -> Tokens:
    tokens = [part if isinstance(part, np.ndarray) else part.tokens for part in parts]
    together: Tokens = np.empty((sum(map(len, groups)), tokens[0].shape[1]), dtype)
    for part, group in zip(tokens, groups, strict=True):
        together[group] = part
    return together


def _order(groups: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return where each row of the result stands in all parts, one after the other."""
    there = np.concatenate(groups)
    order = np.empty_like(there)
    order[there] = np.arange(len(there))
    return order


def joined_ends(parts: Sequence[RowEnds], groups: Sequence[NDArray[np.int64]]) -> RowEnds:
    """Return where documents end in the rows of several parts, as `joined`."""
    order = _order(groups)
    counts, places = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("counts", "places")
    )
    begins = np.cumsum(counts) - counts
    chosen = counts[order]
    shifts = begins[order] - (np.cumsum(chosen) - chosen)  # from a row's places there to its places here
    return RowEnds(chosen, places[np.repeat(shifts, chosen) + np.arange(len(places))])
