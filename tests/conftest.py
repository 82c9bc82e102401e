"""Corpora whose tokens say where they stand."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from helpers_corpus import write_corpus
from helpers_text import train_tokenizer

LONG_FILES = ("test_pages", "test_resume_demo", "test_loader_torchrun", "test_kills", "test_resume_kills")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that none of them is left for the end of a parallel run."""
    items.sort(key=lambda item: item.path.stem not in LONG_FILES)


def pytest_collection_finish() -> None:
    """Leave what was imported out of garbage collections, which in a forked worker would copy all of it."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def make_corpus(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a corpus of the tokens 0, 1, 2, ...: a token's value is its position."""

    def make(*shard_tokens: int, dtype: str = "uint32", name: str = "corpus", meta: bool = True) -> Path:
        tokens = np.arange(sum(shard_tokens), dtype=np.dtype(dtype).newbyteorder("<"))
        return write_corpus(tmp_path / name, tokens, shard_tokens, meta=meta)

    return make


@pytest.fixture(scope="session")
def tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a byte-level BPE with 400 ids, "<|endoftext|>" being 0."""
    return train_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session", autouse=True)
def user_cache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep verdicts on encoders out of the user's cache, but for the next run of the tests."""
    kept = getattr(request.config, "cache", None)
    directory = kept.mkdir("tdstream") if kept is not None else tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(directory))
        yield
