"""The pages: every code block runs as a reader would run it, and every link, path and name is real."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from test_layers import FLOORS

import tdstream
from tdstream.cli.main import main

ROOT = Path(__file__).parent.parent
PACKAGE = Path(tdstream.__file__).parent
PAGES = [
    path
    for pattern in ("README.md", "CONTRIBUTING.md", "tdstream/README.md", "docs/*.md")
    for path in sorted(ROOT.glob(pattern))
]
with_sources = pytest.mark.skipif(
    not (ROOT / "tdstream").is_dir(), reason="a wheel is tested, the sources are gone"
)
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PREPARED = {"data/corpus": "texts.jsonl", "data/code": "code.jsonl"}


def name_of(page: Path) -> str:
    """Return a page's path in the repository."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the code blocks of a page, each with its language."""
    return BLOCK.findall(TEXTS[page])


def prose(page: Path) -> str:
    """Return a page without its code blocks."""
    return BLOCK.sub("", TEXTS[page])


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Compute in one thread: several that wait for each other on busy cores take ten times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with text files, a tokenizer and two corpora, under the names that the pages use."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    directory = tmp_path_factory.mktemp("prepared")
    texts = [path.read_text(encoding="utf-8")[:1500] for path in sorted(PACKAGE.rglob("*.py"))]
    files = {"texts.jsonl": texts[:40], "code.jsonl": texts[40:60], "more.jsonl": ["one more"]}
    for name, content in files.items():
        (directory / name).write_text("".join(json.dumps({"text": text}) + "\n" for text in content))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=512, special_tokens=["<eos>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")  # noqa: S106 - a token of text
    fast.save_pretrained(directory / "my-tokenizer")
    for corpus, source in PREPARED.items():
        with changed_to(directory):  # as the commands on the pages: a corpus names its tokenizer by its path
            tdstream.prepare(source, "my-tokenizer", corpus)
    return directory


@contextlib.contextmanager
def changed_to(directory: Path) -> Iterator[None]:
    """Work in a directory for a while."""
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


