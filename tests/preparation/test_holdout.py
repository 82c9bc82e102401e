"""Held-out documents lie in a corpus of their own, chosen by where their records lie and by nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers_ends import chunk_sizes, document_lengths, expected_ends, stored_ends
from helpers_points import Killed, files_of, killed_at

from helpers_text import corpus_bytes, expected_tokens, write_jsonl
from tdstream.cli.main import main
from tdstream.core.errors import ConfigError, CorpusError, OutputError
from tdstream.nodes.shard_source import ShardSource
from tdstream.preparation import engine, holdout
from tdstream.preparation.engine import prepare_corpus
from tdstream.preparation.options import PrepareOptions
from tdstream.preparation.result import PrepareResult
from tdstream.text import tokenizer as text_tokenizer
from tdstream.verification.verify import verify_corpus
from tdstream.writing.merge import merge_tasks

TEXTS = [f"text {'x ' * (number % 17)}{number}" if number % 11 else "" for number in range(120)]
SIZES = [50, 13, 57]  # Records of each file.
MASK = 2**64 - 1

Prepare = Callable[..., PrepareResult]


def mix(value: int) -> int:
    """Return SplitMix64's finaliser, in integers."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def all_hashes() -> list[int]:
    """Return the hash of each record, by the rule."""
    return [
        mix((row + mix((segment + 0x9E3779B97F4A7C15) & MASK)) & MASK)
        for segment, size in enumerate(SIZES)
        for row in range(size)
    ]


def split(held: Callable[[int], bool]) -> tuple[list[str], list[str]]:
    """Return the texts that stay and those that are held out, by a condition on their hashes."""
    pairs = list(zip(TEXTS, all_hashes(), strict=True))
    return [text for text, code in pairs if not held(code)], [text for text, code in pairs if held(code)]


