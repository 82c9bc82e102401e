"""Relative paths mean what they meant when they were given, wherever the process goes then."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tdstream


def token_files(directory: Path) -> None:
    """Write token files of other tools."""
    tokens = np.arange(900, dtype="<u2")
    np.save(directory / "x.npy", tokens)
    (directory / "bare").mkdir()
    tokens.tofile(directory / "bare" / "x.bin")


BARE = {"dtype": "uint16"}
SOURCES: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "split": (lambda: tdstream.split("a", [0.5, 0.5])[1], {}),
    "split of Path": (lambda: tdstream.split(Path("a"), [0.5, 0.5])[1], {}),
    "split of bare shards": (lambda: tdstream.split("bare", [0.5, 0.5])[1], BARE),
    "mixture": (lambda: tdstream.Mixture({"a": ("a", 1), "b": (Path("b"), 1)}), {}),
    "mixture of other files": (lambda: tdstream.Mixture({"x": "x.npy", "y": "bare"}, weights="tokens"), {}),
    "mixture of parts": (
        lambda: tdstream.Mixture({"a": (tdstream.split("a", [0.5, 0.5])[0], 1), "b": ("b", 1)}), {}
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", SOURCES)
def test_sources_that_are_opened_later(
    tmp_path: Path, make_corpus: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Parts and mixtures, also after a pickle."""
    make_corpus(900, name="a")
    make_corpus(900, name="b")
    token_files(tmp_path)
    make, options = SOURCES[kind]
    if "bare" in str(options) or "other" in kind:
        options = BARE
    monkeypatch.chdir(tmp_path)
    source = make()
    expected = [row["input_ids"].tolist() for row in tdstream.build(source, seq_len=16, **options)]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    for again in (source, pickle.loads(pickle.dumps(source))):
        assert [row["input_ids"].tolist() for row in tdstream.build(again, seq_len=16, **options)] == expected
    assert expected


@pytest.mark.parametrize("source", ["a", "x.npy", "bare", "*.npy"])
@pytest.mark.parametrize("workers", [0, 1])
def test_files_that_are_mapped_later(
    tmp_path: Path,
    make_corpus: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    workers: int,
) -> None:
    """Of a loader that was made before."""
    make_corpus(900, name="a")
    token_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    options = BARE if source == "bare" else {}
    loader = tdstream.loader(source, seq_len=16, batch_size=1, num_workers=workers, **options)
    monkeypatch.chdir("/")
    assert len(list(loader)) == len(loader) == 900 // 17


def test_addresses_stay(tmp_path: Path) -> None:
    """An address is no path: the sentence on it quotes it."""
    source = tdstream.split("s3://bucket/corpus", [1.0])[0]
    with pytest.raises(FileNotFoundError, match="s3://bucket/corpus is an address"):
        tdstream.build(source, seq_len=16)
