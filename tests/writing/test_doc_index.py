"""Beside each chunk stands where documents end in it, however the corpus came to be."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers_ends import chunk_sizes, document_lengths, expected_ends, stored_ends

from helpers_text import EOS, corpus_bytes, expected_tokens, write_jsonl
from tdstream.core.errors import ConfigError, CorpusError, CorpusNotFoundError, OutputError
from tdstream.corpus.document_index import has_doc_index, read_ends
from tdstream.corpus.meta import read_meta
from tdstream.preparation import engine
from tdstream.preparation.engine import prepare_corpus
from tdstream.preparation.options import PrepareOptions
from tdstream.text import tokenizer as text_tokenizer
from tdstream.verification.verify import verify_corpus
from tdstream.writing.merge import merge_tasks

TEXTS = [
    "def load(fp): return json.load(fp)",
    "",
    f"before{EOS}after{EOS}",
    EOS,
    "json " * 60,
    "",
    *(f"text {'x ' * (number % 17)}{number}" for number in range(60)),
]

Prepare = Callable[..., Any]


@pytest.fixture
def prepare(tmp_path: Path, tokenizer_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Prepare:
    """Return a function that prepares the texts in chunks of 50 tokens."""
    loaded = text_tokenizer.load_tokenizer(str(tokenizer_dir))
    monkeypatch.setattr(text_tokenizer, "load_tokenizer", lambda _: loaded)
    write_jsonl(tmp_path / "a.jsonl", [{"text": text} for text in TEXTS])

    def run(output: str = "out", **named: Any) -> Path:
        given = {
            "tokenizer": str(tokenizer_dir), "dataset": str(tmp_path / "a.jsonl"), "batch_size": 7,
            "tokens_per_chunk": 50, "output_path": tmp_path / output, "encoder": "hf", **named,
        }  # fmt: skip
        prepare_corpus(PrepareOptions.of(**given))
        return tmp_path / output

    return run


@pytest.fixture
def stopped(tmp_path: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that begins a preparation and stops it when three chunks are safe."""
    real = engine.write_block

    def run(**named: Any) -> None:
        def stopping(*arguments: Any) -> None:
            real(*arguments)
            if len(arguments[1].entries) >= 3:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(engine, "write_block", stopping)
            with pytest.raises(KeyboardInterrupt):
                prepare(**named)

    return run


class TestContent:
    """What the index holds."""

    @pytest.mark.parametrize("tokens_per_chunk", [7, 50, 100_000])
    @pytest.mark.parametrize("batch_size", [1, 1000])
    def test_each_end(
        self, tokenizer_dir: Path, prepare: Prepare, tokens_per_chunk: int, batch_size: int
    ) -> None:
        """Every document's end, and no other end-of-text token; chunks without an end have an empty file."""
        out = prepare(tokens_per_chunk=tokens_per_chunk, batch_size=batch_size)

        expected = expected_ends(document_lengths(tokenizer_dir, TEXTS), chunk_sizes(out))
        assert stored_ends(out) == expected
        assert tokens_per_chunk != 7 or [] in expected
        meta = json.loads((out / "meta.json").read_text())
        assert list(meta["chunk_documents"].values()) == [len(ends) for ends in expected]
        assert sum(meta["chunk_documents"].values()) == meta["num_documents"] == len(TEXTS)
        for file, checksum in meta["doc_index_checksums"].items():
            content = (out / file.replace(".bin", ".ends")).read_bytes()
            assert checksum == f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert corpus_bytes(out) == expected_tokens(tokenizer_dir, TEXTS, "<u2").tobytes()

    def test_without(self, tokenizer_dir: Path, prepare: Prepare) -> None:
        """no_doc_index leaves out the files and the keys; nothing else differs."""
        without, with_index = prepare("without", doc_index=False), prepare("with")
        files = sorted(path.name for path in with_index.iterdir() if path.suffix != ".ends")
        assert sorted(path.name for path in without.iterdir()) == files
        one, other = (json.loads((out / "meta.json").read_text()) for out in (without, with_index))
        assert other.keys() - one.keys() == {"doc_index", "chunk_documents", "doc_index_checksums"}
        assert {**other, **one, "created_at_unix": 0} == {**other, "created_at_unix": 0}
        assert corpus_bytes(without) == corpus_bytes(with_index)

    def test_reading(self, prepare: Prepare) -> None:
        """The reader gives a read-only map of int64, and refuses files that are not as promised."""
        out = prepare(tokens_per_chunk=7)
        meta, stored = read_meta(out / "meta.json"), stored_ends(out)
        assert has_doc_index(meta)
        for chunk, ends in zip(meta.chunks, stored, strict=True):
            read = read_ends(out, meta, chunk.file)
            assert (read.tolist(), read.dtype, read.flags.writeable) == (ends, np.int64, not ends)
        name = next(chunk.file for chunk, ends in zip(meta.chunks, stored, strict=True) if ends)
        path = out / name.replace(".bin", ".ends")
        os.truncate(path, 4)
        with pytest.raises(
            CorpusError, match=rf"{path.name} is truncated: it has 4 .*; meta.json promises \d+ "
        ):
            read_ends(out, meta, name)
        path.unlink()
        with pytest.raises(
            CorpusNotFoundError, match=rf"{path.name} is missing; meta.json promises \d+ ends"
        ):
            read_ends(out, meta, name)

    @pytest.mark.parametrize("index", [{}, {"version": 2, "suffix": ".ends", "dtype": "int64"}])
    def test_none_and_newer(self, prepare: Prepare, index: dict[str, Any]) -> None:
        """Where there is none, or one of a version that is not known, there is no index to read."""
        out = prepare()
        content = json.loads((out / "meta.json").read_text())
        (out / "meta.json").write_text(json.dumps({**content, "doc_index": index}))
        assert not has_doc_index(read_meta(out / "meta.json"))


