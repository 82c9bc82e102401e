"""The one corpus of these tests, written once."""

from __future__ import annotations

from pathlib import Path

import pytest
from loader_truth import SHARD_TOKENS, write_counting_corpus


@pytest.fixture(scope="session")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a corpus of 277 samples of four tokens in four shards; a token's value is its position."""
    return write_counting_corpus(tmp_path_factory.mktemp("loader") / "corpus", SHARD_TOKENS)
