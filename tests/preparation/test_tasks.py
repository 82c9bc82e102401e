"""Several tasks prepare one corpus together: the same tokens in the same order, whoever is first."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers_text import corpus_bytes, expected_tokens, write_jsonl
from tdstream.core.errors import ConfigError, CorpusError, OutputError
from tdstream.corpus.meta import read_meta
from tdstream.preparation import engine
from tdstream.preparation import tasks as merging
from tdstream.preparation.engine import prepare_corpus
from tdstream.preparation.options import PrepareOptions
from tdstream.preparation.result import PrepareResult
from tdstream.preparation.tasks import merge_all, wait_for_tasks
from tdstream.writing.locks import take_lock
from tdstream.writing.merge import merge_tasks

TEXTS = [f"text {'x ' * (number % 17)}{number}" for number in range(100)]
FILES = ["parquet", "jsonl"]

Prepare = Callable[..., PrepareResult]


def write_files(directory: Path, kind: str, num_files: int) -> Path:
    """Write the texts into some files, the first of them shorter than the others."""
    directory.mkdir(exist_ok=True)
    for number in range(num_files):
        first, stop = (100 * edge * edge // num_files**2 for edge in (number, number + 1))
        rows = [{"text": text} for text in TEXTS[first:stop]]
        if kind == "parquet":
            table = pa.Table.from_pylist(rows, schema=pa.schema({"text": pa.string()}))
            pq.write_table(table, directory / f"{number}.parquet", row_group_size=8)
        else:
            write_jsonl(directory / f"{number}.jsonl", rows)
    return directory


@pytest.fixture
def prepare(tmp_path: Path, tokenizer_dir: Path) -> Prepare:
    """Return a function that prepares three parquet files in chunks of 100 tokens."""
    write_files(tmp_path / "data", "parquet", 3)

    def run(**named: Any) -> PrepareResult:
        given = {
            "tokenizer": str(tokenizer_dir), "dataset": str(tmp_path / "data"), "batch_size": 7,
            "tokens_per_chunk": 100, "output_path": tmp_path / "out", "encoder": "hf", **named,
        }  # fmt: skip
        return prepare_corpus(PrepareOptions.of(**given))

    return run


def contents(directory: Path) -> dict[str, bytes]:
    """Return every file under a directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


class TestShares:
    """Which records a task reads."""

    @pytest.mark.parametrize("kind", FILES)
    @pytest.mark.parametrize(("num_files", "num_tasks"), [(1, 3), (3, 2), (5, 5), (2, 7)])
    def test_they_are_the_dataset(
        self,
        tmp_path: Path,
        tokenizer_dir: Path,
        prepare: Prepare,
        kind: str,
        num_files: int,
        num_tasks: int,
    ) -> None:
        """Whole files or, where these are too few, rows: together all tokens in their order, each once."""
        data = str(write_files(tmp_path / "some", kind, num_files))
        order = sorted(range(num_tasks), key=lambda task: (task * 5) % 3)
        results = [prepare(dataset=data, task=task, num_tasks=num_tasks) for task in order]

        meta = merge_tasks(tmp_path / "out").meta

        expected = expected_tokens(tokenizer_dir, TEXTS, "<u2")
        assert corpus_bytes(tmp_path / "out") == expected.tobytes()
        assert sum(result.counts.documents for result in results) == meta.num_documents == 100
        assert [chunk.file for chunk in meta.chunks] == [
            f"chunk_{number:06d}.bin" for number in range(len(meta.chunks))
        ]
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
            *(name for chunk in meta.chunks for name in (chunk.file, f"{chunk.file[:-4]}.ends")),
            "meta.json",
        ]
        documents = [result.counts.documents for result in results]
        assert num_files >= num_tasks or max(documents) - min(documents) <= 1

    @pytest.mark.parametrize("kind", FILES)
    def test_max_samples(self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare, kind: str) -> None:
        """max_samples is of all tasks together."""
        data = str(write_files(tmp_path / "some", kind, 3))
        for task in (1, 0):
            prepare(dataset=data, task=task, num_tasks=2, max_samples=51)
        merge_tasks(tmp_path / "out")
        expected = expected_tokens(tokenizer_dir, TEXTS[:51], "<u2")
        assert corpus_bytes(tmp_path / "out") == expected.tobytes()

    def test_the_order_of_finishing_does_not_matter(self, tmp_path: Path, prepare: Prepare) -> None:
        """The files are the same, byte for byte, whichever task is first."""
        for name, order in (("a", [0, 1, 2]), ("b", [2, 0, 1])):
            for task in order:
                prepare(task=task, num_tasks=3, output_path=tmp_path / name)
            merge_tasks(tmp_path / name)
        first, second = contents(tmp_path / "a"), contents(tmp_path / "b")
        metas = [json.loads(files.pop("meta.json")) for files in (first, second)]
        for meta in metas:
            del meta["created_at_unix"]
        assert (first, metas[0]) == (second, metas[1])

    def test_meta(self, tmp_path: Path, prepare: Prepare) -> None:
        """meta.json says what that of one task says, but for the chunks."""
        prepare(output_path=tmp_path / "one")
        for task in (0, 1):
            prepare(task=task, num_tasks=2)
        merge_tasks(tmp_path / "out")
        one, two = (json.loads((tmp_path / name / "meta.json").read_text()) for name in ("one", "out"))
        for meta in (one, two):
            assert sum(meta.pop("chunk_documents").values()) == 100
            for key in ("created_at_unix", "chunks", "chunk_checksums", "doc_index_checksums"):
                del meta[key]
        assert one == two
        assert read_meta(tmp_path / "out" / "meta.json").chunks[0].tokens == 100


