"""Put samples together to rows of one batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tdstream.node import Rows
from tdstream.rows import MarkedRows
from tdstream.text.sample import Sample


def rows_of(samples: Sequence[Sample], *, marked: bool) -> Rows | MarkedRows:
    """Return samples as rows [B, seq_len + 1]; marked where they may have padding."""
    tokens: Rows = np.stack([sample.tokens for sample in samples])
    if not marked:
        return tokens
    return MarkedRows(
        tokens,
        np.array([sample.length for sample in samples], np.int32),
        np.array([sample.overlap for sample in samples], np.int32),
        np.array([sample.stops for sample in samples], np.bool_),
    )
