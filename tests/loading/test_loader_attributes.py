"""What a loader tells of its source and its place."""

from __future__ import annotations

import inspect
import io
import json
import re

import numpy as np
import pytest
from tqdm import tqdm
from transformers import AutoTokenizer

import tdstream
from tdstream.streams.total_hint import TotalHint


@pytest.fixture
def described(make_corpus):
    """Return a corpus whose meta.json names its tokenizer."""
    return describe(make_corpus(40), vocab_size=300, eos_token_id=7)


def describe(corpus, **facts):
    """Change meta.json."""
    path = corpus / "meta.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))
    return corpus


def facts(loader):
    """Return what a loader, and its pipeline, tell of the tokenizer."""
    told = [
        (one.vocab_size, one.eos_token_id, one.tokenizer_name_or_path) for one in (loader, loader.dataset)
    ]
    assert told[0] == told[1]
    return told[0]


def test_of_a_corpus(described, make_corpus):
    """As meta.json says; what it lacks is None."""
    assert facts(tdstream.loader(described, seq_len=3, batch_size=2)) == (300, 7, "gpt2")
    legacy = describe(make_corpus(40), eos_token_id=None, tokenizer_name_or_path="")
    assert facts(tdstream.loader(legacy, seq_len=3, batch_size=2)) == (None, None, "")


def test_of_a_mixture(described, make_corpus):
    """The largest vocabulary; of the others only what all sources share."""
    other = describe(make_corpus(40, name="other"), vocab_size=500, eos_token_id=8)
    options = {"seq_len": 3, "batch_size": 2}
    assert facts(tdstream.loader({"a": (described, 1), "b": (other, 1)}, **options)) == (500, None, "gpt2")
    legacy = describe(make_corpus(40, name="legacy"), tokenizer_name_or_path="other")
    assert facts(tdstream.loader({"a": (described, 1), "b": (legacy, 1)}, **options)) == (None, None, "")


@pytest.mark.parametrize("source", [["one text", "another one"] * 5, lambda: iter(["a text"] * 9)])
def test_of_text(tokenizer_dir, source):
    """Those of the tokenizer, of text in memory and of a live stream; an embedding of that size is enough."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
    loader = tdstream.loader(source, tokenizer=str(tokenizer_dir), seq_len=3, batch_size=1)
    assert facts(loader) == (len(tokenizer), tokenizer.eos_token_id, str(tokenizer_dir))
    assert max(int(batch["input_ids"].max()) for batch in loader) < loader.vocab_size


def test_of_a_token_source_without_them():
    """A source of one's own need not tell."""

    class Tokens:
        name, what, dtype, total_tokens = "source", "tokens", np.dtype(np.uint16), 40

        def open(self):
            return None

        def state_dict(self):
            return {"total_tokens": 40}

        def differences(self, saved):
            return []

        def load_state_dict(self, state):
            pass

    assert facts(tdstream.loader(Tokens(), seq_len=3, batch_size=2)) == (None, None, "")


def test_the_repr_shows_the_place(described):
    """And the nodes, as that of a pipeline does."""
    loader = tdstream.loader(described, seq_len=3, batch_size=2, num_workers=0)
    assert repr(loader).startswith("Loader(epoch 0, batch 0 of 5, step 0, 0 workers: ShardSource(")
    iterator = iter(loader)
    next(iterator)
    assert repr(loader).startswith("Loader(epoch 0, batch 1 of 5, step 1,")
    assert repr(loader).endswith(f"{loader.dataset!r})")


@pytest.mark.parametrize("tail", ["drop", "wrap", "keep"])
def test_counts_around_the_end_of_an_elastic_epoch(make_corpus, tail):
    """23 samples, 8 in batches of 4 and 15 in batches of 3, are 2 + 5 batches; a whole epoch has 7 or 8.

    Place and repr stay in the epoch at its end; the length is that of what the next pass serves.
    """
    corpus = make_corpus(23 * 4)  # samples of 4 tokens
    first = tdstream.loader(corpus, seq_len=3, batch_size=4, tail=tail)
    batches = iter(first)
    next(batches), next(batches)
    loader = tdstream.loader(corpus, seq_len=3, batch_size=3, tail=tail)
    loader.load_state_dict(first.state_dict())
    whole = 7 if tail == "drop" else 8
    for start, total, epoch in ((2, 7, 0), (0, whole, 1), (0, whole, 2)):
        bar = tdstream.progress(loader, disable=False, file=io.StringIO(), mininterval=0)
        plain = tqdm(loader, initial=start, disable=False, file=io.StringIO())
        assert (plain.total, bar.format_dict["total"], loader.total_hint().done) == (total, total, start)
        assert tdstream.steps(loader, epochs=1).per_epoch == total
        for done, _ in enumerate(bar, start + 1):
            assert (loader.epoch, loader.batches_done, len(loader)) == (epoch, done, total)
            assert loader.total_hint() == TotalHint(kind="counted", total=total, done=done)
        assert (bar.n, bar.format_dict["total"], done) == (total, total, total)
        assert (loader.epoch, loader.batches_done) == (epoch, total)
        assert repr(loader).startswith(f"Loader(epoch {epoch}, batch {total} of {total}, step ")
        assert (len(loader), loader.total_hint().done) == (whole, 0)
        assert tdstream.steps(loader, epochs=1).per_epoch == whole


def test_the_repr_of_a_live_stream(tokenizer_dir):
    """It has no length to show."""
    texts = lambda: iter(["some text"] * 20)  # noqa: E731
    loader = tdstream.loader(texts, tokenizer=str(tokenizer_dir), seq_len=3, batch_size=1)
    iterator = iter(loader)
    next(iterator)
    assert re.match(r"StreamLoader\(epoch 0, batch 1, step 1, 0 workers: TextStream\(", repr(loader))


def test_help_shows_every_option():
    """Those of build with their defaults."""
    own = inspect.signature(tdstream.loader).parameters
    for name, parameter in inspect.signature(tdstream.build).parameters.items():
        if name != "batch_size":
            assert own[name] == parameter
    assert own["batch_size"].default is inspect.Parameter.empty