class TestHistory:
    """The index of a corpus that was not written in one go."""

    def test_stopped_and_resumed(
        self, tmp_path: Path, prepare: Prepare, stopped: Callable[..., None]
    ) -> None:
        """A run that goes on leaves the indices of one that was not stopped."""
        stopped()
        assert (tmp_path / "out/.preparing/chunk_000002.ends").exists()
        prepare(resume=True)
        assert stored_ends(tmp_path / "out") == stored_ends(prepare("whole"))
        assert verify_corpus(tmp_path / "out").ok

    @pytest.mark.parametrize("damage", ["gone", "short"])
    def test_a_lost_index(self, tmp_path: Path, prepare: Prepare, stopped: Any, damage: str) -> None:
        """Resume compares the indices that are safe with the journal, as it does the chunks."""
        stopped()
        path = tmp_path / "out/.preparing/chunk_000001.ends"
        size = path.stat().st_size
        path.unlink() if damage == "gone" else os.truncate(path, size - 1)
        found = "is missing" if damage == "gone" else f"has {size - 1} bytes"
        with pytest.raises(CorpusError, match=rf"chunk_000001.ends {found}, but .* says {size} bytes"):
            prepare(resume=True)

    def test_a_journal_from_before(self, tmp_path: Path, prepare: Prepare, stopped: Any) -> None:
        """An unfinished preparation that knows nothing of indices goes on without any."""
        stopped(doc_index=False)
        journal = tmp_path / "out/.preparing/journal.jsonl"
        assert "doc_index" not in journal.read_text()
        assert "ends_checksum" not in journal.read_text()
        out = prepare(resume=True)
        assert not list(out.glob("*.ends"))
        assert (out / "meta.json").read_text().count("doc_index") == 0
        assert verify_corpus(out).ok
        assert prepare(resume=True) == out

    def test_it_cannot_be_left_out_half_way(self, prepare: Prepare, stopped: Any) -> None:
        """Begun with an index and gone on with without one is refused by name."""
        stopped()
        with pytest.raises(ConfigError, match=r"with other settings: doc_index was True, is None"):
            prepare(resume=True, doc_index=False)

    def test_overwrite(self, prepare: Prepare) -> None:
        """The indices of the old corpus go with it; one without any leaves none."""
        out = prepare(tokens_per_chunk=20)
        assert len(list(out.glob("*.ends"))) > 50
        prepare(overwrite=True)
        assert len(list(out.glob("*.ends"))) == len(list(out.glob("*.bin"))) < 40
        assert verify_corpus(out).ok
        prepare(overwrite=True, doc_index=False)
        assert not list(out.glob("*.ends"))

    def test_tasks(self, tokenizer_dir: Path, prepare: Prepare) -> None:
        """Indices move with their chunks when shares are put together; a merge that dies goes on."""
        for task in (2, 0, 1):
            out = prepare(task=task, num_tasks=3)
        before = shutil.copytree(out, out.with_name("before"))
        merge_tasks(out)
        assert stored_ends(out) == expected_ends(document_lengths(tokenizer_dir, TEXTS), chunk_sizes(out))
        assert verify_corpus(out).ok
        (before / ".preparing/task_00001/chunk_000000.ends").unlink()
        with pytest.raises(OutputError, match=r"task_00001/chunk_000000.ends is missing"):
            merge_tasks(before)

    def test_room(self, prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
        """The room that is asked for a chunk includes an index as large as the largest so far."""
        asked: list[int] = []
        monkeypatch.setattr(
            "tdstream.writing.shard_writer.check_space", lambda _, num_bytes: asked.append(num_bytes)
        )
        out = prepare()
        counts = [len(ends) for ends in stored_ends(out)]
        assert asked == [100 + 8 * max(counts[:number], default=0) for number in range(len(counts))]
