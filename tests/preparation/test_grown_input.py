"""Input that grew is appended once: what the corpus has already is left out or refused."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tdstream
from helpers_text import corpus_bytes, expected_tokens, write_jsonl
from tdstream.core.errors import ConfigError, OutputError
from tdstream.preparation import engine
from tdstream.preparation.engine import prepare_corpus
from tdstream.preparation.options import PrepareOptions
from tdstream.preparation.result import PrepareResult
from tdstream.verification.verify import verify_corpus
from tdstream.writing.merge import merge_tasks

Prepare = Callable[..., PrepareResult]
DAYS = [[f"day {day} text {number} {'x ' * (number % 5)}" for number in range(40)] for day in range(5)]


def write_day(directory: Path, day: int, name: str | None = None) -> Path:
    """Write the texts of a day into a file."""
    directory.mkdir(exist_ok=True)
    return write_jsonl(directory / (name or f"day{day}.jsonl"), [{"text": text} for text in DAYS[day]])


@pytest.fixture
def prepare(tmp_path: Path, tokenizer_dir: Path) -> Prepare:
    """Return a function that prepares a directory of days; days 1 and 2 are there."""
    for day in (1, 2):
        write_day(tmp_path / "data", day)

    def run(dataset: str = "data", **named: Any) -> PrepareResult:
        given = {
            "tokenizer": str(tokenizer_dir), "dataset": str(tmp_path / dataset), "tokens_per_chunk": 500,
            "output_path": tmp_path / "out", "encoder": "hf", **named,
        }  # fmt: skip
        return prepare_corpus(PrepareOptions.of(**given))

    return run


@pytest.fixture
def check(tmp_path: Path, tokenizer_dir: Path) -> Callable[..., None]:
    """Return a function that compares the corpus with the texts of some days, in their order."""

    def compare(*days: int) -> None:
        texts = [text for day in days for text in DAYS[day]]
        assert corpus_bytes(tmp_path / "out") == expected_tokens(tokenizer_dir, texts, "<u2").tobytes()
        assert verify_corpus(tmp_path / "out").ok

    return compare


def as_version_0_1(output: Path) -> None:
    """Remove what earlier versions did not record."""
    path = output / "meta.json"
    content = json.loads(path.read_text())
    del content["input_files"]
    path.write_text(json.dumps(content))


class TestNewFiles:
    """A directory with more files than before."""

    def test_only_these_are_appended(
        self, tmp_path: Path, prepare: Prepare, check: Callable[..., None], caplog: pytest.LogCaptureFixture
    ) -> None:
        """Before, between and behind the old ones; the advice says so, and following it is right."""
        prepare()
        for day in (0, 3, 4):
            write_day(tmp_path / "data", day)
        with pytest.raises(OutputError, match=r"2 of 5 files are in .* already, 3 are new\. Pass append"):
            prepare(resume=True)
        result = prepare(append=True, resume=True)
        assert result.counts.documents == 120
        assert "2 of 5 files are in the corpus already, 3 are new: those are appended" in caplog.text
        check(1, 2, 0, 3, 4)
        for again in ({"append": True, "resume": True}, {"resume": True}):
            assert prepare(**again).was_complete
        with pytest.raises(ConfigError, match=r"All 5 files are in the corpus .*\. With resume=True"):
            prepare(append=True)
        check(1, 2, 0, 3, 4)

    def test_a_second_time(self, tmp_path: Path, prepare: Prepare, check: Callable[..., None]) -> None:
        """What was appended is known as well."""
        prepare()
        for day in (3, 4):
            write_day(tmp_path / "data", day)
            prepare(append=True)
        check(1, 2, 3, 4)

    def test_an_interrupted_append(
        self, tmp_path: Path, prepare: Prepare, check: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It resumes with the same files."""
        prepare()
        write_day(tmp_path / "data", 3)
        real = engine.write_block

        def stopping(*arguments: Any) -> None:
            real(*arguments)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(engine, "write_block", stopping)
            with pytest.raises(KeyboardInterrupt):
                prepare(append=True, batch_size=20, tokens_per_chunk=500)
        prepare(append=True, resume=True)
        check(1, 2, 3)

    @pytest.mark.parametrize("options", [{"text_field": "other"}, {"strip": True}])
    def test_other_documents_of_the_same_files(self, tmp_path: Path, prepare: Prepare, options: Any) -> None:
        """Another field of the same records is other text."""
        rows = [{"text": "a", "other": "b "}] * 5
        write_jsonl(tmp_path / "rows.jsonl", rows)
        prepare("rows.jsonl")
        assert prepare("rows.jsonl", append=True, **options).counts.documents == 5

    def test_tasks_and_held_out(self, tmp_path: Path, prepare: Prepare) -> None:
        """The merge of several tasks records the files of all, in the main corpus."""
        from tdstream.writing.merge import merge_tasks

        for task in (1, 0):
            prepare(task=task, num_tasks=2, val_fraction=0.5)
        merge_tasks(tmp_path / "out")
        assert len(json.loads((tmp_path / "out/meta.json").read_text())["input_files"]) == 2
        assert "input_files" not in json.loads((tmp_path / "out/val/meta.json").read_text())
        write_day(tmp_path / "data", 3)
        assert prepare(append=True).counts.documents == 40


