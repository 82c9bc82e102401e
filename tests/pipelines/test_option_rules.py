"""Every option of build, for every kind of source: it applies, or a line says that it does not."""

from __future__ import annotations

import inspect
import logging

import pytest
from helpers_stream import BATCH_SIZE, SEQ_LEN, some_texts
from transformers import AutoTokenizer

import tdstream
from tdstream.core.errors import ConfigError
from tdstream.pipelines import source_kind
from tdstream.pipelines.source_kind import OPTION_RULES

TEXTS = some_texts(60)
KINDS = ("corpus", "memory", "cache", "stream", "mixture")
TEXT, INDEXED = {"memory", "cache", "stream"}, set(KINDS) - {"stream"}

# What each option is for, by what `build` says of it: option -> (a value, the kinds it applies to).
IGNORED = {
    "tokenizer": ("somewhere/else", TEXT),
    "text_field": ("body", TEXT),
    "encoder": ("hf", TEXT),
    "cache_dir": ("elsewhere", {"cache"}),
    "num_proc": (2, {"cache"}),
    "shuffle_buffer": (7, {"stream"}),
    "order": ("numpy", INDEXED),
    "block_samples": (3, INDEXED),
    "dtype": ("uint16", {"corpus", "mixture"}),
}
REFUSED = {
    "shuffle": ("block", INDEXED, "must be True or False for a live stream"),
    "cut": ("pack", INDEXED, r'cut="pack".*cache_dir='),
    "documents": (True, INDEXED, r"documents=True.*cache_dir="),
    "samples": (slice(0, 8), INDEXED, r"samples=.*cache_dir="),
    "tail": ("wrap", INDEXED, 'takes only tail="drop"'),
    "source_id": (True, {"mixture"}, "numbers the sources of a mixture"),
    "prepend_bos": (True, TEXT, "this source holds tokens already. Prepare its text again"),
}
EVERYWHERE = {
    "source", "kind", "seq_len", "batch_size", "seed", "stride", "min_tail_len", "cross_document_labels",
    "cu_seqlens_capacity", "labels", "strict", "dp_rank", "dp_world_size",
}  # fmt: skip
WRONG = {
    "text_field": "a,,b",
    "encoder": "fastest",
    "num_proc": 0,
    "shuffle_buffer": -5,
    "order": "random",
    "block_samples": 0,
    "dtype": "float32",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, tokenizer_dir):
    """Return the texts as a corpus."""
    path = tmp_path_factory.mktemp("rules") / "corpus"
    tdstream.prepare(list(TEXTS), tokenizer_dir, path)
    return path


@pytest.fixture(autouse=True)
def said(monkeypatch):
    """Let nothing have been said yet."""
    monkeypatch.setattr(source_kind, "_logged", set())


def built(kind, corpus, tokenizer_dir, make=tdstream.build, **options):
    """Return the dataset of the texts, taken for a kind."""
    how = {"seq_len": SEQ_LEN, "batch_size": BATCH_SIZE}
    if kind in TEXT:
        # The text stands in both fields that the tests name.
        source = [{"text": text, "body": text} for text in TEXTS]
        how |= {"tokenizer": tokenizer_dir, "kind": kind}
        options |= {"cache_dir": corpus.parent / "cache"} if kind == "cache" else {}
        options |= {"tokenizer": tokenizer_dir} if "tokenizer" in options else {}
        if options.get("prepend_bos"):
            how["tokenizer"] = AutoTokenizer.from_pretrained(tokenizer_dir, bos_token="w7")  # noqa: S106
    else:
        source = corpus if kind == "corpus" else {"a": (corpus, 1.0), "b": (corpus, 1.0)}
    return make(source, **how | options)


def ids(dataset):
    """Return all that comes out in one epoch."""
    return [batch["input_ids"].tolist() for batch in dataset]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("option", IGNORED)
