"""Files of earlier versions are read as they are, and the same input still gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from golden_cases import (
    BY_NAME,
    CHECKPOINTS,
    COUNTS,
    KILLED,
    KILLED_LIST,
    OUTPUTS,
    TOKENIZER,
    WIDE_OUTPUT,
    Killed,
    Output,
    command,
    counted,
    files_digest,
    located,
    make_wide_tokenizer,
    many_counts,
    open_many,
    ran,
    short_hash,
    take,
    texts_of,
    write_many,
    written,
)
from golden_folder import HERE, read_json, set_times, state_of_files
from transformers import AutoTokenizer

import tdstream

ROOT = HERE.parents[1]
FOLDERS = [folder.name for folder in sorted(HERE.glob("v*"))]
pytestmark = pytest.mark.parametrize("folder", FOLDERS)


def load(folder: str, name: str) -> Any:
    """Return what a golden file says."""
    return read_json(HERE / folder / name)


@pytest.fixture
def place(folder: str, golden_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a new working directory with the texts and the tokenizer of a golden folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("texts", TOKENIZER):
        shutil.copytree(golden_copy / folder / name, name)
    set_times(tmp_path)
    return tmp_path


def tokens_of(texts: list[str]) -> np.ndarray:
    """Return the tokens of a corpus by the rule: each text, then end-of-text."""
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    ids = [
        tokenizer(text, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id] for text in texts
    ]
    return np.array([token for part in ids for token in part], "<u2")


def stored_tokens(directory: Path) -> np.ndarray:
    """Return the tokens of all shards."""
    return np.frombuffer(b"".join(path.read_bytes() for path in sorted(directory.glob("*.bin"))), "<u2")


# Preparing.


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: output.name)
def test_prepared_bytes(output: Output, folder: str, place: Path) -> None:
    """Every file of a corpus is the same, and so is what meta.json says, times aside."""
    for words in output.commands:
        ran(*words)
    assert written(Path("out")) == load(folder, f"outputs/{output.name}.json")


def test_prepared_bytes_of_a_large_vocabulary(folder: str, place: Path) -> None:
    """Ids above 65,535 are stored in 32 bits."""
    make_wide_tokenizer()
    ran(*WIDE_OUTPUT)
    assert written(Path("out")) == load(folder, "outputs/wide.json")
    assert np.fromfile("out/chunk_000000.bin", "<u4").max() > 65_535


def test_prepared_bytes_by_the_rule(folder: str, place: Path) -> None:
    """Texts one after another, an end-of-text token behind each; and one corpus by both commands."""
    script = str(ROOT / "prepare/fineweb_edu.py")
    words = next(output for output in OUTPUTS if output.name == "jsonl").commands[0][1:]
    subprocess.run([sys.executable, script, *words], check=True, capture_output=True)
    assert written(Path("out")) == load(folder, "outputs/jsonl.json")
    assert (stored_tokens(Path("out")) == tokens_of(texts_of("a"))).all()
    meta = json.loads(Path("out/meta.json").read_text())
    assert meta["made_from"]["files"] == short_hash(files_digest(["texts/a.jsonl"]))


@pytest.mark.parametrize("killed", KILLED, ids=lambda killed: killed.name)
def test_a_killed_preparation_goes_on(killed: Killed, folder: str, place: Path) -> None:
    """What an earlier version left behind when it was killed goes on to the bytes of a whole run."""
    shutil.copytree(HERE / folder / "killed" / killed.name / "out", "out")
    if killed.in_the_move:
        assert not Path("out/meta.json").exists()
        _moved_meta(Path("out/.preparing"), killed.inputs)
    identities = [_moved(path, killed.inputs) for path in sorted(Path("out").rglob("journal.jsonl"))]
    for words in killed.resumed():
        ran(*words)
    assert written(Path("out")) == load(folder, f"killed/{killed.name}/expected.json")
    assert not Path("out/.preparing").exists()
    meta = json.loads(Path("out/meta.json").read_text())
    if killed.name == "append":
        source = {name: value for name, value in identities[0].items() if name != "append"}
        assert meta["appended"][0]["source"] == short_hash(source)
    else:
        assert meta["made_from"]["files"] == short_hash(files_digest(killed.inputs))
    rule = {"one": ["a"], "gz": ["c"], "tasks": ["a"], "append": ["b", "a"], "overwrite": ["a"]}
    if killed.name in rule:
        texts = [text for name in rule[killed.name] for text in texts_of(name)]
        assert (stored_tokens(Path("out")) == tokens_of(texts)).all()


def _moved(journal: Path, inputs: list[str]) -> dict[str, Any]:
    """Let a journal tell of the same input files where they lie now; return the identity in it.

    It knows them by their absolute paths, sizes and times of change, of which it has a hash.
    """
    header, _, rest = journal.read_bytes().partition(b"\n")
    content = json.loads(header)
    for part in (content["identity"], content["plan"].get("made_from", {})):
        if "files" in part:
            digest = files_digest(inputs)
            part["files"] = digest if isinstance(part["files"], dict) else short_hash(digest)
    journal.write_bytes(json.dumps(content, separators=(",", ":")).encode() + b"\n" + rest)
    return dict(content["identity"])


def test_a_killed_preparation_of_a_list_goes_on(folder: str, place: Path) -> None:
    """The same from Python; a list is known by its content, so the journal is used as it is."""
    shutil.copytree(HERE / folder / "killed/list/out", "out")
    before = state_of_files(Path("out/.preparing"))
    before.pop("lock")  # which names the process that held it last
    with pytest.raises(tdstream.OutputError):
        tdstream.prepare(texts_of("a"), TOKENIZER, "out", **KILLED_LIST)
    with pytest.raises(tdstream.TdstreamError):
        tdstream.prepare(texts_of("b"), TOKENIZER, "out", resume=True, **KILLED_LIST)
    after = state_of_files(Path("out/.preparing"))
    assert {name: after.get(name) for name in before} == before
    result = tdstream.prepare(texts_of("a"), TOKENIZER, "out", resume=True, **KILLED_LIST)
    assert result.counts.documents == len(texts_of("a"))
    assert written(Path("out")) == load(folder, "killed/list/expected.json")
    assert (stored_tokens(Path("out")) == tokens_of(texts_of("a"))).all()


@pytest.mark.parametrize("killed", [KILLED[0]], ids=["one"])
def test_a_killed_preparation_of_other_files_is_refused(killed: Killed, folder: str, place: Path) -> None:
    """A journal whose input files have changed is not gone on with; nothing of it is changed."""
    shutil.copytree(HERE / folder / "killed" / killed.name / "out", "out")
    before = state_of_files(Path("out"))
    assert command(*killed.killed[0])[0] == 1  # without --resume
    assert command(*killed.resumed()[0])[0] == 1  # the golden files lay elsewhere
    after = state_of_files(Path("out"))
    kept = [name for name in before if not name.endswith("lock")]
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}


def test_corpora_of_earlier_versions_are_whole(
    folder: str, golden_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`verify` finds no fault in any of them, and documents are not appended twice."""
    monkeypatch.chdir(golden_copy / folder)
    for corpus in sorted(Path("corpora").iterdir()):
        flags = []
        if not (corpus / "meta.json").exists():
            flags = ["--dtype", "uint32" if "32" in corpus.name else "uint16"]
        elif corpus.name in ("legacy", "legacy_uint32"):
            flags = ["--fast"]  # their tokens are places, and the last one is no end of text
        report = json.loads(ran("verify", str(corpus), "--json", *flags))
        assert report["faults"] == [], (corpus, report)


