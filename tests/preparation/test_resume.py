"""A preparation that dies anywhere goes on behind what is safe, and ends with the bytes of one that lived."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers_points import Killed, files_of, killed_at

from helpers_text import corpus_bytes, expected_tokens, train_tokenizer, write_jsonl
from tdstream.core.errors import ConfigError, CorpusError, OutputError, SourceError
from tdstream.preparation.engine import prepare_corpus
from tdstream.preparation.options import PrepareOptions
from tdstream.preparation.result import PrepareResult
from tdstream.text import tokenizer as text_tokenizer
from tdstream.text.batches import TextBatches
from tdstream.text.encoders.encoder import HfEncoder
from tdstream.writing.locks import take_lock

WORDS = ["self", "def", "json", "x", "=", "\u00e9", "<|endoftext|>"]
TEXTS: list[Any] = [
    " ".join(random.Random(number).choices(WORDS, k=number * 7 % 40)) if number % 9 else ""
    for number in range(60)
]


Prepare = Callable[..., PrepareResult]


@pytest.fixture(scope="module")
def module_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tokenizer of this file's own."""
    return train_tokenizer(tmp_path_factory.mktemp("resume_tokenizer"))


@pytest.fixture
def prepare(tmp_path: Path, module_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Prepare]:
    """Return a function that prepares tmp_path/a.jsonl in chunks of 150 tokens."""
    loaded = text_tokenizer.load_tokenizer(str(module_tokenizer))
    real = text_tokenizer.load_tokenizer
    monkeypatch.setattr(
        text_tokenizer, "load_tokenizer", lambda name: loaded if name == str(module_tokenizer) else real(name)
    )
    if not (tmp_path / "a.jsonl").exists():
        write_jsonl(tmp_path / "a.jsonl", [{"text": text} for text in TEXTS])

    def run(output: str = "out", **named: Any) -> PrepareResult:
        given = {
            "tokenizer": str(module_tokenizer), "dataset": str(tmp_path / "a.jsonl"), "batch_size": 7,
            "tokens_per_chunk": 150, "output_path": tmp_path / output, "encoder": "hf", **named,
        }  # fmt: skip
        return prepare_corpus(PrepareOptions.of(**given))

    return run


class TestEveryPoint:
    """Deaths between any two changes of the file system."""

    @pytest.mark.parametrize("overwrite", [False, True])
    def test_each_ends_with_the_same_files(
        self, tmp_path: Path, prepare: Prepare, overwrite: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Wherever the first run dies, the second leaves the files of a run that did not; so does a third."""
        named = {"tokens_per_chunk": 400, "batch_size": 1000}
        whole_result = prepare("whole", **named)
        whole = files_of(tmp_path / "whole")
        prepare("old", max_samples=9, tokens_per_chunk=50)
        for call in range(200):
            output = f"killed_{call}"
            if overwrite:
                shutil.copytree(tmp_path / "old", tmp_path / output)
            with killed_at(call, monkeypatch) as done:
                try:
                    prepare(output, overwrite=overwrite, **named)
                    died = False
                except Killed:
                    died = True
            if not died:
                break
            result = prepare(output, overwrite=overwrite, resume=True, **named)
            assert files_of(tmp_path / output) == whole, (call, done)
            if not result.was_complete:
                assert (result.counts, result.lengths) == (whole_result.counts, whole_result.lengths)
        assert call > 5 * len(whole_result.meta.chunks)  # write, name, directory, journal, move

    def test_two_deaths(self, tmp_path: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
        """Runs that die again and again, each a little later, arrive too."""
        prepare("whole")
        deaths = 0
        for call in range(6, 200, 3):
            with killed_at(call, monkeypatch):
                try:
                    prepare(resume=True)
                    break
                except Killed:
                    deaths += 1
        assert deaths > 3
        assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


@pytest.fixture
def stop_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Return a function that lets every source stop with KeyboardInterrupt after some batches."""
    real = TextBatches.batches

    def choose(num_batches: int | None) -> None:
        def batches(self: TextBatches) -> Iterator[Any]:
            for number, batch in enumerate(real(self)):
                if number == num_batches:
                    raise KeyboardInterrupt
                yield batch

        monkeypatch.setattr(TextBatches, "batches", batches)

    return choose


def write_source(kind: str, directory: Path) -> Path:
    """Write the texts, and in the middle of them some records without text, into two files of a kind."""
    directory.mkdir()
    rows = [{"text": text, "id": number} for number, text in enumerate(TEXTS)]
    rows[30:30] = [{"text": None, "id": -1}] * 4
    for name, part in (("a", rows[:41]), ("b", rows[41:])):
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(part), directory / f"{name}.parquet", row_group_size=6)
        elif kind == "jsonl":
            write_jsonl(directory / f"{name}.jsonl", part)
        else:
            content = "".join(json.dumps(row) + "\n" for row in part).encode()
            (directory / f"{name}.jsonl.gz").write_bytes(gzip.compress(content))
    return directory


