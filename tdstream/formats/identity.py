"""The identity of a token stream: what a state compares, independent of paths."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.formats import own, raw
from tdstream.formats.description import Description

_MAX_RUNS = 16  # runs of shards of one size that a state lists; if there are more, it has only their digest


def make_identity(dtype: str, sizes: Sequence[int] | NDArray[np.int64], content: str) -> dict[str, Any]:
    """Return the identity of shards of these tokens each; `content` is a digest of them, "" if unknown."""
    counts = np.asarray(sizes, np.int64)
    runs = [f"{size}x{len(list(group))}" for size, group in groupby(counts.tolist())]
    return {
        "dtype": dtype,
        "num_shards": len(counts),
        "total_tokens": int(counts.sum()),
        "shard_tokens": " ".join(runs) if len(runs) <= _MAX_RUNS else "",
        "sizes": hashlib.sha256(counts.astype("<i8").tobytes()).hexdigest()[:16],
        "content": content,
    }


def identify(description: Description) -> dict[str, Any]:
    """Return the identity of described files: that of a corpus, and the format."""
    sizes = [piece.tokens for piece in description.pieces]
    identity = make_identity(description.dtype.name, sizes, description.digest)
    if description.format not in (raw.NAME, own.NAME):
        identity["format"] = description.format
    return identity
