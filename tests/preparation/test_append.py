"""Documents are appended behind those of a corpus, which stays as it is, byte for byte."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers_ends import chunk_sizes, document_lengths, expected_ends, stored_ends
from helpers_points import Killed, files_of, killed_at

from helpers_text import corpus_bytes, expected_tokens, train_tokenizer, write_jsonl
from tdstream.cli.main import main
from tdstream.core.errors import ConfigError, OutputError
from tdstream.nodes.shard_source import ShardSource
from tdstream.preparation import engine
from tdstream.preparation.engine import prepare_corpus
from tdstream.preparation.options import PrepareOptions
from tdstream.preparation.result import PrepareResult
from tdstream.text import tokenizer as text_tokenizer
from tdstream.verification.verify import verify_corpus

OLD = [f"old {'x ' * (number % 13)}{number}" for number in range(40)]
NEW = [f"new {'y ' * (number % 11)}{number}" for number in range(50)]

Prepare = Callable[..., PrepareResult]


@pytest.fixture
def prepare(tmp_path: Path, tokenizer_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Prepare:
    """Return a function that prepares the old texts in chunks of 100 tokens, or appends the new ones."""
    loaded = text_tokenizer.load_tokenizer(str(tokenizer_dir))
    real = text_tokenizer.load_tokenizer
    monkeypatch.setattr(
        text_tokenizer, "load_tokenizer", lambda name: loaded if name == str(tokenizer_dir) else real(name)
    )
    write_jsonl(tmp_path / "old.jsonl", [{"text": text} for text in OLD])
    write_jsonl(tmp_path / "new.jsonl", [{"text": text} for text in NEW])

    def run(output: str = "out", *, append: bool = False, **named: Any) -> PrepareResult:
        data = "new.jsonl" if append else "old.jsonl"
        given = {
            "tokenizer": str(tokenizer_dir), "dataset": str(tmp_path / data),
            "batch_size": 7, "tokens_per_chunk": 100, "output_path": tmp_path / output, "encoder": "hf",
            "append": append, **named,
        }  # fmt: skip
        return prepare_corpus(PrepareOptions.of(**given))

    return run


@pytest.fixture
def stopped(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that begins a preparation and stops it when two of its chunks are safe."""
    real = engine.write_block

    def run(*given: Any, **named: Any) -> None:
        def stopping(*arguments: Any) -> None:
            real(*arguments)
            if len(arguments[1].entries) >= 2:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(engine, "write_block", stopping)
            with pytest.raises(KeyboardInterrupt):
                prepare(*given, **named)

    return run


def as_reference(directory: Path, **changes: Any) -> None:
    """Leave in meta.json only the keys that the existing tool writes, and remove the index."""
    path = directory / "meta.json"
    keys = ("created_at_unix", "tokenizer_name_or_path", "is_fast", "dtype", "eos_token_id",
            "tokens_per_chunk", "chunks", "total_tokens")  # fmt: skip
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**{key: content[key] for key in keys}, **changes}))
    for file in directory.glob("*.ends"):
        file.unlink()


def check(output: Path, tokenizer_dir: Path, before: dict[str, Any], texts: list[str]) -> None:
    """Compare with the rule: the old files as they were, all documents in their order, no fault."""
    now = files_of(output)
    old = {name: content for name, content in before.items() if name != "meta.json"}
    assert {name: now[name] for name in old} == old
    assert corpus_bytes(output) == expected_tokens(tokenizer_dir, texts, "<u2").tobytes()
    assert verify_corpus(output).ok
    assert ShardSource(output).total_tokens * 2 == len(corpus_bytes(output))