class TestTheSameFile:
    """A file that is in the corpus, under another path or with another time."""

    @pytest.mark.parametrize("how", ["copy", "link", "symlink", "rename", "touch", "path"])
    def test_it_is_known(
        self, tmp_path: Path, prepare: Prepare, check: Callable[..., None], how: str
    ) -> None:
        """By its content."""
        prepare()
        day1, moved = tmp_path / "data/day1.jsonl", tmp_path / "more/moved.jsonl"
        moved.parent.mkdir()
        if how == "copy":
            shutil.copy(day1, moved)
        elif how == "link":
            os.link(day1, moved)
        elif how == "symlink":
            moved.symlink_to(day1)
        elif how == "rename":
            day1.rename(moved)
        elif how == "touch":
            os.utime(day1, ns=(1, 1))
            shutil.copy2(day1, moved)
        else:
            moved = tmp_path / "data/../data/day1.jsonl"
        with pytest.raises(ConfigError, match=r"is in the corpus in .* already"):
            prepare(str(moved), append=True)
        write_day(tmp_path / "more", 3, "new.jsonl")
        if how != "path":
            assert prepare("more", append=True).counts.documents == 40
            check(1, 2, 3)

    def test_it_has_grown(self, tmp_path: Path, prepare: Prepare, check: Callable[..., None]) -> None:
        """At its path or at another one: half of it is in the corpus, so it is refused."""
        prepare()
        day1 = tmp_path / "data/day1.jsonl"
        size = day1.stat().st_size
        with day1.open("a") as file:
            file.write(json.dumps({"text": "one more"}) + "\n")
        shutil.copy(day1, tmp_path / "grown.jsonl")
        for dataset in ("data", "grown.jsonl"):
            with pytest.raises(ConfigError, match=rf"begins with {size:,} bytes .* Put the new records"):
                prepare(dataset, append=True)
        with pytest.raises(OutputError) as refused:
            prepare(resume=True)
        assert "has changed since" in str(refused.value)
        assert "append" not in str(refused.value)
        check(1, 2)

    def test_it_was_changed(self, tmp_path: Path, prepare: Prepare, check: Callable[..., None]) -> None:
        """Other bytes at a path that was read: whether the documents are new is not known."""
        prepare()
        write_day(tmp_path / "data", 3, "day1.jsonl")
        with pytest.raises(ConfigError, match=r"day1.jsonl has changed .* give the file another name"):
            prepare(append=True)
        (tmp_path / "data/day1.jsonl").rename(tmp_path / "data/day3.jsonl")
        assert prepare(append=True).counts.documents == 40
        check(1, 2, 3)

    def test_large_files(self, tmp_path: Path, prepare: Prepare) -> None:
        """Only both ends are read: equal heads do not make files equal."""
        head = [{"text": "x " * 50_000}]
        write_jsonl(tmp_path / "a.jsonl", [*head, {"text": "a"}])
        write_jsonl(tmp_path / "b.jsonl", [*head, {"text": "b"}])
        write_jsonl(tmp_path / "c.jsonl", [*head, {"text": "a"}, {"text": "c"}])
        prepare("a.jsonl")
        assert prepare("b.jsonl", append=True).counts.documents == 2
        with pytest.raises(ConfigError, match=r"c.jsonl begins with 100,\d+ bytes"):
            prepare("c.jsonl", append=True)

    def test_a_head_of_a_table_is_no_file_that_grew(self, tmp_path: Path, prepare: Prepare) -> None:
        """A csv file that has only a head begins any other one."""
        for name, content in [("a.csv", "text\n"), ("b.csv", "text\nsome\n")]:
            (tmp_path / "tables").mkdir(exist_ok=True)
            (tmp_path / "tables" / name).write_text(content)
        prepare("tables")
        (tmp_path / "tables/c.csv").write_text("text\nother\n")
        assert prepare("tables", append=True).counts.documents == 1


