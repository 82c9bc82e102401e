"""Corpora whose tokens say where they stand."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from helpers_corpus import write_corpus
from helpers_text import train_tokenizer

LONG_FILES = [
    "test_pages", "test_resume_demo", "test_train", "test_resume_points", "test_kills", "test_loader_points",
    "test_loader_matrix", "test_loader_torchrun", "test_stream_ranks", "test_resume_ranks",
    "test_resume_kills", "test_resume_matrix", "test_encoder_fast", "test_resume",
]  # fmt: skip


# Thousands of small files are written with fsync, each of which waits for a disk; memory does not wait.
MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 2 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that none of them is left for the end of a parallel run."""
    places = {name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Make forks cheap: most of the tests' system time is spent in starting loader workers."""
    # A garbage collection in a forked worker would copy everything that was imported.
    gc.collect()
    gc.freeze()
    if hasattr(session.config, "workerinput"):  # it takes half a second, too long for a run of one file
        use_huge_pages()


def use_huge_pages() -> None:
    """Move the heap to huge pages where the kernel can: a fork copies one entry for each page."""
    libc, size, collapse = ctypes.CDLL(None), 1 << 21, 25
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, access, _, _, _, *name = line.split()
        if access == "rw-p" and name in ([], ["[heap]"]):
            first, last = (int(address, 16) for address in place.split("-"))
            first = -(-first // size) * size
            if last - first >= size:
                libc.madvise(first, (last - first) // size * size, collapse)


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