class TestContent:
    """What the corpus is afterwards."""

    def test_twice(self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare) -> None:
        """Old chunks stay, new ones follow the last, shorter one; counts, checksums and index go on."""
        prepare()
        before = files_of(tmp_path / "out")
        num_old = len(list((tmp_path / "out").glob("*.bin")))
        result = prepare(append=True)
        check(tmp_path / "out", tokenizer_dir, before, [*OLD, *NEW])
        assert result.counts.documents == len(NEW)

        meta = json.loads((tmp_path / "out/meta.json").read_text())
        assert [chunk["file"] for chunk in meta["chunks"]] == [
            f"chunk_{number:06d}.bin" for number in range(len(meta["chunks"]))
        ]
        sizes = chunk_sizes(tmp_path / "out")
        assert set(sizes[: num_old - 1] + sizes[num_old:-1]) == {100}
        assert sizes[num_old - 1] < 100
        assert meta["num_documents"] == len(OLD) + len(NEW)
        assert stored_ends(tmp_path / "out") == expected_ends(
            document_lengths(tokenizer_dir, [*OLD, *NEW]), sizes
        )
        kept = {**before["meta.json"], **{key: meta[key] for key in meta.keys() - before["meta.json"].keys()}}
        assert {key for key in kept if kept[key] != meta.get(key)} == {
            "chunks", "total_tokens", "num_documents", "chunk_checksums", "chunk_documents",
            "doc_index_checksums", "input_files",
        }  # fmt: skip

        before = files_of(tmp_path / "out")
        third = write_jsonl(tmp_path / "third.jsonl", [{"text": "one more"}])
        prepare(append=True, dataset=str(third))
        check(tmp_path / "out", tokenizer_dir, before, [*OLD, *NEW, "one more"])
        parts = json.loads((tmp_path / "out/meta.json").read_text())["appended"]
        assert [part["documents"] for part in parts] == [len(NEW), 1]
        assert parts[0]["first_chunk"] == f"chunk_{num_old:06d}.bin"

    def test_without_an_index(self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare) -> None:
        """A corpus that has no index of document ends gets none, one that has goes on with it."""
        prepare(doc_index=False)
        before = files_of(tmp_path / "out")
        prepare(append=True)
        check(tmp_path / "out", tokenizer_dir, before, [*OLD, *NEW])
        assert not list((tmp_path / "out").glob("*.ends"))
        prepare("with")
        prepare("with", append=True, doc_index=False)
        assert len(list((tmp_path / "with").glob("*.ends"))) == len(chunk_sizes(tmp_path / "with"))

    def test_a_reference_corpus(
        self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare, caplog: pytest.LogCaptureFixture
    ) -> None:
        """What can be compared is, and what cannot is said; other files beside the corpus stay."""
        prepare()
        as_reference(tmp_path / "out")
        (tmp_path / "out/README.md").write_text("mine")
        before = files_of(tmp_path / "out")
        with caplog.at_level(logging.WARNING, logger="tdstream"):
            prepare(append=True)
        said = [text for text in caplog.messages if "cannot be checked" in text]
        assert len(said) == 1
        assert "has no tokenizer_fingerprint, vocab_size: whether" in said[0]
        check(tmp_path / "out", tokenizer_dir, before, [*OLD, *NEW])
        meta = json.loads((tmp_path / "out/meta.json").read_text())
        assert (meta["num_documents"], meta["tokenizer_fingerprint"]) == (-1, "")

    def test_names_of_another_kind(self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare) -> None:
        """Chunks with other names keep them; numbers go on behind the highest that there is."""
        prepare(doc_index=False, tokens_per_chunk=100_000)
        as_reference(tmp_path / "out")
        (tmp_path / "out/chunk_000000.bin").rename(tmp_path / "out/chunk_000007.bin")
        text = (tmp_path / "out/meta.json").read_text()
        (tmp_path / "out/meta.json").write_text(text.replace("chunk_000000", "chunk_000007"))
        prepare(append=True, tokens_per_chunk=100_000)
        assert sorted(path.name for path in (tmp_path / "out").glob("*.bin")) == [
            "chunk_000007.bin",
            "chunk_000008.bin",
        ]

    def test_with_documents_held_out(self, tmp_path: Path, prepare: Prepare) -> None:
        """What was held out stays as it is; what is appended goes to the other part."""
        prepare(val_fraction=0.3)
        before = {name: content for name, content in files_of(tmp_path / "out").items() if "val/" in name}
        prepare(append=True)
        now = files_of(tmp_path / "out")
        assert {name: now[name] for name in now if "val/" in name} == before
        assert now["meta.json"]["holdout"]["part"] == "train"
        assert verify_corpus(tmp_path / "out").ok

    def test_to_what_was_held_out(self, tmp_path: Path, prepare: Prepare) -> None:
        """Behind documents that were held out there is no place for others."""
        prepare(val_fraction=0.3)
        before = files_of(tmp_path / "out")
        with pytest.raises(OutputError, match="val holds documents that were held out"):
            prepare(append=True, output_path=tmp_path / "out/val")
        assert files_of(tmp_path / "out") == before

    def test_the_command(
        self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """It says what was appended, and what the corpus is now."""
        prepare()
        flags = ["--dataset", str(tmp_path / "new.jsonl"), "--tokenizer", str(tokenizer_dir)]
        flags += ["--output_path", str(tmp_path / "out"), "--tokens_per_chunk", "100", "--encoder", "hf"]
        assert main(["prepare", *flags, "--append"]) == 0
        tokens = len(corpus_bytes(tmp_path / "out")) // 2
        err = capsys.readouterr().err
        assert (
            f"50 documents, {tokens - int(np.sum(document_lengths(tokenizer_dir, OLD))):,} tokens app" in err
        )
        assert f"the corpus has {tokens:,} tokens in " in err


class TestHistory:
    """Deaths, and doing it twice."""

    @pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.exhaustive)])
    def test_every_point(
        self, tmp_path: Path, prepare: Prepare, step: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Wherever it dies, the corpus can be read, and the next run leaves what one that lived leaves."""
        named = {"tokens_per_chunk": 350, "append": True}
        prepare("old", tokens_per_chunk=350)
        shutil.copytree(tmp_path / "old", tmp_path / "whole")
        prepare("whole", **named)
        whole, old = files_of(tmp_path / "whole"), files_of(tmp_path / "old")
        for call in range(0, 200, step):
            output = tmp_path / f"killed_{call}"
            shutil.copytree(tmp_path / "old", output)
            with killed_at(call, monkeypatch):
                try:
                    prepare(output.name, **named)
                    died = False
                except Killed:
                    died = True
            if not died:
                break
            assert ShardSource(output).total_tokens in (
                old["meta.json"]["total_tokens"],
                whole["meta.json"]["total_tokens"],
            )
            prepare(output.name, resume=True, **named)
            assert files_of(output) == whole, call
            assert prepare(output.name, resume=True, **named).was_complete
        assert call > 20

    def test_the_same_documents(self, tmp_path: Path, prepare: Prepare) -> None:
        """They are appended once: a second time is refused, or with resume nothing to do."""
        prepare()
        prepare(append=True)
        before = files_of(tmp_path / "out")
        with pytest.raises(ConfigError, match=r"were already appended to .* \(50, from chunk_\d+.bin on"):
            prepare(append=True)
        result = prepare(append=True, resume=True)
        assert result.was_complete
        assert files_of(tmp_path / "out") == before

    def test_the_documents_of_the_corpus_itself(self, tmp_path: Path, prepare: Prepare) -> None:
        """What a corpus was made from is not appended to it; and an append does not change what that was."""
        prepare()
        with pytest.raises(ConfigError, match=r"was made from these documents: they are in it, and"):
            prepare(append=True, dataset=str(tmp_path / "old.jsonl"))
        prepare(append=True)
        after = files_of(tmp_path / "out")
        assert prepare(append=True, resume=True, dataset=str(tmp_path / "old.jsonl")).was_complete
        assert prepare(resume=True).was_complete
        with pytest.raises(OutputError, match="another source or with other options: dataset, files changed"):
            prepare(resume=True, dataset=str(tmp_path / "new.jsonl"))
        assert files_of(tmp_path / "out") == after

    def test_what_is_unfinished(
        self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare, stopped: Callable[..., None]
    ) -> None:
        """An unfinished append is only gone on with as one, and a new corpus is none."""
        prepare()
        before = files_of(tmp_path / "out")
        stopped(append=True)
        with pytest.raises(OutputError, match=r"were being appended: \d+ documents, 200 tokens are safe"):
            prepare(append=True)
        with pytest.raises(OutputError, match=r"preparation that appends. Resume it with append=True"):
            prepare(resume=True)
        prepare(append=True, resume=True)
        check(tmp_path / "out", tokenizer_dir, before, [*OLD, *NEW])

        prepare("other")
        stopped("other", overwrite=True)
        with pytest.raises(OutputError, match=r"that makes a new corpus. Resume it without append=True"):
            prepare("other", append=True, resume=True)

    def test_the_corpus_has_changed(self, tmp_path: Path, prepare: Prepare, stopped: Any) -> None:
        """What was begun behind one corpus does not go behind another."""
        prepare()
        stopped(append=True)
        path = tmp_path / "out/meta.json"
        content = json.loads(path.read_text())
        content["chunk_checksums"]["chunk_000000.bin"] = "sha256:00"
        path.write_text(json.dumps(content))
        with pytest.raises(ConfigError, match="was started with other settings: append was "):
            prepare(append=True, resume=True)


class TestRefusals:
    """What cannot be appended to, or not so."""

    def test_another_tokenizer(self, tmp_path: Path, prepare: Prepare) -> None:
        """Ids of two tokenizers do not go into one corpus."""
        other = train_tokenizer(tmp_path / "other")
        content = json.loads((other / "tokenizer.json").read_text())
        content["normalizer"] = {"type": "NFC"}
        (other / "tokenizer.json").write_text(json.dumps(content))
        prepare()
        before = files_of(tmp_path / "out")
        with pytest.raises(ConfigError, match=r"was prepared differently: tokenizer_fingerprint was 'sha256"):
            prepare(append=True, tokenizer=str(other))
        assert files_of(tmp_path / "out") == before
        as_reference(tmp_path / "out")
        with pytest.raises(ConfigError, match=r"prepared differently: tokenizer_name_or_path was "):
            prepare(append=True, tokenizer=str(other))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"tokens_per_chunk": 99}, "tokens_per_chunk was 99, is 100"),
            ({"eos_token_id": 7}, "eos_token_id was 7, is 0"),
        ],
    )
    def test_another_kind(
        self, tmp_path: Path, prepare: Prepare, changes: dict[str, Any], message: str
    ) -> None:
        """Nor chunks of two sizes, or two end-of-text ids."""
        prepare()
        as_reference(tmp_path / "out", **changes)
        with pytest.raises(ConfigError, match=f"was prepared differently: {message}"):
            prepare(append=True)

    def test_no_corpus(self, tmp_path: Path, prepare: Prepare) -> None:
        """There has to be one, as it promises to be."""
        with pytest.raises(OutputError, match="is not a directory with a corpus to append to"):
            prepare(append=True)
        (tmp_path / "out").mkdir()
        with pytest.raises(OutputError, match="holds no complete corpus to append to"):
            prepare(append=True)
        prepare()
        (tmp_path / "out/chunk_000099.bin").write_bytes(b"\0\0")
        with pytest.raises(OutputError, match=r"holds chunk_000099.bin, which meta.json does not list"):
            prepare(append=True)
        (tmp_path / "out/chunk_000099.bin").unlink()
        os.truncate(tmp_path / "out/chunk_000000.bin", 100)
        with pytest.raises(OutputError, match=r"chunk_000000.bin is truncated: .* Nothing can be appended"):
            prepare(append=True)

    @pytest.mark.parametrize(
        ("named", "message"),
        [
            ({"overwrite": True}, "overwrite replaces it"),
            ({"task": 0, "num_tasks": 2}, "several tasks cannot append"),
            ({"val_fraction": 0.5}, "append cannot hold documents out"),
        ],
    )
    def test_what_does_not_go_together(self, named: dict[str, Any], message: str) -> None:
        """Options that contradict it are refused at once."""
        with pytest.raises(ConfigError, match=message):
            PrepareOptions.of(append=True, **named)