def test_an_option_that_does_not_apply_is_ignored_with_a_line(corpus, tokenizer_dir, caplog, kind, option):
    """One line names it, the batches are those without it; where it applies nothing is said."""
    value, kinds = IGNORED[option]
    if kind == "mixture" and option == "cache_dir":
        with pytest.raises(ConfigError, match="kind and cache_dir are for one of text"):
            built(kind, corpus, tokenizer_dir, cache_dir=value)
        return
    with caplog.at_level(logging.WARNING, "tdstream.pipelines.source_kind"):
        found = built(kind, corpus, tokenizer_dir, **{option: value})
        built(kind, corpus, tokenizer_dir, **{option: value})
    lines = [line.getMessage() for line in caplog.records if line.name == "tdstream.pipelines.source_kind"]
    assert len(lines) == (kind not in kinds)
    if lines:
        assert f"ignored: {option}= is for" in lines[0]
        words = {other: f'kind="{other}"' for other in KINDS} | {"mixture": "a mixture of corpora"}
        assert all(
            (words[other] in lines[0].partition("ignored: ")[2]) == (other in kinds) for other in KINDS
        )
        assert ids(found) == ids(built(kind, corpus, tokenizer_dir))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("option", REFUSED)
def test_what_would_change_the_batches_is_refused(corpus, tokenizer_dir, caplog, kind, option):
    """With the reason; where it applies it is followed."""
    value, kinds, message = REFUSED[option]
    if kind in kinds:
        built(kind, corpus, tokenizer_dir, **{option: value})
    else:
        with pytest.raises(ConfigError, match=message):
            built(kind, corpus, tokenizer_dir, **{option: value})
    assert "ignored" not in caplog.text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("option", WRONG)
def test_a_wrong_value_is_wrong_for_every_kind(corpus, tokenizer_dir, kind, option):
    """Also where the option does not apply."""
    with pytest.raises(ConfigError, match=option):
        built(kind, corpus, tokenizer_dir, **{option: WRONG[option]})


@pytest.mark.parametrize("given", ["text", "corpus"])
def test_an_empty_cache_dir_names_no_directory(corpus, tokenizer_dir, given):
    """It would be the current one; also where a corpus needs none."""
    with pytest.raises(ConfigError, match="cache_dir must name a directory, got ''"):
        tdstream.build(["a"] if given == "text" else corpus, tokenizer=tokenizer_dir, cache_dir="")


@pytest.mark.parametrize("kind", sorted(TEXT))
@pytest.mark.parametrize(
    "option", [{"cross_document_labels": True}, {"cu_seqlens_capacity": 9}, {"min_tail_len": 3}]
)
def test_options_of_options_are_refused_without_them(corpus, tokenizer_dir, kind, option):
    """Labels and borders of documents without documents, tails of documents without their cut."""
    with pytest.raises(ConfigError, match=next(iter(option))):
        built(kind, corpus, tokenizer_dir, **option)


def test_batches_that_lie_ready_on_a_device_are_for_indexed_sources(corpus, tokenizer_dir, caplog):
    """The loader's own option: prefetch= over a live stream."""
    for kind in KINDS:
        caplog.clear()
        built(kind, corpus, tokenizer_dir, tdstream.loader, prefetch=3)
        assert ("ignored: prefetch=" in caplog.text) == (kind == "stream")
        with pytest.raises(ConfigError, match="prefetch must be an integer of at least 1"):
            built(kind, corpus, tokenizer_dir, tdstream.loader, prefetch=0)


def test_one_script_for_all_kinds(corpus, tokenizer_dir, caplog):
    """All options that are ignored somewhere, in one call: one line each, and nothing is refused."""
    options = {name: value for name, (value, _) in IGNORED.items() if name != "cache_dir"}
    for kind in KINDS:
        caplog.clear()
        assert ids(built(kind, corpus, tokenizer_dir, **options))
        lines = [line for line in caplog.records if "ignored" in line.getMessage()]
        assert len(lines) == 1
        idle = [name for name in options if kind not in IGNORED[name][1]]
        assert all((f"{name}= is for" in lines[0].getMessage()) == (name in idle) for name in options)


def test_only_rank_0_speaks(corpus, tokenizer_dir, caplog):
    """The others are silent."""
    built("corpus", corpus, tokenizer_dir, num_proc=2, dp_rank=1, dp_world_size=2)
    assert "ignored" not in caplog.text


def test_the_table_has_every_option():
    """With the defaults of build, so that an option that was not given is never spoken of."""
    parameters = inspect.signature(tdstream.build).parameters
    assert set(parameters) - EVERYWHERE == set(OPTION_RULES) - {"prefetch"}
    for name in set(OPTION_RULES) - {"prefetch"}:
        assert OPTION_RULES[name].defaults[0] == parameters[name].default
    prefetch = inspect.signature(tdstream.loader).parameters["prefetch"]
    assert OPTION_RULES["prefetch"].defaults == (prefetch.default,)
