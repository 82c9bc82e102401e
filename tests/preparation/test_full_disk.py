"""A disk that fills up at any write, sync or rename: never a success that is none, and all can be resumed."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers_points import files_of

from helpers_text import write_jsonl
from tdstream.core.errors import OutputError
from tdstream.preparation.engine import prepare_corpus
from tdstream.preparation.options import PrepareOptions
from tdstream.writing import shard_writer
from tdstream.writing.merge import merge_tasks


@contextmanager
def full_from(call: int, monkeypatch: pytest.MonkeyPatch, *, stays: bool) -> Iterator[list[str]]:
    """Let the n-th change of the file system fail for want of space, and all later ones if it `stays` so."""
    done: list[str] = []

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def change(*arguments: Any, **named: Any) -> Any:
            done.append(real.__name__)
            if len(done) - 1 == call or (stays and len(done) > call):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*arguments, **named)

        return change

    with monkeypatch.context() as patch:
        for name in ("replace", "fsync", "write", "truncate"):
            patch.setattr(os, name, failing(getattr(os, name)))
        patch.setattr(shard_writer.OpenFile, "write", failing(shard_writer.OpenFile.write))
        yield done


Run = Callable[..., None]


@pytest.fixture
def runs(tmp_path: Path, tokenizer_dir: Path) -> dict[str, Run]:
    """Return what can be done to a directory, by name."""
    for name in "ab":
        texts = [f"{name} {'x ' * (number % 7)}{number}" for number in range(30)]
        write_jsonl(tmp_path / f"{name}.jsonl", [{"text": text} for text in texts])

    def prepare(output: Path, data: str = "b", **named: Any) -> None:
        given = {
            "tokenizer": str(tokenizer_dir), "dataset": str(tmp_path / f"{data}.jsonl"),
            "tokens_per_chunk": 120, "output_path": output, "encoder": "hf", **named,
        }  # fmt: skip
        prepare_corpus(PrepareOptions.of(**given))

    def merge(output: Path, **named: Any) -> None:
        for task in (0, 1):
            prepare(output, task=task, num_tasks=2, val_fraction=0.3, **named)
        merge_tasks(output)

    return {
        "base": lambda output: prepare(output, "a"),
        "held out": lambda output, **named: prepare(output, val_fraction=0.3, overwrite=True, **named),
        "append": lambda output, **named: prepare(output, append=True, **named),
        "tasks": merge,
    }


@pytest.mark.parametrize(
    ("kind", "stays", "step"),
    [
        ("held out", True, 5),
        ("append", False, 5),
        ("tasks", True, 7),
        *(
            pytest.param(kind, stays, 1, marks=pytest.mark.exhaustive)
            for kind in ("held out", "append", "tasks")
            for stays in (False, True)
        ),
    ],
)
def test_every_point(
    tmp_path: Path, runs: dict[str, Run], kind: str, stays: bool, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failure is raised, and with space again the next start arrives at the files of a whole run."""
    if kind == "tasks":
        (tmp_path / "base").mkdir()
    else:
        runs["base"](tmp_path / "base")
    shutil.copytree(tmp_path / "base", tmp_path / "whole")
    runs[kind](tmp_path / "whole")
    whole = files_of(tmp_path / "whole")
    for call in range(0, 1000, step):
        output = tmp_path / f"full_{call}"
        shutil.copytree(tmp_path / "base", output)
        with full_from(call, monkeypatch, stays=stays) as done:
            try:
                runs[kind](output)
                message = ""
            except OutputError as error:
                message = str(error)
        failed = len(done) > call
        assert ("No space left" in message) is failed, (call, done)
        if failed:
            runs[kind](output, resume=True)
        assert files_of(output) == whole, (call, done)
        if not failed:
            break
    assert call > 30
