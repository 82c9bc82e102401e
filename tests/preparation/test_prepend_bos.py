"""Documents that begin with the tokenizer's BOS token, by the Hugging Face tokenizer's own ids."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers_points import Killed, killed_at
from tokenizers import processors
from transformers import AutoTokenizer

import tdstream
from helpers_text import EOS, corpus_bytes, write_jsonl
from tdstream.cli.main import main
from tdstream.core.errors import ConfigError, OutputError, TokenizerError
from tdstream.verification.verify import verify_corpus

BOS = "<|begin_of_text|>"
TEXTS = [
    "def load(fp):",
    "",
    "a" * 50,
    f"the end {EOS} inside",
    f"{BOS} begins",
    " x",
    "",
    "naïve \U0001f600",
] * 5


@pytest.fixture(scope="module")
def bos_tokenizer(tokenizer_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tokenizer that, like Llama 3's, begins a text with BOS where special tokens are asked for."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
    tokenizer.add_special_tokens({"bos_token": BOS})
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.bos_token_id)]
    )
    path = tmp_path_factory.mktemp("bos")
    tokenizer.save_pretrained(path)
    return path


def documents_of(tokenizer_dir: Path, texts: list[str], *, bos: bool = True) -> list[list[int]]:
    """Return the ids of each document: BOS, the text's without special tokens, end-of-text."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
    begin = [tokenizer.bos_token_id] if bos else []
    return [
        [*begin, *tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        for text in texts
    ]


def ends_of(directory: Path) -> list[int]:
    """Return where the documents of a corpus end, by its index."""
    sizes = np.array([path.stat().st_size // 2 for path in sorted(directory.glob("*.bin"))])
    begins = np.cumsum(sizes) - sizes
    ends = [
        np.fromfile(path, "<i8") + begin
        for path, begin in zip(sorted(directory.glob("*.ends")), begins, strict=True)
    ]
    return np.concatenate(ends).tolist()


def stored(directory: Path, documents: list[list[int]]) -> None:
    """Assert that a corpus holds these documents, and that its index says where they end."""
    assert corpus_bytes(directory) == np.concatenate(documents).astype("<u2").tobytes()
    assert ends_of(directory) == np.cumsum([len(ids) for ids in documents]).tolist()


Prepare = Callable[..., Any]


@pytest.fixture
def prepare(tmp_path: Path, bos_tokenizer: Path) -> Prepare:
    """Return a function that prepares texts in shards of 60 tokens."""

    def run(texts: list[str] = TEXTS, output: str = "out", **options: Any) -> Any:
        options = {"prepend_bos": True, "tokens_per_chunk": 60, "batch_size": 7, "name": "texts"} | options
        return tdstream.prepare(texts, bos_tokenizer, tmp_path / output, **options)

    return run


@pytest.mark.parametrize("options", [{}, {"num_proc": 2}, {"encoder": "hf"}])
def test_every_document_begins_with_it(
    prepare: Prepare, bos_tokenizer: Path, options: dict[str, Any]
) -> None:
    """Each document is BOS, its ids and end-of-text, an empty one too, with any encoder and processes."""
    result, documents = prepare(**options), documents_of(bos_tokenizer, TEXTS)
    stored(result.output_path, documents)
    assert result.counts.tokens == sum(map(len, documents))
    assert (result.counts.documents, result.counts.empty) == (40, 10)
    assert result.counts.with_eos == 5
    meta = json.loads((result.output_path / "meta.json").read_text())
    assert meta["bos_token_id"] == AutoTokenizer.from_pretrained(bos_tokenizer).bos_token_id


def test_off(prepare: Prepare, bos_tokenizer: Path) -> None:
    """By default documents begin with their text, and meta.json does not have the key."""
    path = prepare(prepend_bos=False).output_path
    stored(path, documents_of(bos_tokenizer, TEXTS, bos=False))
    assert "bos_token_id" not in json.loads((path / "meta.json").read_text())


def test_held_out(prepare: Prepare, bos_tokenizer: Path) -> None:
    """Documents that are held out begin with it too."""
    path = prepare(val_fraction=0.3).output_path
    found: list[list[int]] = []
    for part in (path, path / "val"):
        ids = np.frombuffer(corpus_bytes(part), "<u2")
        found += [document.tolist() for document in np.split(ids, ends_of(part)[:-1])]
        assert verify_corpus(part).ok
    assert sorted(found) == sorted(documents_of(bos_tokenizer, TEXTS))


def test_a_killed_preparation_resumes(
    prepare: Prepare, bos_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was stopped inside a document resumes to the same bytes, and only with the same setting."""
    with killed_at(40, monkeypatch), pytest.raises(Killed):
        prepare()
    with pytest.raises(ConfigError, match=r"bos_token_id was \d+, is None"):
        prepare(prepend_bos=False, resume=True)
    stored(prepare(resume=True).output_path, documents_of(bos_tokenizer, TEXTS))


@pytest.mark.parametrize("first", [True, False])
def test_corpora_do_not_mix(prepare: Prepare, bos_tokenizer: Path, first: bool) -> None:
    """Appending needs the setting of the corpus, as does resuming a complete one; meta.json keeps the key."""
    path = prepare(TEXTS[:20], prepend_bos=first).output_path
    for options in ({"append": True}, {"resume": True}):
        with pytest.raises((ConfigError, OutputError), match="bos_token_id was"):
            prepare(TEXTS[20:], prepend_bos=not first, name="more", **options)
    prepare(TEXTS[20:], prepend_bos=first, name="more", append=True)
    stored(path, documents_of(bos_tokenizer, TEXTS, bos=first))
    assert ("bos_token_id" in json.loads((path / "meta.json").read_text())) == first
    assert verify_corpus(path).ok


def test_tasks(prepare: Prepare, bos_tokenizer: Path, tmp_path: Path) -> None:
    """Tasks merge to the documents of one process; a task without BOS is not merged."""
    prepare(task=0, num_tasks=2)
    prepare(task=1, num_tasks=2, prepend_bos=False)
    assert main(["merge", str(tmp_path / "out")]) == 1
    prepare(task=1, num_tasks=2, overwrite=True)
    assert main(["merge", str(tmp_path / "out")]) == 0
    stored(tmp_path / "out", documents_of(bos_tokenizer, TEXTS))
    assert "bos_token_id" in json.loads((tmp_path / "out" / "meta.json").read_text())


def test_tokenizers_that_cannot(tokenizer_dir: Path, bos_tokenizer: Path, tmp_path: Path) -> None:
    """A tokenizer without a BOS token, or that adds it to every text itself, is refused at once."""
    without = AutoTokenizer.from_pretrained(tokenizer_dir)
    with pytest.raises(TokenizerError, match=r"has no BOS token \(bos_token\).*leave prepend_bos out"):
        tdstream.prepare(TEXTS, without, tmp_path / "out", prepend_bos=True)
    with pytest.raises(TokenizerError, match=r"has no BOS token"):
        tdstream.count(TEXTS, without, prepend_bos=True)
    assert not (tmp_path / "out").exists()

    class Adds(type(without)):  # type: ignore[misc]
        """Begins each text with BOS, whatever it is asked for."""

        def __call__(self, text: list[str], **_: Any) -> Any:
            plain = super().__call__(text, add_special_tokens=False)["input_ids"]
            return {"input_ids": [[self.bos_token_id, *ids] for ids in plain]}

    adds = Adds.from_pretrained(bos_tokenizer)
    with pytest.raises(TokenizerError, match=r"begins every text with .*by itself"):
        tdstream.prepare(TEXTS, adds, tmp_path / "out", prepend_bos=True)
    assert not (tmp_path / "out").exists()


def test_one_token_for_both(tokenizer_dir: Path, tmp_path: Path) -> None:
    """GPT-2 has one token for both: only an index can tell where documents end, and it does."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
    tokenizer.bos_token = EOS
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    with pytest.raises(ConfigError, match=r"one token, .<\|endoftext\|>., for the beginning and the end"):
        tdstream.prepare(TEXTS, tokenizer, tmp_path / "out", prepend_bos=True, doc_index=False)
    tdstream.prepare(TEXTS, tokenizer, tmp_path / "out", prepend_bos=True, tokens_per_chunk=60)
    stored(tmp_path / "out", documents_of(tmp_path / "tokenizer", TEXTS))
    assert verify_corpus(tmp_path / "out", tokenizer=tokenizer).ok


def test_count(prepare: Prepare, bos_tokenizer: Path, tmp_path: Path) -> None:
    """A count is of what a preparation writes; counts with and without BOS are kept apart."""
    named = {"cache_dir": tmp_path / "counts", "progress": False}
    for bos in (True, False, True, False):
        documents = documents_of(bos_tokenizer, TEXTS, bos=bos)
        found = tdstream.count(TEXTS, bos_tokenizer, seq_len=8, prepend_bos=bos, **named)
        assert found.tokens == prepare(output=f"out{bos}", prepend_bos=bos, resume=True).counts.tokens
        assert (found.documents, found.tokens) == (40, sum(map(len, documents)))
        assert found.samples == (found.tokens - 9) // 9 + 1
    assert len(list((tmp_path / "counts").iterdir())) == 2


def test_verify(prepare: Prepare, bos_tokenizer: Path) -> None:
    """`verify` checks the round trip of texts, and finds each document that begins with another token."""
    path = prepare().output_path
    tokenizer = AutoTokenizer.from_pretrained(bos_tokenizer)
    report = verify_corpus(path, tokenizer=tokenizer, samples=40)
    assert report.ok, report.faults
    assert f"every document begins with the BOS token, {tokenizer.bos_token_id}" in report.checked
    assert "40 of 40 sample documents decode and encode to the same ids" in report.checked

    meta = json.loads((path / "meta.json").read_text())
    begins = np.cumsum([0, *map(len, documents_of(bos_tokenizer, TEXTS)[:-1])])
    sizes = [chunk["tokens"] for chunk in meta["chunks"]]
    places = [(int(np.searchsorted(np.cumsum(sizes), begin, side="right")), int(begin)) for begin in begins]
    crossing = next(number for number in range(1, len(sizes)) if (number, sum(sizes[:number])) not in places)
    for shard, place in [places[0], places[7], places[-1]]:
        file, row = path / meta["chunks"][shard]["file"], place - sum(sizes[:shard])
        ids = np.fromfile(file, "<u2")
        kept = ids.copy()
        ids[row] = 40
        ids.tofile(file)
        (path / "meta.json").write_text(json.dumps({**meta, "chunk_checksums": {}}))
        faults = [str(fault) for fault in verify_corpus(path).faults]
        assert len(faults) == 1
        assert "documents do not begin with the BOS token: 1;" in faults[0]
        assert f"token {row:,} of {file.name}" in faults[0]
        kept.tofile(file)
    assert crossing  # a shard that begins inside a document is no fault


def test_verify_without_an_index(prepare: Prepare, bos_tokenizer: Path) -> None:
    """Without an index, `verify` says that it cannot look."""
    report = verify_corpus(prepare(doc_index=False).output_path)
    assert report.ok
    assert "whether every document begins with the BOS token: there is no index" in str(report.unchecked)


def test_commands(bos_tokenizer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`prepare --prepend_bos` writes it, `--dry_run` and `inspect` show it."""
    write_jsonl(tmp_path / "in.jsonl", [{"text": text} for text in TEXTS])
    out, bos = tmp_path / "out", AutoTokenizer.from_pretrained(bos_tokenizer).bos_token_id
    command = ["prepare", "--dataset", str(tmp_path / "in.jsonl"), "--tokenizer", str(bos_tokenizer)]
    command += ["--prepend_bos", "--output_path", str(out)]
    assert main([*command, "--dry_run"]) == 0
    assert f"'{BOS}' ({bos}) begins and '{EOS}' (0) ends each document" in capsys.readouterr().err
    assert main(command) == 0
    stored(out, documents_of(bos_tokenizer, TEXTS))
    assert main(["inspect", str(out)]) == 0
    assert f"bos        {bos}, before each document" in capsys.readouterr().out
    assert main(["inspect", "--json", str(out)]) == 0
    assert json.loads(capsys.readouterr().out)["bos_token_id"] == bos
