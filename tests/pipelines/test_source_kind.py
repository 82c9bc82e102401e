"""What a source is taken for: by what it is, by what was asked, and never silently."""

from __future__ import annotations

import logging

import datasets
import pytest

import tdstream
from tdstream.core.errors import ConfigError, CorpusNotFoundError, TokenizerError
from tdstream.pipelines import source_kind
from tdstream.pipelines.source_kind import find_kind


def rows():
    """Return a small dataset."""
    return datasets.Dataset.from_dict({"text": ["w2 w3"] * 5})


@pytest.mark.parametrize(
    ("source", "options", "expected"),
    [
        ("some/directory", {}, "corpus"),
        (["a", "b"], {}, "memory"),
        (("a", "b"), {}, "memory"),
        (rows(), {}, "memory"),
        (rows().to_iterable_dataset(), {}, "stream"),
        (lambda: iter(["a"]), {}, "stream"),
        (rows(), {"cache_dir": "somewhere"}, "cache"),
        (lambda: iter(["a"]), {"cache_dir": "somewhere"}, "cache"),
        ("texts.jsonl", {"cache_dir": "somewhere"}, "cache"),
        (["a", "b"], {"kind": "stream"}, "stream"),
        (rows(), {"kind": "stream"}, "stream"),
    ],
)
def test_a_source_is_taken_for_what_it_is(source, options, expected):
    """A directory, a list, datasets, functions; cache_dir and kind= decide otherwise."""
    assert find_kind(source, options.get("kind"), cache_dir=options.get("cache_dir")) == expected


def test_it_is_said_in_one_line(caplog):
    """What a source is taken for, and why."""
    with caplog.at_level(logging.INFO, "tdstream.pipelines.source_kind"):
        find_kind(["a"])
    assert [record.getMessage() for record in caplog.records] == [
        "The source, a list, is treated as text to be tokenized once into memory (a list)."
    ]


def test_a_large_dataset_is_not_taken_into_memory_unasked(monkeypatch):
    """The sentence names the three ways."""
    monkeypatch.setattr(source_kind, "MOST_IN_MEMORY", 10)
    with pytest.raises(ConfigError, match=r'cache_dir=.*kind="memory".*kind="stream"'):
        find_kind(rows())
    assert find_kind(rows(), "memory") == "memory"


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (["a"], {"kind": "disk"}, "kind must be one of corpus, memory, cache, stream, got 'disk'"),
        (["a"], {"kind": "corpus"}, "for a directory with token shards and meta.json, got list"),
        (["a"], {"kind": "cache"}, r"needs cache_dir="),
        ("org/name", {"kind": "stream"}, r"'org/name' is a path or a name.*load_dataset"),
        (lambda: iter(["a"]), {"kind": "memory"}, "needs a list or a datasets.Dataset, got function"),
        (7, {}, "a source is a path, .* got int"),
        (b"text", {}, "a source is a path, .* got bytes"),
        (iter(["a"]), {}, r"a list_iterator, which can be read only once, .*Pass the function"),
        ((text for text in "ab"), {"kind": "stream"}, r"a generator, which can be read only once"),
        (datasets.DatasetDict({"train": rows()}), {}, "DatasetDict with train; pass one of them"),
        ({"web": ["data", 0.7]}, {}, r"a source and its weight are a tuple, not \['data', 0.7\]"),
        (rows().to_pandas(), {}, r"a DataFrame; .*tolist"),
        (rows().to_pandas(), {"cache_dir": "somewhere"}, r"a DataFrame; .*tolist"),
        (rows().to_pandas()["text"][::2], {}, r"a Series; .*tolist"),
        (rows().data.table, {}, r"a Table; .*tolist"),
        ({"a", "b"}, {}, r"a set, .*sorted"),
        ({"a", "b"}, {"cache_dir": "somewhere"}, r"a set, .*sorted"),
        (lambda path: iter([path]), {}, r"<lambda>, needs arguments"),
    ],
)
def test_what_cannot_be_is_refused(source, options, message):
    """With what was found and what is expected."""
    with pytest.raises(ConfigError, match=message):
        find_kind(source, **options)


@pytest.mark.parametrize("source", [datasets.DatasetDict({"train": rows()}), {"text": ["a", "b"]}])
@pytest.mark.parametrize("options", [{}, {"cache_dir": "somewhere"}])
def test_a_dict_of_texts_is_no_mixture(source, options):
    """The sentence speaks of its parts, not of weights."""
    with pytest.raises(ConfigError, match="pass one of them"):
        tdstream.build(source, tokenizer="some/name", **options)


@pytest.mark.parametrize("source", [rows().to_pandas(), {"a", "b"}, lambda path: iter([path])])
def test_neither_is_it_prepared_or_counted(source, tokenizer_dir, tmp_path):
    """A table would give its columns' names as documents."""
    with pytest.raises(ConfigError, match="the source"):
        tdstream.prepare(source, tokenizer_dir, tmp_path / "corpus")
    with pytest.raises(ConfigError, match="the source"):
        tdstream.count(source, tokenizer_dir)


def test_a_name_is_no_corpus():
    """A str that is no directory is refused as a corpus."""
    with pytest.raises(CorpusNotFoundError, match="is not a directory"):
        tdstream.build("org/name")


def test_a_file_of_text_is_no_corpus(tokenizer_dir, tmp_path):
    """The sentence says what to do with it, and does not name it as the place of a corpus."""
    text = tmp_path / "texts.jsonl"
    text.write_text("{}")
    with pytest.raises(CorpusNotFoundError, match=r"is a file.*cache_dir=.*--dataset \S*/texts\.jsonl"):
        tdstream.build(text, tokenizer=tokenizer_dir)


@pytest.mark.parametrize(
    ("tokenizer", "error"), [(None, ConfigError), ("no/where/at/all", TokenizerError), (7, TokenizerError)]
)
def test_text_needs_a_tokenizer(tokenizer, error):
    """None was given, there is none, or it is none."""
    with pytest.raises(error, match=r"[Tt]okenizer"):
        tdstream.build(lambda: iter(["a"]), tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tail": "wrap"}, "takes only tail"),
        ({"shuffle": "block"}, "shuffle must be True or False for a live stream"),
        ({"cut": "words"}, 'cut must be "stream", "document" or'),
        ({"min_tail_len": 3}, "min_tail_len belongs to cut"),
        ({"cut": "document", "stride": 9}, "stride must be 1 to seq_len"),
        ({"stride": 10}, "stride must be 1 to seq_len"),
        ({"source_id": True}, "source_id numbers the sources of a mixture"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1"),
    ],
)
def test_options_that_a_stream_cannot_follow(tokenizer_dir, options, message):
    """Each is refused when the dataset is built."""
    with pytest.raises(ConfigError, match=message):
        tdstream.build(lambda: iter(["a"]), tokenizer=tokenizer_dir, **({"seq_len": 8} | options))
