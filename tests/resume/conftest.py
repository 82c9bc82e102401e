"""The one corpus of these tests, written once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from resume_truth import SHARD_TOKENS, TOTAL_TOKENS


def write_counting_corpus(directory: Path, shard_tokens: tuple[int, ...]) -> Path:
    """Write the tokens 0, 1, 2, ... as the disk format says."""
    directory.mkdir(parents=True)
    first, chunks = 0, []
    for number, tokens in enumerate(shard_tokens):
        file = f"chunk_{number:06d}.bin"
        np.arange(first, first + tokens, dtype="<u4").tofile(directory / file)
        chunks.append({"file": file, "tokens": tokens})
        first += tokens
    content = {
        "created_at_unix": 1, "tokenizer_name_or_path": "gpt2", "is_fast": True, "dtype": "uint32",
        "eos_token_id": 0, "tokens_per_chunk": max(shard_tokens), "chunks": chunks, "total_tokens": first,
    }  # fmt: skip
    (directory / "meta.json").write_text(json.dumps(content))
    return directory


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a corpus of 225 tokens in four shards, one of them of a single token."""
    assert sum(SHARD_TOKENS) == TOTAL_TOKENS
    return write_counting_corpus(tmp_path_factory.mktemp("resume") / "corpus", SHARD_TOKENS)


@pytest.fixture(scope="session")
def write_corpus() -> object:
    """Return the function that writes another corpus."""
    return write_counting_corpus