@pytest.fixture
def reader(prepared: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return a directory for the reader of one page: what `prepared` has, without what the page makes."""
    text = TEXTS.get(getattr(request, "param", None), "")
    made = tuple(corpus for corpus in PREPARED if f"--output_path {corpus} " in text.replace("\n", " "))

    def left_out(directory: str, names: list[str]) -> set[str]:
        relative = Path(directory).relative_to(prepared)
        return {name for name in names if str(relative / name) in made}

    shutil.copytree(prepared, tmp_path / "reader", ignore=left_out)
    for name in ("Makefile", "constraints.txt", "pyproject.toml", ".ci", "prepare", "examples", "tests"):
        os.symlink(ROOT / name, tmp_path / "reader" / name)
    return tmp_path / "reader"


def check_installs(words: list[str]) -> None:
    """Check a `pip install` without running it: it installs this project, with extras that exist."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for word in words:
        if word.startswith("-"):
            continue
        found = re.fullmatch(r"(?:\.|tdstream)(?:\[(\w+)\])?", word)
        assert found, f"pip install {word}"
        assert found[1] is None or re.search(rf"^{found[1]} = \[", project, re.MULTILINE), word


def run_command(line: str, directory: Path) -> None:
    """Run a command of a shell block in this process; `make` and `pip` are only checked."""
    words = shlex.split(line, comments=True)
    if not words:
        return
    if words[0] == "tdstream":
        assert main(words[1:]) == 0, line
    elif words[:2] == ["pip", "install"]:
        check_installs(words[2:])
    else:
        assert words[0] == "make", f"a test does not know how to run {line!r}"
        dry = ["make", "--dry-run", *words[1:]]
        done = subprocess.run(dry, check=False, cwd=directory, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_have_a_language_that_is_run_or_text(page: Path) -> None:
    """A block that nothing runs is marked as text."""
    assert {language for language, _ in blocks(page)} <= {"bash", "python", "text"}


RUNNABLE = [page for page in PAGES if any(language != "text" for language, _ in blocks(page))]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # of torch.distributed.checkpoint
@pytest.mark.parametrize(
    ("page", "reader"), [(page, page) for page in RUNNABLE], ids=map(name_of, RUNNABLE), indirect=["reader"]
)
def test_the_blocks_run_in_order(page: Path, reader: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a page run from top to bottom, in one directory and one Python session."""
    monkeypatch.chdir(reader)
    session: dict[str, object] = {"__name__": "page"}
    for language, block in blocks(page):
        if language == "bash":
            for line in block.replace("\\\n", " ").splitlines():
                run_command(line, reader)
        elif language == "python":
            exec(compile(block, name_of(page), "exec"), session)  # noqa: S102 - our own pages


def test_the_resumed_loop_begins_where_the_front_page_says(
    reader: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state saved after three batches of four resumes with the thirteenth sample, in batches of two."""
    monkeypatch.chdir(reader)

    def loader(batch_size: int, num_workers: int) -> tdstream.Loader:
        return tdstream.loader(
            "data/corpus", seq_len=32, shuffle=True, seed=42, batch_size=batch_size, num_workers=num_workers
        )

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


def argument_rows(section: str) -> list[tuple[str, str]]:
    """Return (argument, default) of each row of a table in the reference."""
    table = TEXTS[ROOT / "docs" / "reference.md"].split(f"## {section}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (.*?) \|", table, re.MULTILINE)
    return [(name, default) for names, default in rows for name in re.findall(r"\w+", names)]


def shown(value: object) -> str:
    """Return a default as the tables write it."""
    return f'"{value}"' if isinstance(value, str) else str(value)


def test_the_argument_table_is_builds() -> None:
    """Every argument of build has its row, in order, with its default."""
    parameters = inspect.signature(tdstream.build).parameters.values()
    for (name, default), parameter in zip(argument_rows("Arguments of `build`"), parameters, strict=True):
        assert name == parameter.name
        if parameter.default is not inspect.Parameter.empty and name != "stride":
            assert default == shown(parameter.default)


def test_the_argument_table_is_loaders() -> None:
    """Every argument of loader that is not build's has its row, with its default or as DataLoader's."""
    own, passed = (inspect.signature(name).parameters for name in (tdstream.loader, tdstream.build))
    expected = [parameter for name, parameter in own.items() if name not in passed]
    for (name, default), parameter in zip(argument_rows("Arguments of `loader`"), expected, strict=True):
        assert name == parameter.name
        assert default in (shown(parameter.default), "as `DataLoader`")


def test_the_table_of_flags_is_that_of_prepare(capsys: pytest.CaptureFixture[str]) -> None:
    """Every flag of `tdstream prepare` has its row in the page about preparing, and no other has one."""
    with pytest.raises(SystemExit):
        main(["prepare", "--help"])
    flags = set(re.findall(r"^ +(--\w+)", capsys.readouterr().out, re.MULTILINE))
    table = TEXTS[ROOT / "docs" / "prepare.md"].split("## Flags\n")[1]
    rows = re.findall(r"^\| (`--.*?) \|", table, re.MULTILINE)
    assert {flag for row in rows for flag in re.findall(r"--\w+", row)} == flags


def test_flags_on_the_pages_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """A --flag that a page mentions belongs to a command, an example, pip, torchrun or a container."""
    known = {"--help", "--version", "--nnodes", "--nproc_per_node", "--standalone", "--system-site-packages"}
    known.add("--shm-size")
    own = ("prepare", "merge", "inspect", "verify", "state", "locate", "bench", "export", "adopt", "convert")
    for command in own:
        with pytest.raises(SystemExit):
            main([command, "--help"])
        known |= set(re.findall(r"--[\w-]+", capsys.readouterr().out))
    for example in ("train", "resume_demo", "demo"):
        source = (ROOT / "examples" / f"{example}.py").read_text(encoding="utf-8")
        known |= set(re.findall(r"--\w+", source)) | {
            f"--{name}" for name in re.findall(r'"(\w+)": ', source)
        }
    for page in PAGES:
        assert set(re.findall(r"(?<![\w|-])--[a-z][\w-]*", TEXTS[page])) <= known, name_of(page)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_names_that_a_page_uses_are_public(page: Path) -> None:
    """`tdstream.X` on a page is in __all__, a module, or in a module that is on the page's path."""
    for dotted in set(re.findall(r"\btdstream\.([A-Za-z][\w.]*\w)", TEXTS[page])):
        first = dotted.split(".")[0]
        module = (PACKAGE / first).with_suffix(".py")
        assert first in tdstream.__all__ or module.exists() or module.with_suffix("").is_dir(), dotted


def test_every_public_name_is_on_the_reference_page() -> None:
    """Each name of __all__ is in the reference."""
    text = TEXTS[ROOT / "docs" / "reference.md"]
    assert [name for name in tdstream.__all__ if f"`{name}`" not in text] == []


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as the usual renderers make them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@with_sources
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    """Relative links resolve, to the heading; there are no others."""
    for target in re.findall(r"\]\(([^)]+)\)", prose(page)):
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


@with_sources
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_a_page_names_exist(page: Path) -> None:
    """Paths of the repository on a page are real, those of modules too."""
    folders = "examples|prepare|benchmarks|tests|docs|tdstream"
    named = set(re.findall(rf"(?<![\w/])((?:{folders})/[\w./]*\w\.\w+)", TEXTS[page]))
    if page.parent.name == "tdstream":
        modules = re.findall(r"`((?!tests/)\w+(?:/\w+)*\.py)`", TEXTS[page])
        named |= {f"tdstream/{path}" for path in modules}
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
    assert shutil.which("make"), "the two commands need make"


@with_sources
def test_the_table_of_rooms_is_the_floors_that_are_checked() -> None:
    """The contract's table has each room on its floor."""
    rows = re.findall(r"^\| (\d+) \| `(\w+)`", TEXTS[ROOT / "tdstream" / "README.md"], re.MULTILINE)
    floors = [
        (str(number), room)
        for number, rooms in enumerate(FLOORS, start=1)
        for room in rooms
        if (PACKAGE / room).is_dir()
    ]
    assert sorted(rows) == sorted(floors)


def test_the_front_page_is_short() -> None:
    """It has at most 1,600 words and 220 lines."""
    text = TEXTS[ROOT / "README.md"]
    assert len(text.split()) <= 1600
    assert len(text.splitlines()) <= 220


def test_every_page_is_linked_from_the_index_and_the_front_page() -> None:
    """No page is lost."""
    for page in (ROOT / "docs").glob("*.md"):
        if page.name != "README.md":
            assert f"(docs/{page.name})" in TEXTS[ROOT / "README.md"], page.name
            assert f"({page.name})" in TEXTS[ROOT / "docs" / "README.md"], page.name