class TestOlderCorpora:
    """Corpora of versions that recorded no files."""

    @pytest.mark.parametrize("new", [0, 3])
    def test_files_that_the_old_hash_proves(
        self, tmp_path: Path, prepare: Prepare, check: Callable[..., None], new: int
    ) -> None:
        """Files from before the corpus, or the first of all, are proved by the hash of them together."""
        for day in (1, 2):
            os.utime(tmp_path / f"data/day{day}.jsonl", ns=(10**18 + day, 10**18 + day))
        prepare()
        as_version_0_1(tmp_path / "out")
        future = (tmp_path / "out/meta.json").stat().st_mtime_ns + 10**10
        os.utime(write_day(tmp_path / "data", new), ns=(future, future))
        assert prepare(append=True).counts.documents == 40
        check(1, 2, new)

    def test_what_cannot_be_known_is_said(
        self, tmp_path: Path, prepare: Prepare, caplog: pytest.LogCaptureFixture
    ) -> None:
        """And the advice names new files alone; what is appended now is known from then on."""
        prepare()
        as_version_0_1(tmp_path / "out")
        write_day(tmp_path / "more", 3)
        with pytest.raises(OutputError, match=r"Pass append=True, and new files alone, to write"):
            prepare("more", resume=True)
        for _ in range(2):
            assert prepare("more", append=True, resume=True).counts.documents in (40, 120)
            assert "has no record of its files, or not of all" in caplog.text
            caplog.clear()
            write_day(tmp_path / "more", 3, "copy.jsonl")
        records = json.loads((tmp_path / "out/meta.json").read_text())["input_files"]
        assert [record == "?" for record in records] == [True, False]


def test_a_list_that_grew(tmp_path: Path, tokenizer_dir: Path, check: Callable[..., None]) -> None:
    """Its first records are those that the corpus was made from: only the others may be appended."""
    old, new = DAYS[1], DAYS[2]
    how = {"encoder": "hf", "tokens_per_chunk": 500}
    tdstream.prepare(old, tokenizer_dir, tmp_path / "out", **how)
    with pytest.raises(ConfigError, match=r"The first 40 records of the list are in .* source\[40:\]"):
        tdstream.prepare([*old, *new], tokenizer_dir, tmp_path / "out", append=True, **how)
    tdstream.prepare([*old, *new][40:], tokenizer_dir, tmp_path / "out", append=True, **how)
    check(1, 2)
    with pytest.raises(ConfigError, match=r"The first 40 records of the list are in"):
        tdstream.prepare([*old, *new], tokenizer_dir, tmp_path / "out", append=True, **how)


class TestMaxSamples:
    """Files that were not read, or not to their ends: 40 records each, in the order of their names."""

    @pytest.mark.parametrize("tasks", [None, 2])
    def test_files_that_were_not_reached_are_new(
        self, tmp_path: Path, prepare: Prepare, check: Callable[..., None], tasks: int | None
    ) -> None:
        """A limit of 20 ends in the first of two files: the second can be appended, the first cannot."""
        for task in [None] if tasks is None else range(tasks):
            prepare(max_samples=20, task=task, num_tasks=tasks)
        if tasks is not None:
            merge_tasks(tmp_path / "out")
        for resume in (False, True):
            with pytest.raises(ConfigError, match=r"Of .*day1\.jsonl, the corpus in .* only the first rec"):
                prepare(append=True, resume=resume)
        result = prepare("data/day2.jsonl", append=True, resume=True)
        assert (result.counts.documents, result.was_complete) == (40, False)
        with pytest.raises(ConfigError, match=r"These documents were already appended"):
            prepare("data/day2.jsonl", append=True)

    def test_a_limited_append_too(self, tmp_path: Path, prepare: Prepare) -> None:
        """Of days 3 and 4, the first 50 records: day 3 is in, day 4 in part, also under another name."""
        prepare()
        for day in (3, 4):
            write_day(tmp_path / "more", day)
        prepare("more", append=True, max_samples=50)
        with pytest.raises(ConfigError, match=r"day3\.jsonl is in the corpus in .* already"):
            prepare("more/day3.jsonl", append=True)
        write_day(tmp_path, 4, "copy.jsonl")
        with pytest.raises(ConfigError, match=r"Of .*copy\.jsonl, the corpus in .* only the first records"):
            prepare("copy.jsonl", append=True)

    def test_a_limit_beyond_the_end(
        self, tmp_path: Path, prepare: Prepare, check: Callable[..., None]
    ) -> None:
        """All files were read whole, so the directory may grow."""
        prepare(max_samples=81)
        write_day(tmp_path / "data", 3)
        assert prepare(append=True).counts.documents == 40
        check(1, 2, 3)

    def test_after_a_resume(self, tmp_path: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
        """The second run only finishes: where the reading ended is known from the journal."""
        finish = engine.Preparation._finish
        with monkeypatch.context() as patch:
            patch.setattr(engine.Preparation, "_finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                prepare(max_samples=50, tokens_per_chunk=100)
        assert engine.Preparation._finish is finish
        prepare(max_samples=50, tokens_per_chunk=100, resume=True)
        with pytest.raises(ConfigError, match=r"Of .*day2\.jsonl, the corpus in .* only the first records"):
            prepare(append=True, tokens_per_chunk=100)
