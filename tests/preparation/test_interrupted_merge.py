"""A merge that dies at any of its changes of the file system ends as if it had not, whoever starts next."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers_points import Killed, files_of, killed_at

import tdstream
from helpers_text import write_jsonl
from tdstream.cli.main import main
from tdstream.preparation.engine import prepare_corpus
from tdstream.preparation.options import PrepareOptions
from tdstream.preparation.result import PrepareResult
from tdstream.verification.verify import verify_corpus
from tdstream.writing.merge import merge_tasks

Prepare = Callable[..., PrepareResult]


@pytest.fixture
def prepare(tmp_path: Path, tokenizer_dir: Path) -> Prepare:
    """Return a function that prepares two files, a third of them held out, in chunks of 90 tokens."""
    (tmp_path / "data").mkdir()
    for name in "ab":
        texts = [f"{name} {'x ' * (number % 7)}{number}" for number in range(25)]
        write_jsonl(tmp_path / f"data/{name}.jsonl", [{"text": text} for text in texts])

    def run(output: Path, **named: Any) -> PrepareResult:
        given = {
            "tokenizer": str(tokenizer_dir), "dataset": str(tmp_path / "data"), "tokens_per_chunk": 90,
            "output_path": output, "encoder": "hf", "val_fraction": 0.3, **named,
        }  # fmt: skip
        return prepare_corpus(PrepareOptions.of(**given))

    return run


def next_merge(output: Path, prepare: Prepare, overwrite: bool) -> None:
    """Merge again, twice: the second has nothing to do."""
    merge_tasks(output, overwrite=overwrite)
    assert merge_tasks(output).was_complete


def next_task(output: Path, prepare: Prepare, overwrite: bool) -> None:
    """Start a task again, as a job of several tasks does, and merge."""
    prepare(output, task=1, num_tasks=2, resume=True, overwrite=overwrite)
    prepare(output, task=0, num_tasks=2, resume=True, overwrite=overwrite)
    merge_tasks(output, overwrite=overwrite)


def check_pair(output: Path, old: dict[str, Any]) -> None:
    """Check that whoever sees the main corpus sees what was held out of it, and never of another."""
    main_meta, val_meta = (output / name for name in ("meta.json", "val/meta.json"))
    if not main_meta.exists():
        return
    assert val_meta.exists()
    is_old = [files_of(output).get(name) == old.get(name) for name in ("meta.json", "val/meta.json")]
    assert is_old[0] == is_old[1]
    assert json.loads(val_meta.read_text())["holdout"]["part"] == "val"


@pytest.mark.parametrize(("start", "step"), [(next_merge, 1), (next_task, 7)])
@pytest.mark.parametrize("overwrite", [False, True])
def test_every_point(
    tmp_path: Path,
    prepare: Prepare,
    start: Callable[..., None],
    step: int,
    overwrite: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The files are those of a merge that lived, nothing is left beside them, and no fault is found."""
    old: dict[str, Any] = {}
    if overwrite:
        prepare(tmp_path / "before", val_fraction=0.5)
        old = files_of(tmp_path / "before")
    for task in (0, 1):
        prepare(tmp_path / "before", task=task, num_tasks=2, overwrite=overwrite)
    shutil.copytree(tmp_path / "before", tmp_path / "whole")
    merge_tasks(tmp_path / "whole", overwrite=overwrite)
    whole, told = files_of(tmp_path / "whole"), 0
    for call in range(0, 400, step):
        output = tmp_path / f"killed_{call}"
        shutil.copytree(tmp_path / "before", output)
        with killed_at(call, monkeypatch) as done:
            try:
                merge_tasks(output, overwrite=overwrite)
                died = False
            except Killed:
                died = True
        check_pair(output, old)
        if (output / "val/meta.json").exists() and not (output / "meta.json").exists():
            told += 1
            caplog.clear()
            tdstream.build(output / "val", seq_len=8)
            assert "held out of a corpus that is not in its place yet" in caplog.text
        start(output, prepare, overwrite)
        assert files_of(output) == whole, (call, done)
        assert not (output / ".preparing").exists(), (call, done)
        if not died:
            break
        if call % 10 == 0:
            assert verify_corpus(output).ok
            assert verify_corpus(output / "val").ok
    assert call > 40
    assert told > 0 or step > 1


def test_what_is_left_of_a_finished_move(tmp_path: Path, prepare: Prepare, capsys: Any) -> None:
    """An empty staging directory, or one with the rest of the tasks, is no fault, and goes without a word."""
    prepare(tmp_path / "out")
    whole = files_of(tmp_path / "out")
    staging = tmp_path / "out/.preparing"
    for names in ([], ["lock"], ["lock", "task_00000/lock", "val/"], ["task_00000/chunk_000000.bin.tmp"]):
        for resume in (True, False):
            staging.mkdir()
            for name in names:
                (staging / name).parent.mkdir(exist_ok=True)
                (staging / name).mkdir() if name.endswith("/") else (staging / name).touch()
            assert verify_corpus(tmp_path / "out").ok
            if resume:
                assert prepare(tmp_path / "out", resume=True).was_complete
            else:
                assert main(["merge", str(tmp_path / "out")]) == 0
                assert "Complete already, there is nothing to merge" in capsys.readouterr().err
            assert files_of(tmp_path / "out") == whole
            assert not staging.exists()
