"""Commands on poor terminals, below names that are no UTF-8, without a home, and on unreadable files."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import tdstream
from tdstream.cli.main import main
from tdstream.verification.verify import verify_corpus

TEXT = "h\u00e4llo \u4e16\u754c"
ODD = os.fsdecode(b"x\xff\xfey")  # bytes that are no UTF-8
COMMANDS = [["verify"], ["verify", "--fast"], ["verify", "--json"], ["inspect"], ["inspect", "--json"]]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, tokenizer_dir: Path) -> Path:
    """Return a corpus of texts that are not ASCII, in several shards."""
    place = tmp_path_factory.mktemp("prepared")
    lines = (json.dumps({"text": f"{TEXT} {number}"}, ensure_ascii=False) for number in range(200))
    (place / "data.jsonl").write_text("\n".join(lines), encoding="utf-8")
    tdstream.prepare(
        str(place / "data.jsonl"), str(tokenizer_dir), place / "corpus", tokens_per_chunk=2000,
    )  # fmt: skip
    return place / "corpus"


@pytest.fixture
def corpus(prepared: Path, tmp_path: Path) -> Path:
    """Return a copy below an odd name."""
    return Path(shutil.copytree(prepared, tmp_path / ODD / "corpus"))


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_odd_names_and_terminals(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], encoding: str
) -> None:
    """What the output's encoding lacks is escaped; JSON stays JSON."""
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
    monkeypatch.setattr(sys, "stdout", out)
    assert main([command[0], str(corpus), *command[1:]]) == 0
    assert out.errors == "strict"  # as it was
    out.flush()
    told = out.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
    assert "x\\udcff\\udcfey" in told
    if "--json" in command:
        assert json.loads(told)["directory"] == str(corpus)


def test_build_below_an_odd_name(corpus: Path) -> None:
    """Every reader, and the files that they derive."""
    for options in ({}, {"documents": True}, {"cut": "document"}, {"cut": "pack"}):
        loader = tdstream.loader(corpus, seq_len=16, batch_size=2, **options)
        assert len(list(loader)) == len(loader) > 0


def test_a_checkpoint_with_an_odd_name(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that torch cannot open by its name."""
    loader = tdstream.loader(corpus, seq_len=16, batch_size=2)
    next(iter(loader))
    buffer = io.BytesIO()
    torch.save({"loader": loader.state_dict()}, buffer)
    saved = corpus.parent / f"{ODD}.pt"
    saved.write_bytes(buffer.getvalue())
    assert main(["state", str(saved), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["position"] == 2


@pytest.mark.exhaustive
def test_an_ascii_locale(prepared: Path, tokenizer_dir: Path, tmp_path: Path) -> None:
    """A real process: the whole way of a corpus with a name of bytes."""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0",
                   "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": os.pathsep.join(sys.path)}  # fmt: skip
    out = tmp_path / ODD
    prepare = ["prepare", "--tokenizer", str(tokenizer_dir), "--dataset", str(prepared.parent / "data.jsonl"),
               "--output_path", str(out)]  # fmt: skip
    for command in (prepare, ["verify", str(out)], ["inspect", str(out)], ["inspect", str(out / "no")]):
        done = subprocess.run(
            [sys.executable, "-m", "tdstream", *command], env=environment, capture_output=True, check=False
        )
        assert b"Traceback" not in done.stderr
        assert done.returncode == int("no" in command[-1][-3:])


def test_no_home(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home that cannot be made, and no cache: readers do without."""
    monkeypatch.setenv("HOME", "/proc/nobody")
    for name in ("XDG_CACHE_HOME", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert main(["verify", str(prepared)]) == 0
    assert main(["inspect", str(prepared)]) == 0
    for options in ({}, {"documents": True}):
        assert len(list(tdstream.loader(prepared, seq_len=16, batch_size=2, **options))) > 0


def make_odd(path: Path, kind: str) -> None:
    """Put something else in the place of a file."""
    path.unlink()
    if kind == "directory":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path.name)
    else:
        os.mkfifo(path)


@pytest.mark.parametrize("kind", ["directory", "loop", "fifo"])
@pytest.mark.parametrize("file", ["chunk_000001.bin", "chunk_000001.ends"])
@pytest.mark.parametrize("command", [["verify"], ["verify", "--fast"], ["inspect"]], ids=" ".join)
def test_something_else_in_a_files_place(
    prepared: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    file: str,
    kind: str,
) -> None:
    """It is missing, says a sentence."""
    place = Path(shutil.copytree(prepared, tmp_path / "corpus"))
    make_odd(place / file, kind)
    assert main([command[0], str(place), *command[1:]]) == 1
    told = "".join(capsys.readouterr())
    assert f"{file}: is missing" in told or f"{file} is missing" in told


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
@pytest.mark.parametrize(("file", "command", "told"), [
    ("chunk_000001.bin", "verify", "chunk_000001.bin: cannot be read: Permission denied."),
    ("chunk_000001.ends", "verify", "chunk_000001.ends: cannot be read: Permission denied."),
    ("chunk_000001.ends", "inspect", "chunk_000001.ends cannot be read any more: Permission denied."),
    ("meta.json", "verify", "meta.json: cannot be read: Permission denied."),
    ("meta.json", "inspect", "meta.json cannot be read: Permission denied."),
    (".", "verify", "corpus/meta.json: Permission denied."),
    (".", "inspect", "corpus/meta.json: Permission denied."),
])  # fmt: skip
def test_files_of_another_user(
    make_other_user: Callable[[], None], prepared: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, file: str, command: str, told: str, tmp_path: Path,
) -> None:  # fmt: skip
    """A sentence that names the file and the reason."""
    place = Path(shutil.copytree(prepared, tmp_path / "corpus"))
    (place / file).chmod(0o600)
    monkeypatch.chdir(tmp_path)
    for directory in (tmp_path, *tmp_path.parents):
        directory.chmod(0o755)
        if directory.name.startswith("pytest-of-"):
            break
    make_other_user()
    assert main([command, "corpus"]) == 1
    assert told in "".join(capsys.readouterr())


@pytest.fixture
def make_other_user(prepared: Path):
    """Return a function that becomes another user until the test ends; what is imported late, is imported."""
    main(["verify", str(prepared)])
    main(["inspect", str(prepared)])
    yield lambda: os.seteuid(65534)
    os.seteuid(0)


def test_nothing_sound_is_no_check(tmp_path: Path, make_corpus: Callable[..., Path]) -> None:
    """Of a corpus whose only shard was cut, no size, checksum or index is "ok"."""
    place = make_corpus(300)
    os.truncate(place / "chunk_000000.bin", 100)
    report = verify_corpus(place)
    assert [fault.kind for fault in report.faults] == ["truncated"]
    assert not [line for line in report.checked if " of " in line]
    two = make_corpus(300, 300, name="two")
    os.truncate(two / "chunk_000001.bin", 100)
    assert "sizes: 1 of 2 shards" in verify_corpus(two).checked
