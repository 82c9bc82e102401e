"""Options refuse what cannot be followed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import tdstream
from tdstream.cli.main import main
from tdstream.core.errors import ConfigError
from tdstream.preparation.options import PrepareOptions


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokens_per_chunk", 0),
        ("tokens_per_chunk", -5),
        ("batch_size", 0),
        ("max_samples", 0),
        ("max_samples", -5),
    ],
)
def test_numbers_below_one(name: str, value: int) -> None:
    """A count below one is refused by its name and value."""
    with pytest.raises(ConfigError, match=rf"^{name} must be an integer of at least 1, got {value}\.$"):
        PrepareOptions.of(**{name: value})


@pytest.mark.parametrize("name", ["tokenizer", "dataset", "split", "text_field"])
def test_empty_names(name: str) -> None:
    """A name that has to be there is not empty."""
    empty: dict[str, Any] = {name: ""}
    with pytest.raises(ConfigError, match=rf"^{name} must not be empty\.$"):
        PrepareOptions.of(**empty)


def test_an_empty_output_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unset variable of a script does not mean the working directory."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"output_path must name a directory, got ''"):
        tdstream.prepare(["a text"], "any", "")
    with pytest.raises(SystemExit):
        main(["prepare", "--output_path", ""])
    assert "--output_path: expected a path, got ''" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        *[
            (name, value, "True or False")
            for name in ("lines", "overwrite", "doc_index", "append", "skip_bad", "resume", "strip")
            for value in ("no", None, 2)
        ],
        *[(name, 3, "a string") for name in ("tokenizer", "dataset", "split", "text_field")],
        ("text_field", ["title", "text"], "a string"),
        ("val_fraction", "0.1", "a number above 0 and below 1"),
        ("val_fraction", float("nan"), "a number above 0 and below 1"),
    ],
)
def test_types(name: str, value: Any, expected: str) -> None:
    """What only looks like an option's value is refused by its name, before anything is read."""
    wrong: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=f"^{name} must be {expected}, got {re.escape(repr(value))}[.]$"):
        PrepareOptions.of(**wrong)


def test_defaults() -> None:
    """Without arguments they are those that existing scripts rely on."""
    options = PrepareOptions()
    text = options.text
    assert (text.tokenizer, text.dataset, text.text_field) == (
        "gpt2",
        "HuggingFaceFW/fineweb-edu",
        "text",
    )
    assert (options.output.tokens_per_chunk, text.batch_size, text.max_samples) == (100_000_000, 1000, None)


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ({"num_proc": 0}, "num_proc must be an integer of at least 1, got 0."),
        ({"task": 0}, "task and num_tasks are given together or not at all, got task=0 and num_tasks=None."),
        ({"task": 2, "num_tasks": 2}, "task must be 0 to 1 with num_tasks=2, got 2."),
        ({"task": -1, "num_tasks": 2}, "task must be 0 to 1 with num_tasks=2, got -1."),
    ],
)
def test_processes_and_tasks(named: dict[str, Any], sentence: str) -> None:
    """There is at least one process, and a task is one of all tasks."""
    with pytest.raises(ConfigError) as caught:
        PrepareOptions.of(**named)
    assert str(caught.value) == sentence
