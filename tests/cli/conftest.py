"""One tokenizer for all tests of the commands."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers_text import train_tokenizer


@pytest.fixture(scope="session")
def tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a byte-level BPE with 400 ids, "<|endoftext|>" being 0."""
    return train_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session", autouse=True)
def small_heap() -> Iterator[None]:
    """Take the imported libraries out of garbage collection, which every preparation runs at its end."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