@pytest.fixture
def prepare(tmp_path: Path, tokenizer_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Prepare:
    """Return a function that prepares three files in chunks of 100 tokens, a quarter of it held out."""
    loaded = text_tokenizer.load_tokenizer(str(tokenizer_dir))
    monkeypatch.setattr(text_tokenizer, "load_tokenizer", lambda _: loaded)
    (tmp_path / "data").mkdir()
    rows = [{"text": text} for text in TEXTS]
    for number, first in enumerate((0, 50, 63)):
        part = pa.Table.from_pylist(rows[first : first + SIZES[number]])
        pq.write_table(part, tmp_path / "data" / f"{number}.parquet", row_group_size=8)

    def run(output: str = "out", **named: Any) -> PrepareResult:
        given = {
            "tokenizer": str(tokenizer_dir), "dataset": str(tmp_path / "data"), "batch_size": 7,
            "tokens_per_chunk": 100, "output_path": tmp_path / output, "encoder": "hf", **named,
        }  # fmt: skip
        return prepare_corpus(PrepareOptions.of(**given))

    return run


def check(output: Path, tokenizer_dir: Path, kept: list[str], held: list[str]) -> None:
    """Compare both corpora with the rule, token for token and end for end."""
    for directory, texts in ((output, kept), (output / "val", held)):
        assert corpus_bytes(directory) == expected_tokens(tokenizer_dir, texts, "<u2").tobytes()
        sizes = chunk_sizes(directory)
        assert set(sizes[:-1]) <= {100}
        assert stored_ends(directory) == expected_ends(document_lengths(tokenizer_dir, texts), sizes)
        meta = json.loads((directory / "meta.json").read_text())
        assert meta["num_documents"] == len(texts)
        report = verify_corpus(directory)
        assert report.ok, report.faults
        assert ShardSource(directory).total_tokens == meta["total_tokens"]


class TestRule:
    """Which records are held out."""

    def test_hashes(self) -> None:
        """They are those of the rule, and its values are an interface."""
        found = [
            code for segment, size in enumerate(SIZES) for code in holdout.hashes(segment, np.arange(size))
        ]
        assert [int(code) for code in found] == all_hashes()
        assert [int(code) for code in holdout.hashes(0, np.arange(3))] == PINNED

    @pytest.mark.parametrize("fraction", [2.0**-64, 1e-12, 0.01, 0.5, 1 - 2.0**-53])
    def test_fractions(self, fraction: float) -> None:
        """A hash below F x 2^64 is held out, and no other."""
        highest = holdout.hold_out_fraction(fraction).highest
        assert highest < fraction * 2**64 <= highest + 1

    def test_share(self) -> None:
        """Of a million records of neighbouring segments a hundredth is held out, evenly."""
        highest = np.uint64(holdout.hold_out_fraction(0.01).highest)
        shares = [
            np.count_nonzero(holdout.hashes(segment, np.arange(10_000)) <= highest) for segment in range(100)
        ]
        assert abs(sum(shares) - 10_000) < 4 * (10_000 * 0.99) ** 0.5
        chi2 = sum((share - 100) ** 2 / 99 for share in shares)
        assert 45 < chi2 < 165  # 100 degrees of freedom, five sigmas

    @pytest.mark.parametrize("piece", [1, 7, 1 << 20])
    def test_numbers(self, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
        """A number holds out the records with the smallest hashes, however many are looked at together."""
        monkeypatch.setattr(holdout, "_PIECE", piece)
        for number in (1, 17, 119):
            assert holdout.hold_out_number(number, SIZES).highest == sorted(all_hashes())[number - 1]


PINNED = [5197578548964807871, 16899028431761561291, 11914665375441889411]


class TestCorpora:
    """What is written."""

    @pytest.mark.parametrize("batch_size", [1, 7, 1000])
    def test_fraction(self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare, batch_size: int) -> None:
        """Every document is in one of the two, in the order of the dataset; the batches do not matter."""
        result = prepare(val_fraction=0.25, batch_size=batch_size)

        kept, held = split(lambda code: code < 2**62)
        assert 15 < len(held) < 45
        check(tmp_path / "out", tokenizer_dir, kept, held)
        assert result.val is not None
        counts = result.counts
        assert (counts.documents, result.val.documents, counts.skipped) == (len(kept), len(held), 0)
        assert result.val.tokens * 2 == len(corpus_bytes(tmp_path / "out" / "val"))
        for part, name in (("train", "out"), ("val", "out/val")):
            meta = json.loads((tmp_path / name / "meta.json").read_text())
            assert meta["holdout"] == {"version": 1, "part": part, "fraction": 0.25}

    @pytest.mark.parametrize("number", [1, 40, 119])
    def test_number(self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare, number: int) -> None:
        """Exactly so many are held out."""
        prepare(val_documents=number)
        limit = sorted(all_hashes())[number - 1]
        kept, held = split(lambda code: code <= limit)
        assert len(held) == number
        check(tmp_path / "out", tokenizer_dir, kept, held)

    def test_bad_records(self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare) -> None:
        """Records without text are in neither, are counted, and do not move the choice."""
        rows: list[Any] = [{"text": text} for text in TEXTS[:50]]
        hashes = all_hashes()[:50]
        bad = [hashes.index(min(hashes)), hashes.index(max(hashes)), 49]
        for place in bad:
            rows[place] = {"text": None}
        data = write_jsonl(tmp_path / "bad.jsonl", rows)
        result = prepare(dataset=str(data), val_fraction=0.25, skip_bad=True)
        pairs = [
            (text, code)
            for place, (text, code) in enumerate(zip(TEXTS[:50], hashes, strict=True))
            if place not in bad
        ]
        kept = [text for text, code in pairs if code >= 2**62]
        check(tmp_path / "out", tokenizer_dir, kept, [text for text, code in pairs if code < 2**62])
        assert (result.counts.skipped, result.counts.documents) == (3, len(kept))

    @pytest.mark.parametrize("num_tasks", [2, 3, 7])
    def test_tasks(self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare, num_tasks: int) -> None:
        """However the work is divided, the same documents are held out, in the same order."""
        for task in reversed(range(num_tasks)):
            prepare(val_documents=40, task=task, num_tasks=num_tasks)
        merged = merge_tasks(tmp_path / "out")
        limit = sorted(all_hashes())[39]
        kept, held = split(lambda code: code <= limit)
        assert corpus_bytes(tmp_path / "out") == expected_tokens(tokenizer_dir, kept, "<u2").tobytes()
        assert corpus_bytes(tmp_path / "out/val") == expected_tokens(tokenizer_dir, held, "<u2").tobytes()
        assert merged.val is not None
        assert (merged.meta.num_documents, merged.val.num_documents) == (80, 40)
        report = verify_corpus(tmp_path / "out")
        assert report.ok
        assert "held-out documents: they are a separate corpus" in report.unchecked[0]
        report = verify_corpus(tmp_path / "out/val")
        assert report.ok
        assert not any("held out" in line for line in report.unchecked)
        assert prepare(val_documents=40, task=0, num_tasks=num_tasks, resume=True).was_complete

    def test_the_command(
        self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """It says how many went where."""
        flags = ["--dataset", str(tmp_path / "data"), "--tokenizer", str(tokenizer_dir), "--encoder", "hf"]
        flags += ["--output_path", str(tmp_path / "out"), "--val_documents", "40"]
        assert main(["prepare", *flags]) == 0
        err = capsys.readouterr().err
        assert "120 records = 80 documents + 0 skipped + 40 held out" in err
        assert "and 40 documents, " in err
        assert main(["prepare", *flags, "--resume"]) == 0
        assert "40 documents" in capsys.readouterr().err


class TestHistory:
    """Deaths, and what lies there already."""

    @pytest.mark.parametrize(
        ("overwrite", "step"),
        [
            (False, 4),
            pytest.param(False, 1, marks=pytest.mark.exhaustive),
            pytest.param(True, 1, marks=pytest.mark.exhaustive),
        ],
    )
    def test_every_point(
        self, tmp_path: Path, prepare: Prepare, overwrite: bool, step: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Wherever the first run dies, the second leaves the files of a run that did not."""
        named = {"val_fraction": 0.4, "tokens_per_chunk": 350, "max_samples": 90}
        prepare("whole", **named)
        whole = files_of(tmp_path / "whole")
        prepare("old", val_fraction=0.1, tokens_per_chunk=50, max_samples=60)
        for call in range(0, 400, step):
            output = f"killed_{call}"
            if overwrite:
                shutil.copytree(tmp_path / "old", tmp_path / output)
            with killed_at(call, monkeypatch):
                try:
                    prepare(output, overwrite=overwrite, **named)
                    died = False
                except Killed:
                    died = True
            if not died:
                break
            prepare(output, overwrite=overwrite, resume=True, **named)
            assert files_of(tmp_path / output) == whole, call
        assert call > 40

    def test_many_stops(self, tmp_path: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
        """Runs that are interrupted again and again, at chunks of both corpora, arrive at the same files."""
        named = {"val_fraction": 0.4, "tokens_per_chunk": 70, "batch_size": 3, "max_samples": 110}
        whole = prepare("whole", **named)
        real, stops = engine.write_block, 0

        def stopping(*arguments: Any) -> None:
            begun = len(arguments[1].entries)
            real(*arguments)
            if len(arguments[1].entries) > begun:
                raise KeyboardInterrupt

        for _ in range(100):
            with monkeypatch.context() as patch:
                patch.setattr(engine, "write_block", stopping)
                try:
                    result = prepare(resume=True, **named)
                    break
                except KeyboardInterrupt:
                    stops += 1
        assert stops > 5
        assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")
        assert (result.counts, result.val, result.lengths) == (whole.counts, whole.val, whole.lengths)

    def test_overwrite(self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare) -> None:
        """Both are replaced together; a new corpus without held-out documents leaves none of the old."""
        prepare(val_fraction=0.5, tokens_per_chunk=20)
        prepare(val_fraction=0.25, overwrite=True)
        check(tmp_path / "out", tokenizer_dir, *split(lambda code: code < 2**62))
        prepare(overwrite=True)
        assert not (tmp_path / "out/val").exists()
        assert corpus_bytes(tmp_path / "out") == expected_tokens(tokenizer_dir, TEXTS, "<u2").tobytes()

    def test_a_foreign_val(self, tmp_path: Path, prepare: Prepare) -> None:
        """A directory of that name that was not made by holding out is not touched."""
        prepare()
        prepare("out/val")
        before = files_of(tmp_path / "out")
        for named in ({}, {"val_fraction": 0.25}):
            with pytest.raises(OutputError, match="holds files that no preparation wrote: val"):
                prepare(overwrite=True, **named)
        assert files_of(tmp_path / "out") == before

    def test_something_in_val(self, tmp_path: Path, prepare: Prepare) -> None:
        """Nor is one that holds something else besides."""
        prepare(val_fraction=0.25)
        (tmp_path / "out/val/notes.txt").write_text("mine")
        with pytest.raises(OutputError, match="holds files that no preparation wrote: val"):
            prepare(overwrite=True)

    def test_a_lost_part(self, tmp_path: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
        """A held-out chunk that was safe and is shorter now is named."""
        _stopped(prepare, monkeypatch)
        at_hand = next((tmp_path / "out/.preparing/val").glob("*.bin.tmp"))
        at_hand.write_bytes(b"\0\0")
        with pytest.raises(CorpusError, match=r"bin.tmp has 2 bytes, but the journal says \d+"):
            prepare(val_fraction=0.25, resume=True)


def _stopped(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop a preparation that holds out a quarter when more than three chunks are safe."""
    real = engine.write_block

    def stopping(*arguments: Any) -> None:
        real(*arguments)
        if len(arguments[1].entries) > 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engine, "write_block", stopping)
        with pytest.raises(KeyboardInterrupt):
            prepare(val_fraction=0.25)


class TestRefusals:
    """What cannot be held out."""

    @pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, 1.5, float("nan")])
    def test_fractions(self, fraction: float) -> None:
        """A share is above 0 and below 1."""
        with pytest.raises(ConfigError, match="val_fraction must be a number above 0 and below 1, got"):
            PrepareOptions.of(val_fraction=fraction)

    def test_both(self) -> None:
        """A share and a number exclude each other."""
        with pytest.raises(ConfigError, match="exclude each other"):
            PrepareOptions.of(val_fraction=0.5, val_documents=3)

    def test_all(self, tmp_path: Path, prepare: Prepare) -> None:
        """Something has to stay, and something has to be held out; before anything is written if known."""
        with pytest.raises(ConfigError, match="val_documents is 120, but there are only 120 records"):
            prepare(val_documents=120)
        with pytest.raises(ConfigError, match="val_documents is 20, but there are only 9 records"):
            prepare(val_documents=20, max_samples=9)
        assert not (tmp_path / "out").exists()
        with pytest.raises(CorpusError, match="No document was held out"):
            prepare("none", val_fraction=1e-9)
        with pytest.raises(ConfigError, match=r"All 120 documents were held out"):
            prepare("all", val_fraction=1 - 1e-9)

    def test_they_are_gone(self, tmp_path: Path, prepare: Prepare) -> None:
        """Where they have been moved away, both verify and a resume say so."""
        prepare(val_fraction=0.25)
        shutil.rmtree(tmp_path / "out/val")
        assert (
            "held-out documents: they are no longer in"
            in verify_corpus(tmp_path / "out", fast=True).unchecked[0]
        )
        with pytest.raises(CorpusError, match=r"held out of .* are missing: there is no .*val/meta\.json\."):
            prepare(val_fraction=0.25, resume=True)

    def test_another_share(self, prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
        """Going on with another share is refused by name, and so is calling another one complete."""
        _stopped(prepare, monkeypatch)
        with pytest.raises(ConfigError, match=r"with other settings: val_fraction was 0.25, is 0.5\."):
            prepare(val_fraction=0.5, resume=True)
        with pytest.raises(ConfigError, match=r"val_fraction was 0.25, is None; val_documents was None"):
            prepare(val_documents=3, resume=True)
        prepare(val_fraction=0.25, resume=True)
        with pytest.raises(OutputError, match=r"prepared differently: holdout was .*0.25.*, is .*0.5"):
            prepare(val_fraction=0.5, resume=True)
