"""One tokenizer for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers_text import train_tokenizer


@pytest.fixture(scope="session")
def tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a byte-level BPE with 400 ids, "<|endoftext|>" being 0."""
    return train_tokenizer(tmp_path_factory.mktemp("tokenizer"))
