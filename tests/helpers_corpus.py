"""Write corpora by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np


def write_corpus(
    directory: Path, tokens: np.ndarray, shard_tokens: Sequence[int], *, meta: bool = True
) -> Path:
    """Write a corpus by hand, as the disk format says: raw shards and meta.json."""
    directory.mkdir(parents=True, exist_ok=True)
    borders = np.cumsum([0, *shard_tokens])
    assert borders[-1] == len(tokens)
    chunks = []
    for number, (first, last) in enumerate(pairwise(borders)):
        name = f"chunk_{number:06d}.bin"
        (directory / name).write_bytes(tokens[first:last].tobytes())
        chunks.append({"file": name, "tokens": int(last - first)})
    if meta:
        content = {
            "created_at_unix": 1,
            "tokenizer_name_or_path": "gpt2",
            "is_fast": True,
            "dtype": tokens.dtype.name,
            "eos_token_id": 0,
            "tokens_per_chunk": max(shard_tokens, default=1),
            "chunks": chunks,
            "total_tokens": len(tokens),
        }
        (directory / "meta.json").write_text(json.dumps(content))
    return directory
