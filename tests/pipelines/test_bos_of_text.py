"""BOS before each document of text in memory, in a cache and in a live stream."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from helpers_stream import BATCH_SIZE, SEQ_LEN, ids_of_text, some_texts, word_ids
from transformers import AutoTokenizer

import tdstream
from helpers_text import numbers_tokenizer
from tdstream.core.errors import ConfigError, StateError, TokenizerError

TEXTS = list(some_texts(80, seed=4))
BOS, EOS = 2999, 0
DOCUMENTS = [[BOS, *ids_of_text(text), EOS] for text in TEXTS]
STREAM = [token for document in DOCUMENTS for token in document]
KINDS = ("memory", "cache", "stream", "corpus")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Return a tokenizer of whole words whose BOS token is the word "w2999"."""
    loaded = AutoTokenizer.from_pretrained(numbers_tokenizer(tmp_path_factory.mktemp("bos"), word_ids()))
    loaded.bos_token = f"w{BOS}"
    return loaded


def made(kind, tokenizer, tmp_path, make=tdstream.build, *, prepend_bos=True, **options):
    """Return the dataset of the texts, as one kind of source."""
    options = {"seq_len": SEQ_LEN, "batch_size": BATCH_SIZE} | options
    if kind == "corpus":
        tdstream.prepare(TEXTS, tokenizer, tmp_path / "corpus", prepend_bos=prepend_bos, resume=True)
        return make(tmp_path / "corpus", **options)
    source = (lambda: iter(TEXTS)) if kind == "stream" else TEXTS
    options |= {"cache_dir": tmp_path / "cache"} if kind == "cache" else {"kind": kind}
    return make(source, tokenizer=tokenizer, prepend_bos=prepend_bos, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_joined_documents(tokenizer, tmp_path, kind):
    """Samples are cut from BOS, ids and end-of-text of all documents; without it, from the others."""
    for on, stream in ((True, STREAM), (False, [token for token in STREAM if token != BOS])):
        rows = [
            row.tolist()
            for batch in made(kind, tokenizer, tmp_path / str(on), prepend_bos=on)
            for row in batch["input_ids"]
        ]
        width = SEQ_LEN + 1
        expected = [stream[at : at + SEQ_LEN] for at in range(0, len(stream) - width + 1, width)]
        assert rows == expected[: len(expected) // BATCH_SIZE * BATCH_SIZE]


@pytest.mark.parametrize("kind", KINDS)
def test_single_documents(tokenizer, tmp_path, kind):
    """With cut="document" every document, an empty one too, has a first window that begins with BOS."""
    data = made(kind, tokenizer, tmp_path, cut="document", min_tail_len=1, batch_size=1)
    rows = [
        row[mask.bool()].tolist()
        for batch in data
        for row, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)
    ]
    expected = []
    for document in DOCUMENTS:
        # A window's inputs; the last token is only a label where the window ends its document.
        full, rest = divmod(len(document), SEQ_LEN)
        expected += [document[at * SEQ_LEN : (at + 1) * SEQ_LEN] for at in range(full)]
        expected += [document[full * SEQ_LEN :]] if rest else []
    assert rows == expected


@pytest.mark.parametrize("kind", ["memory", "cache", "corpus"])
def test_packed_and_marked(tokenizer, tmp_path, kind):
    """Packed rows hold whole documents with their BOS, and positions begin again at it."""
    for options in ({"cut": "pack"}, {"documents": True}):
        seen = 0
        for batch in made(kind, tokenizer, tmp_path, seq_len=64, batch_size=1, **options):
            ids, positions = batch["input_ids"], batch["position_ids"]
            begins = ids == BOS
            assert torch.equal(positions[begins], torch.zeros_like(positions[begins]))
            seen += int(begins.sum())
        assert seen > 60


@pytest.mark.parametrize("kind", ["memory", "stream"])
def test_states(tokenizer, tmp_path, kind):
    """A state resumes with the same setting alone; without BOS it is the state of earlier versions."""
    states = {}
    for on in (True, False):
        loader = made(kind, tokenizer, tmp_path, tdstream.loader, prepend_bos=on)
        batches = iter(loader)
        next(batches)
        states[on] = loader.state_dict()
        expected = [batch["input_ids"].tolist() for batch in batches]
        again = made(kind, tokenizer, tmp_path, tdstream.loader, prepend_bos=on)
        again.load_state_dict(json.loads(json.dumps(states[on])))
        assert [batch["input_ids"].tolist() for batch in again] == expected
    assert "bos_token_id" not in json.dumps(states[False])
    for on in (True, False):
        with pytest.raises(StateError, match="bos_token_id was"):
            made(kind, tokenizer, tmp_path, tdstream.loader, prepend_bos=on).load_state_dict(states[not on])


def test_caches_are_apart(tokenizer, tmp_path):
    """A cache holds one corpus with BOS and one without."""
    for on in (True, False, True):
        made("cache", tokenizer, tmp_path, prepend_bos=on)
    corpora = [path for path in (tmp_path / "cache").iterdir() if (path / "meta.json").exists()]
    found = [json.loads((path / "meta.json").read_text()).get("bos_token_id") for path in corpora]
    assert sorted(found, key=str) == [BOS, None]


def test_the_counted_length_of_a_stream(tokenizer, tmp_path):
    """`tdstream.count` with BOS is the length of the stream with BOS, not of the other."""
    source = lambda: iter(TEXTS)  # noqa: E731
    source.text_version = "1"
    options = {"seq_len": SEQ_LEN, "batch_size": BATCH_SIZE}
    found = tdstream.count(source, tokenizer, prepend_bos=True, progress=False, **options)
    stream = tdstream.loader(source, tokenizer=tokenizer, prepend_bos=True, **options)
    assert stream.total_hint().total == found.batches == len(list(stream))
    other = tdstream.loader(source, tokenizer=tokenizer, **options)
    assert other.total_hint() is None or other.total_hint().kind != "counted"


@pytest.mark.parametrize("kind", ["memory", "cache", "stream"])
def test_a_tokenizer_without_one(tokenizer_dir, tmp_path, kind):
    """It is refused before anything is tokenized or written."""
    with pytest.raises(TokenizerError, match="has no BOS token"):
        made(kind, Path(tokenizer_dir), tmp_path)
    assert not (tmp_path / "cache").exists()


def test_token_sources(tokenizer, tmp_path):
    """What holds tokens already is refused: a corpus, and a mixture."""
    made("corpus", tokenizer, tmp_path)
    for source in (tmp_path / "corpus", {"a": (tmp_path / "corpus", 1.0)}):
        with pytest.raises(ConfigError, match="holds tokens already"):
            tdstream.build(source, seq_len=SEQ_LEN, prepend_bos=True)