class TestEveryKind:
    """Stops at every batch of every kind of input."""

    @pytest.mark.parametrize("kind", ["parquet", "jsonl", "gz"])
    def test_it_goes_on_in_the_middle(
        self,
        tmp_path: Path,
        module_tokenizer: Path,
        prepare: Prepare,
        stop_after: Callable[[int | None], None],
        kind: str,
    ) -> None:
        """Stopped after 1, 3, 5, ... batches in turn, with bad records among them, it ends the same."""
        data = str(write_source(kind, tmp_path / "data"))
        named = {"dataset": data, "skip_bad": True, "tokens_per_chunk": 97}
        whole = prepare("whole", **named)
        stops = 0
        for num_batches in range(1, 99, 2):
            stop_after(num_batches)
            try:
                result = prepare(resume=True, **named)
                break
            except KeyboardInterrupt:
                stops += 1
        assert stops >= 2
        assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")
        assert corpus_bytes(tmp_path / "out") == expected_tokens(module_tokenizer, TEXTS, "<u2").tobytes()
        assert (result.counts, result.lengths) == (whole.counts, whole.lengths)
        assert (result.counts.documents, result.counts.skipped) == (60, 4)

    def test_at_most_two_chunks_are_done_again(
        self,
        prepare: Prepare,
        stop_after: Callable[[int | None], None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """What is encoded after a stop is what was not safe: the documents behind the last whole chunk."""
        stop_after(6)
        with pytest.raises(KeyboardInterrupt):
            prepare(batch_size=5)
        stop_after(None)
        encoded: list[str] = []
        real = HfEncoder.encode

        def encode(self: Any, texts: list[str]) -> Any:
            encoded.extend(texts)
            return real(self, texts)

        monkeypatch.setattr(HfEncoder, "encode", encode)
        prepare(batch_size=5, resume=True)
        again = 30 - (60 - len(encoded))
        longest = max(len(text.split()) for text in TEXTS)
        assert 0 <= again <= 2 * 150 // longest + 2
        assert encoded == TEXTS[60 - len(encoded) :]


class TestRefusals:
    """What is not gone on with, and what is not lost."""

    @pytest.fixture
    def begun(self, tmp_path: Path, prepare: Prepare, stop_after: Callable[[int | None], None]) -> Path:
        """Leave an unfinished preparation in tmp_path/out."""
        stop_after(6)
        with pytest.raises(KeyboardInterrupt):
            prepare()
        stop_after(None)
        return tmp_path / "out"

    def test_a_plain_start_says_what_there_is(self, begun: Path, prepare: Prepare) -> None:
        """Without resume and overwrite it is refused, with what is safe, and nothing is lost."""
        before = files_of(begun)
        journal = [json.loads(line) for line in before[".preparing/journal.jsonl"].splitlines()][1:]
        tokens = sum(line["tokens"] for line in journal)
        documents = sum(line["note"]["documents"] for line in journal)
        with pytest.raises(
            OutputError,
            match=rf"unfinished .*: {documents} documents, {tokens:,} tokens are safe. Pass resume=True",
        ):
            prepare()
        assert files_of(begun) == before

    @pytest.mark.parametrize(
        ("named", "difference"),
        [
            ({"tokens_per_chunk": 151}, "tokens_per_chunk was 150, is 151"),
            ({"max_samples": 50}, "max_samples was None, is 50"),
            ({"skip_bad": True, "batch_size": 3, "num_proc": 1}, None),
        ],
    )
    def test_other_flags(
        self, begun: Path, prepare: Prepare, named: dict[str, Any], difference: str | None
    ) -> None:
        """Resume with flags that decide the bytes is refused, naming what changed, and nothing is lost."""
        before = files_of(begun)
        if difference is not None:
            with pytest.raises(
                ConfigError, match=rf"was started with other settings: {difference}. Resume it with"
            ):
                prepare(resume=True, **named)
            assert files_of(begun) == before
            named = {}
        prepare(resume=True, **named)
        assert not (begun / ".preparing").exists()

    def test_another_tokenizer(self, tmp_path: Path, begun: Path, prepare: Prepare) -> None:
        """A tokenizer that gives other ids is refused, whatever its name."""
        other = train_tokenizer(tmp_path / "other")
        content = json.loads((other / "tokenizer.json").read_text())
        content["normalizer"] = {"type": "NFC"}
        (other / "tokenizer.json").write_text(json.dumps(content))
        with pytest.raises(ConfigError, match=r"other settings: tokenizer was 'sha256:\w+', is 'sha256:"):
            prepare(resume=True, tokenizer=str(other))

    def test_another_dataset(self, tmp_path: Path, begun: Path, prepare: Prepare) -> None:
        """Another file is refused, and so is the same one when it has changed."""
        write_jsonl(tmp_path / "b.jsonl", [{"text": text} for text in TEXTS])
        with pytest.raises(ConfigError, match=r"dataset was '.*a.jsonl', is '.*b.jsonl'; files was"):
            prepare(resume=True, dataset=str(tmp_path / "b.jsonl"))
        write_jsonl(tmp_path / "a.jsonl", [{"text": text} for text in reversed(TEXTS)])
        with pytest.raises(
            ConfigError, match=r"with other settings: files was 1 file of [\d,]+ bytes, is 1 file of "
        ):
            prepare(resume=True)

    def test_a_newer_journal(self, begun: Path, prepare: Prepare) -> None:
        """A journal from a newer version is refused, and kept."""
        journal = begun / ".preparing" / "journal.jsonl"
        journal.write_text(journal.read_text().replace('"tdstream_journal":1', '"tdstream_journal":2', 1))
        before = files_of(begun)
        with pytest.raises(CorpusError, match=r"has version 2, this tdstream reads up to 1. Install a newer"):
            prepare(resume=True)
        assert files_of(begun) == before
        prepare(overwrite=True)

    @pytest.mark.parametrize("line", [1, 2])
    def test_a_damaged_journal(self, begun: Path, prepare: Prepare, line: int) -> None:
        """A journal with a line that is none, before its last one, is refused."""
        journal = begun / ".preparing" / "journal.jsonl"
        lines = journal.read_text().split("\n")
        assert len(lines) > line + 1
        lines[line - 1] = "?"
        journal.write_text("\n".join(lines))
        with pytest.raises(
            CorpusError, match=rf"is damaged: line {line} is no JSON object. Pass overwrite=True"
        ):
            prepare(resume=True)

    @pytest.mark.parametrize("tail", ['{"file": "chunk_0', "\0\0\0\0\n"])
    def test_a_cut_line(
        self,
        tmp_path: Path,
        begun: Path,
        prepare: Prepare,
        stop_after: Callable[[int | None], None],
        tail: str,
    ) -> None:
        """A last line that was not written as a whole is left out, and does not spoil the next one."""
        with (begun / ".preparing" / "journal.jsonl").open("a") as file:
            file.write(tail)
        stop_after(2)
        with pytest.raises(KeyboardInterrupt):
            prepare(resume=True)
        stop_after(None)
        prepare(resume=True)
        prepare("whole")
        assert files_of(begun) == files_of(tmp_path / "whole")

    @pytest.mark.parametrize("size", [None, 10])
    def test_a_lost_chunk(self, begun: Path, prepare: Prepare, size: int | None) -> None:
        """A chunk that is gone or has another size is named."""
        chunk = begun / ".preparing" / "chunk_000000.bin"
        os.truncate(chunk, size) if size else chunk.unlink()
        found = f"has {size} bytes" if size else "is missing"
        with pytest.raises(CorpusError, match=rf"chunk_000000.bin {found}, but the journal says 300 b"):
            prepare(resume=True)

    @pytest.mark.parametrize("shared", [False, True])
    def test_two_at_once(self, begun: Path, prepare: Prepare, shared: bool) -> None:
        """While one goes on, or a task of several, another is refused, and what is safe stays."""
        lock = take_lock(begun / ".preparing", begun, shared=shared)
        try:
            with pytest.raises(OutputError, match="Another preparation is writing into"):
                prepare(resume=True)
        finally:
            lock.close()
        prepare(resume=True)

    def test_overwrite_begins_again(self, tmp_path: Path, begun: Path, prepare: Prepare) -> None:
        """With overwrite and no resume, all that was begun is left out."""
        prepare(overwrite=True, max_samples=3)
        prepare("whole", max_samples=3)
        assert files_of(begun) == files_of(tmp_path / "whole")

    def test_complete_already(self, begun: Path, prepare: Prepare) -> None:
        """Resume of what is complete does nothing, and of another corpus is refused."""
        result = prepare(resume=True)
        before = files_of(begun)
        again = prepare(resume=True)
        assert again.was_complete
        assert (again.counts.documents, again.counts.tokens) == (60, result.counts.tokens)
        with pytest.raises(OutputError, match=r"prepared differently: tokens_per_chunk was 150, is 99. Pass"):
            prepare(resume=True, tokens_per_chunk=99)
        assert files_of(begun) == before

    def test_complete_from_other_documents(
        self,
        tmp_path: Path,
        prepare: Prepare,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A corpus of other documents is not what was asked for, and what differs is named."""
        prepare()
        before = files_of(tmp_path / "out")
        write_jsonl(tmp_path / "b.jsonl", [{"text": text, "more": "x"} for text in TEXTS])
        monkeypatch.chdir(tmp_path)
        for same in (tmp_path / "a*.jsonl", "a.jsonl", "./a.jsonl"):
            assert prepare(resume=True, dataset=str(same)).was_complete  # The same file, spelled otherwise.
        other = {"dataset": str(tmp_path / "b.jsonl")}
        for named, differing in [
            (other, "dataset, files"),
            ({"max_samples": 59}, "max_samples"),
            ({"strip": True}, "strip"),
            ({**other, "text_field": "text,more"}, "dataset, text_field, files"),
        ]:
            with pytest.raises(OutputError, match=rf"from another source .*: {differing} changed\. Pass"):
                prepare(resume=True, **named)
        (tmp_path / "a.jsonl").write_bytes((tmp_path / "b.jsonl").read_bytes())
        with pytest.raises(OutputError, match=r"options: files changed\."):
            prepare(resume=True)
        (tmp_path / "a.jsonl").unlink()
        assert prepare(resume=True).was_complete
        assert "was made from it cannot be checked" in caplog.text
        assert files_of(tmp_path / "out") == before

    def test_complete_and_how_it_was_made_is_not_known(self, tmp_path: Path, prepare: Prepare) -> None:
        """Corpora from before the key are compared in what they tell."""
        prepare()
        path = tmp_path / "out" / "meta.json"
        content = json.loads(path.read_text())
        assert sorted(content.pop("made_from")) == ["dataset", "files", "split", "text_field"]
        path.write_text(json.dumps(content))
        assert prepare(resume=True, max_samples=3).was_complete

    def test_nothing_to_resume(self, tmp_path: Path, prepare: Prepare) -> None:
        """Resume where there is nothing just begins."""
        prepare(resume=True)
        prepare("whole")
        assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


class TestErrors:
    """Errors keep what is safe, too."""

    def test_a_bad_record(self, tmp_path: Path, module_tokenizer: Path, prepare: Prepare) -> None:
        """After a bad record one can go on with skip_bad, but not turn it off again."""
        rows = [{"text": text} for text in TEXTS]
        rows[50:50] = [{"text": None}]
        write_jsonl(tmp_path / "a.jsonl", rows)
        with pytest.raises(
            SourceError, match=r"Record 50 .*\. \d+ documents, [\d,]+ tokens are safe: start again"
        ) as refused:
            prepare()
        assert "start again with resume=True and skip_bad=True to continue" in str(refused.value)
        assert "repaired source counts as another one: pass overwrite=True" in str(refused.value)
        result = prepare(resume=True, skip_bad=True)
        assert (result.counts.documents, result.counts.skipped) == (60, 1)
        assert corpus_bytes(tmp_path / "out") == expected_tokens(module_tokenizer, TEXTS, "<u2").tobytes()

    def test_a_repaired_record(self, tmp_path: Path, module_tokenizer: Path, prepare: Prepare) -> None:
        """The file is another one: that is said, and what is offered works."""
        rows: list[Any] = [{"text": text} for text in TEXTS]
        rows[50:50] = [{"text": None}]
        path = write_jsonl(tmp_path / "a.jsonl", rows)
        with pytest.raises(SourceError):
            prepare()
        write_jsonl(path, [{"text": text} for text in TEXTS])
        with pytest.raises(ConfigError, match=r"files was 1 file of .* bytes, is 1 file of") as refused:
            prepare(resume=True)
        assert str(refused.value).endswith("or pass overwrite=True without resume=True to start again.")
        prepare(overwrite=True)
        assert corpus_bytes(tmp_path / "out") == expected_tokens(module_tokenizer, TEXTS, "<u2").tobytes()

    def test_a_repaired_record_of_a_function(
        self, tmp_path: Path, module_tokenizer: Path, prepare: Prepare
    ) -> None:
        """It is known by its first records, so it resumes after the safe ones."""
        texts: list[Any] = [*TEXTS[:50], None, *TEXTS[50:]]

        def source() -> Iterator[Any]:
            return iter(texts)

        with pytest.raises(SourceError, match=r"are safe: start again with resume=True to continue after"):
            prepare(given=source)
        del texts[50]
        prepare(given=source, resume=True)
        assert corpus_bytes(tmp_path / "out") == expected_tokens(module_tokenizer, TEXTS, "<u2").tobytes()

    def test_skip_bad_cannot_be_taken_back(
        self, tmp_path: Path, prepare: Prepare, stop_after: Callable[[int | None], None]
    ) -> None:
        """Where records were skipped, resume without skip_bad is refused."""
        rows: list[Any] = [{"text": None}, *[{"text": text} for text in TEXTS]]
        write_jsonl(tmp_path / "a.jsonl", rows)
        stop_after(6)
        with pytest.raises(KeyboardInterrupt):
            prepare(skip_bad=True)
        stop_after(None)
        with pytest.raises(
            ConfigError, match=r"skipped 1 bad records, but skip_bad is off now. Resume it with"
        ):
            prepare(resume=True)
        assert prepare(resume=True, skip_bad=True).counts.skipped == 1

    def test_no_room(self, tmp_path: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without room for the next chunk it stops before writing it, keeps the others, and can go on."""
        real, asked = os.statvfs, []

        class Disk:
            f_bavail, f_frsize = 29, 10

        def statvfs(path: Path) -> Any:
            if Path(path).name == ".preparing":
                asked.append(sorted(os.listdir(path)))
            return real(path) if Path(path).name != ".preparing" or len(asked) < 3 else Disk

        with monkeypatch.context() as patch:
            patch.setattr(os, "statvfs", statvfs)
            with pytest.raises(
                OutputError,
                match=r"No space left .* takes 300 bytes, 290 are free.*\d documents, 300 tokens are safe",
            ):
                prepare(doc_index=False)
        assert asked[-1] == ["chunk_000000.bin", "chunk_000001.bin", "journal.jsonl", "lock"]
        prepare(resume=True)
        prepare("whole", doc_index=False)
        assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")
