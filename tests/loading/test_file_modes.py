"""Whatever is written gets the mode that the umask allows, so that a group can share it and others cannot."""

from __future__ import annotations

import os
import stat

import pytest

import tdstream
from tdstream.cli.main import main

TEXTS = [f"{number} words of text" for number in range(60)]


@pytest.mark.parametrize(
    ("mask", "locks"),
    [
        (0o027, True),
        pytest.param(0o007, False, marks=pytest.mark.exhaustive),
        pytest.param(0o002, True, marks=pytest.mark.exhaustive),
    ],
)
def test_the_umask_decides(tokenizer_dir, tmp_path, monkeypatch, mask, locks):
    """Corpora, what is held out, plans, caches, counts and locks, finished or not."""
    if not locks:
        monkeypatch.setattr("fcntl.flock", no_locks)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tdstream.corpus.derived.MANY_DOCUMENTS", 10)
    before = os.umask(mask)
    try:
        make_everything(str(tokenizer_dir), tmp_path / "made")
    finally:
        os.umask(before)
    found = [path for place in ("made", "home") for path in (tmp_path / place).rglob("*")]
    assert any(path.parent.name == ".tdstream" for path in found)
    assert {"journal.jsonl", "chunk_000000.bin", "lock"} <= {path.name for path in found}
    assert any("home" in path.parts and path.is_file() for path in found)
    modes = {path.relative_to(tmp_path): stat.S_IMODE(path.stat().st_mode) for path in found}
    wanted = {path.relative_to(tmp_path): (0o777 if path.is_dir() else 0o666) & ~mask for path in found}
    assert modes == wanted


def make_everything(tokenizer, place):
    """Use what writes files."""
    options = {"encoder": "hf", "tokens_per_chunk": 40, "batch_size": 10, "progress": False, "resume": False}
    corpus = place / "corpus"
    tdstream.prepare(TEXTS, tokenizer, corpus, val_documents=5, **options)
    tdstream.prepare(TEXTS, tokenizer, place / "appended", **options)
    tdstream.prepare(["more of it"] * 20, tokenizer, place / "appended", append=True, **options)
    for cut in ("pack", "document"):
        tdstream.loader(corpus, seq_len=8, batch_size=2, cut=cut)
    tdstream.loader(TEXTS, tokenizer=tokenizer, cache_dir=place / "cache", seq_len=8, batch_size=2)
    tdstream.count(TEXTS, tokenizer)

    def texts():
        yield from TEXTS
        raise OSError("the disk is gone")

    with pytest.raises(tdstream.SourceError, match="the disk is gone"):
        tdstream.prepare(texts, tokenizer, place / "unfinished", **options)
    with pytest.raises(tdstream.SourceError, match="the disk is gone"):
        tdstream.prepare(texts, tokenizer, place / "tasks", task=1, num_tasks=2, **options)
    assert main(["verify", str(corpus)]) == 0


def no_locks(*_):
    """Fail, as on a file system without locks."""
    raise OSError(38, "Function not implemented")