class TestResume:
    """A task that was lost."""

    def test_only_the_lost_share_runs_again(
        self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With resume a finished task reads nothing, and a lost one goes on behind its chunks."""
        prepare(task=0, num_tasks=2)
        real = engine.write_block

        def dying(*arguments: Any) -> None:
            real(*arguments)
            if (tmp_path / "out/.preparing/task_00001/chunk_000009.bin").exists():
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(engine, "write_block", dying)
            with pytest.raises(KeyboardInterrupt):
                prepare(task=1, num_tasks=2)
        with pytest.raises(
            CorpusError, match=r"lacks the shards of 1 of 2 tasks: 1. Start those with resume=True"
        ):
            merge_tasks(tmp_path / "out")
        with pytest.raises(
            OutputError, match=r"unfinished preparation: \d+ documents, 1,\d00 tokens are safe"
        ):
            prepare(task=1, num_tasks=2)

        blocks: list[int] = []
        monkeypatch.setattr(engine, "write_block", lambda *given: (blocks.append(1), real(*given)))
        assert prepare(task=0, num_tasks=2, resume=True).counts.documents > 0
        assert blocks == []
        prepare(task=1, num_tasks=2, resume=True)
        assert 0 < len(blocks) < 9

        merge_tasks(tmp_path / "out")
        assert corpus_bytes(tmp_path / "out") == expected_tokens(tokenizer_dir, TEXTS, "<u2").tobytes()
        assert prepare(task=1, num_tasks=2, resume=True).was_complete
        assert prepare(task=2, num_tasks=3, resume=True).was_complete  # The documents are the same.
        with pytest.raises(OutputError, match=r"or with other options: max_samples changed\."):
            prepare(task=1, num_tasks=2, resume=True, max_samples=99)

    def test_a_merge_that_dies_is_started_again(
        self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Wherever a merge stops, the next one completes it."""
        for task in range(3):
            prepare(task=task, num_tasks=3, output_path=tmp_path / "before")
        expected = expected_tokens(tokenizer_dir, TEXTS, "<u2").tobytes()
        real = os.replace
        for survived in range(100):
            output = tmp_path / f"merge_{survived}"
            shutil.copytree(tmp_path / "before", output)
            left = survived

            def dying(source: Any, target: Any) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    raise SystemExit("killed")
                real(source, target)

            with monkeypatch.context() as patch:
                patch.setattr(os, "replace", dying)
                try:
                    merge_tasks(output)
                    break
                except SystemExit:
                    pass
            assert not (output / "meta.json").exists()
            merge_tasks(output)
            assert corpus_bytes(output) == expected
            assert not (output / ".preparing").exists()
        assert survived > 2 * 10

    def test_overwrite(self, tmp_path: Path, tokenizer_dir: Path, prepare: Prepare) -> None:
        """An older corpus stays until the merge, which needs the same permission as the tasks."""
        prepare(max_samples=3)
        before = contents(tmp_path / "out")
        with pytest.raises(OutputError, match="is not empty"):
            prepare(task=0, num_tasks=2)
        for task in (0, 1):
            prepare(task=task, num_tasks=2, overwrite=True)
        during = contents(tmp_path / "out")
        assert {name: during[name] for name in before} == before
        with pytest.raises(OutputError, match="is not empty"):
            merge_tasks(tmp_path / "out")
        merge_tasks(tmp_path / "out", overwrite=True)
        assert corpus_bytes(tmp_path / "out") == expected_tokens(tokenizer_dir, TEXTS, "<u2").tobytes()


class TestRefusals:
    """What does not belong together."""

    def test_a_foreign_share(self, tmp_path: Path, prepare: Prepare) -> None:
        """A share of another preparation is refused, naming what differs."""
        prepare(task=0, num_tasks=2)
        prepare(task=1, num_tasks=2, tokens_per_chunk=50)
        with pytest.raises(
            CorpusError, match=r"task_00001 belongs to another preparation: tokens_per_chunk was 100, is 50\."
        ):
            merge_tasks(tmp_path / "out")

    def test_another_number_of_tasks(self, tmp_path: Path, prepare: Prepare) -> None:
        """Shares of two divisions are refused."""
        prepare(task=0, num_tasks=2)
        prepare(task=2, num_tasks=3)
        with pytest.raises(CorpusError, match=r"task_00002 belongs to another .*: num_tasks was 2, is 3"):
            merge_tasks(tmp_path / "out")
        with pytest.raises(ConfigError, match=r"with other settings: num_tasks was 2, is 3"):
            prepare(task=0, num_tasks=3, resume=True)

    def test_nothing_to_merge(self, tmp_path: Path, prepare: Prepare) -> None:
        """Where no task has been there is nothing to merge."""
        with pytest.raises(CorpusError, match="holds no tasks to merge"):
            merge_tasks(tmp_path / "nowhere")
        (tmp_path / "empty").mkdir()
        with pytest.raises(CorpusError, match="holds no tasks to merge"):
            merge_tasks(tmp_path / "empty")

    def test_one_and_several_do_not_mix(self, tmp_path: Path, prepare: Prepare) -> None:
        """One task neither begins nor resumes where several have begun, unless it may overwrite."""
        prepare(task=0, num_tasks=2)
        for resume in (False, True):
            with pytest.raises(OutputError, match=r"unfinished preparation of several tasks\. Start those"):
                prepare(resume=resume)
        prepare(overwrite=True)
        assert not (tmp_path / "out" / ".preparing").exists()

    def test_two_of_the_same_task(self, tmp_path: Path, prepare: Prepare) -> None:
        """A task that runs twice is refused; two different ones run at the same time, but no merge."""
        staging = tmp_path / "out" / ".preparing"
        staging.mkdir(parents=True)
        locks = [take_lock(staging, staging, shared=True), take_lock(staging / "task_00001", staging)]
        with pytest.raises(OutputError, match="Another preparation is writing into"):
            prepare(task=1, num_tasks=2)
        prepare(task=0, num_tasks=2)
        with pytest.raises(OutputError, match="Another preparation is writing into"):
            merge_tasks(tmp_path / "out")
        for lock in locks:
            lock.close()


class TestWaiting:
    """The task that merges waits for the others."""

    def test_it_waits_for_one_that_runs(self, tmp_path: Path, prepare: Prepare) -> None:
        """As long as a task holds its lock it is waited for, longer than the patience with the dead."""
        result = prepare(task=0, num_tasks=2)
        directory = tmp_path / "out" / ".preparing" / "task_00001"
        lock = take_lock(directory, directory)

        def later() -> None:
            time.sleep(1.0)
            lock.close()
            prepare(task=1, num_tasks=2)

        other = threading.Thread(target=later)
        other.start()
        options = PrepareOptions.of(output_path=tmp_path / "out", task=0, num_tasks=2, merge_wait=30.0)
        merged = merge_all(options, result)
        other.join()
        assert merged.counts.documents == 100
        assert sum(merged.lengths.values()) == 100
        assert merged.meta is not None
        assert merged.meta.total_tokens == merged.counts.tokens

    def test_it_does_not_wait_for_the_dead(
        self, tmp_path: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A task that has ended or never begun is named after a while."""
        prepare(task=1, num_tasks=4)
        monkeypatch.setattr(merging, "_PAUSE_S", 0.01)
        (tmp_path / "out/.preparing/task_00003").mkdir()
        begun = time.monotonic()
        with pytest.raises(
            OutputError, match=r"Of 4 tasks, these have ended or never begun.*: 0, 2, 3 \(no sign"
        ):
            wait_for_tasks(tmp_path / "out", 4, 0.3)
        assert 0.3 < time.monotonic() - begun < 10