def _moved_meta(corpus: Path, inputs: list[str]) -> None:
    """Let meta.json tell of the same input files where they lie now."""
    path = corpus / "meta.json"
    meta = json.loads(path.read_text())
    meta["made_from"]["files"] = short_hash(files_digest(inputs))
    path.write_text(json.dumps(meta))


def test_the_same_documents_are_known(folder: str, place: Path) -> None:
    """A corpus of an earlier version knows what it was made from: nothing is prepared or appended twice."""
    shutil.copytree(HERE / folder / "corpora/indexed", "out")
    _moved_meta(Path("out"), ["texts/a.jsonl"])
    before = state_of_files(Path("out"))
    words = ["prepare", "--dataset", "texts/a.jsonl", "--tokenizer", TOKENIZER, "--output_path", "out"]
    words += ["--encoder", "hf", "--tokens_per_chunk", "900"]
    for flags, expected in (
        (["--resume"], 0),
        (["--append", "--resume"], 0),
        (["--append"], 1),
        ([], 1),
        (["--resume", "--strip"], 1),
        (["--resume", "--max_samples", "5"], 1),
    ):
        code, _, err = command(*words, *flags)
        assert code == expected, (flags, err)
        after = state_of_files(Path("out"))
        assert {name: after.get(name) for name in before} == before, flags


