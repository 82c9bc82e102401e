"""The README's code blocks run, from top to bottom, as a reader would run them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tdstream

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """Return a directory as a reader has it: this repository's scripts, a text file, a tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    directory = tmp_path_factory.mktemp("reader")
    texts = [path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("tdstream/**/*.py"))]
    (directory / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (directory / "more.jsonl").write_text(json.dumps({"text": "one more"}) + "\n")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=512, special_tokens=["<eos>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")  # noqa: S106 - a token of text
    fast.save_pretrained(directory / "my-tokenizer")
    for name in ("Makefile", "constraints.txt", "pyproject.toml", ".ci", "prepare", "examples"):
        os.symlink(ROOT / name, directory / name)
    return directory


def run_shell(block: str, directory: Path) -> None:
    """Run a shell block's commands; `make` is asked what it would do, since this may be running inside it."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for line in block.splitlines():
        command = re.sub(r"^make ", "make --dry-run ", line)
        done = subprocess.run(
            ["bash", "-c", command],
            check=False,
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def test_the_blocks_run_in_order(reader, monkeypatch):
    """Shell and Python blocks of the README, in one directory and one Python session."""
    assert {language for language, _ in BLOCKS} <= {"bash", "python", "text"}
    monkeypatch.chdir(reader)
    session: dict[str, object] = {"__name__": "readme"}
    for language, block in BLOCKS:
        if language == "bash":
            run_shell(block, reader)
        elif language == "python":
            exec(compile(block, "README.md", "exec"), session)  # noqa: S102 - our own README
    assert session["batch"]["input_ids"].shape == (4, 32)


def test_the_resumed_loop_begins_where_the_readme_says(reader, monkeypatch):
    """The state saved after three batches of four goes on with the thirteenth sample, in batches of two."""
    monkeypatch.chdir(reader)
    if not (reader / "data" / "corpus").exists():
        run_shell(
            next(block for language, block in BLOCKS if language == "bash" and "data/corpus" in block), reader
        )

    def loader(batch_size, num_workers):
        options = {"seq_len": 32, "shuffle": True, "seed": 42, "num_workers": num_workers}
        return tdstream.loader("data/corpus", batch_size=batch_size, **options)

    whole = [row for batch in loader(1, 0) for row in batch["input_ids"].tolist()]
    first = loader(4, 2)
    iterator = iter(first)
    for _ in range(3):
        next(iterator)
    second = loader(2, 0)
    second.load_state_dict(first.state_dict())
    rest = [row for batch in second for row in batch["input_ids"].tolist()]
    assert rest == whole[12 : 12 + len(rest)]
    assert len(whole) - 12 - len(rest) < 2


def test_the_argument_table_is_builds():
    """Every argument of build has its row, in order, with its default."""
    import inspect

    rows = re.findall(
        r"^\| (`\w+`(?:, `\w+`)*) \| (.*?) \|",
        README.split("## Arguments of")[1].split("\n## ")[0],
        re.MULTILINE,
    )
    named = [(name, default) for names, default in rows for name in re.findall(r"\w+", names)]
    for (name, default), parameter in zip(
        named, inspect.signature(tdstream.build).parameters.values(), strict=True
    ):
        assert name == parameter.name
        if parameter.default is not inspect.Parameter.empty and name != "stride":
            value = parameter.default
            assert default == (f'"{value}"' if isinstance(value, str) else str(value))


def test_every_name_that_the_readme_uses_is_public():
    """tdstream.X in the README is in __all__."""
    used = set(re.findall(r"tdstream\.([A-Za-z]\w*)", README))
    assert used <= set(tdstream.__all__)


def test_files_that_the_readme_names_exist():
    """Paths in the README are real."""
    for name in set(re.findall(r"`((?:examples|prepare|benchmarks|tests)/[\w/]+\.\w+)", README)):
        assert (ROOT / name).exists(), name
    assert shutil.which("make"), "the two commands need make"