@pytest.mark.parametrize("corpus", ["indexed", "unindexed", "legacy_text", "appended", "merged"])
def test_append_to_corpora_of_earlier_versions(corpus: str, folder: str, place: Path) -> None:
    """New documents stand behind the old ones, whose shards stay as they are."""
    ignore = shutil.ignore_patterns(".tdstream")  # made from the corpus as it was
    shutil.copytree(HERE / folder / "corpora" / corpus, "out", ignore=ignore)
    set_times(Path("out"))
    before, tokens = written(Path("out")), stored_tokens(Path("out"))
    size = str(before["meta.json"]["tokens_per_chunk"])
    words = ["prepare", "--append", "--dataset", "texts/c.jsonl", "--tokenizer", TOKENIZER]
    ran(*words, "--output_path", "out", "--encoder", "hf", "--tokens_per_chunk", size)
    after = written(Path("out"))
    old, new = before.pop("meta.json"), after["meta.json"]
    assert {name: after[name] for name in before} == before
    assert new["chunks"][: len(old["chunks"])] == old["chunks"]
    expected = np.concatenate([tokens, tokens_of(texts_of("c"))])
    assert (stored_tokens(Path("out")) == expected).all()
    assert new["total_tokens"] == len(expected)
    assert ("doc_index" in new) == ("doc_index" in old)


# Files beside corpora, and in caches.


def test_a_plan_in_the_users_cache_is_read(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be kept beside a corpus is found in the user's cache, and used as it is."""
    corpus = tmp_path / "corpus"
    ignore = shutil.ignore_patterns(".tdstream")
    shutil.copytree(HERE / folder / "corpora/unindexed", corpus, ignore=ignore)
    (corpus / ".tdstream").write_text("")
    own = hashlib.sha256(str(corpus).encode()).hexdigest()[:16]
    shutil.copytree(HERE / folder / "user_cache", tmp_path / "xdg/tdstream/corpora" / own)
    set_times(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    before = state_of_files(tmp_path)
    loader = tdstream.loader(corpus, **BY_NAME["pack"].arguments())
    assert take(loader) == load(folder, "elsewhere.json")["then"]
    assert state_of_files(tmp_path) == before


def test_counts_of_very_many_documents_are_read(folder: str, tmp_path: Path) -> None:
    """The windows of cut="document" are not counted again."""
    stored, corpus = load(folder, "many.json"), tmp_path / "many"
    write_many(corpus)
    (corpus / ".tdstream").mkdir()
    kept = corpus / ".tdstream" / stored["file"]
    kept.write_bytes(many_counts())
    assert hashlib.sha256(kept.read_bytes()).hexdigest() == stored["sha256"]
    before = state_of_files(corpus)
    loader = open_many(corpus)
    assert len(loader) == stored["length"]
    assert take(loader) == stored["then"]
    assert state_of_files(corpus) == before
    shutil.rmtree(corpus)


def test_counts_of_text_are_recalled(folder: str, golden_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `tdstream.count` has kept is the answer, without counting again."""
    monkeypatch.chdir(golden_copy / folder)
    before = state_of_files(Path("counts"))
    assert [counted(options) for options in COUNTS] == load(folder, "counts.json")
    assert state_of_files(Path("counts")) == before


# Checkpoints.


@pytest.mark.parametrize("checkpoint", CHECKPOINTS, ids=lambda checkpoint: checkpoint.name)
def test_checkpoints(
    checkpoint: Any, folder: str, golden_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tdstream state` finds the state in a file, `locate` its steps, and a loader goes on with it."""
    monkeypatch.chdir(golden_copy / folder)
    path = f"checkpoints/{checkpoint.name}"
    stored = load(folder, f"{path}.expected.json")
    assert json.loads(ran("state", path, "--json")) == stored["state"]
    assert ran("state", path)
    loader = BY_NAME[checkpoint.case].loader()
    loader.load_state_dict(stored["state"])
    assert take(loader) == stored["then"]
    for words, expected in zip(checkpoint.locate, stored["located"], strict=True):
        assert located(path, *words) == expected
    if path.endswith(".pt"):
        content = torch.load(path, weights_only=True)
        assert tdstream.position_of(content) == stored["state"]
