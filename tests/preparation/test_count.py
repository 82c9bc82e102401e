"""A count is what a preparation writes, and is made once."""

from __future__ import annotations

import json

import pytest
from transformers import AutoTokenizer

import tdstream
from helpers_text import numbers_tokenizer, write_jsonl
from tdstream.core.errors import ConfigError
from tdstream.preparation.count_cache import recall_count
from tdstream.text.options import TextOptions

WORDS = {"<unk>": 0, "<eos>": 1, "a": 2, "b": 3, "c": 4}
TEXTS = ["a b c", "", "a", "b c a b"]  # 3 + 0 + 1 + 4 tokens and four ends


@pytest.fixture
def tokenizer(tmp_path):
    """Return a tokenizer of whole words."""
    return numbers_tokenizer(tmp_path / "words", WORDS)


def count(source, tokenizer, tmp_path, **options):
    """Count with a cache of this test's own."""
    options = {"cache_dir": tmp_path / "cache", "progress": False, "encoder": "hf", **options}
    return tdstream.count(source, tokenizer, **options)


class Once:
    """A source that says how often it was read."""

    def __init__(self, texts):
        self.texts, self.yielded = texts, 0

    def __call__(self):
        for text in self.texts:
            self.yielded += 1
            yield {"body": text}


def test_documents_and_tokens(tokenizer, tmp_path):
    """Worked out by hand; 12 tokens are two samples of 5 + 1, or three of them every 3 tokens."""
    counted = count(TEXTS, tokenizer, tmp_path)
    assert (counted.documents, counted.tokens, counted.text_bytes) == (4, 12, 13)
    assert (counted.samples, counted.batches) == (None, None)
    assert count(TEXTS, tokenizer, tmp_path, seq_len=5).samples == 2
    assert count(TEXTS, tokenizer, tmp_path, seq_len=5, stride=3).samples == 3
    assert count(TEXTS, tokenizer, tmp_path, seq_len=11).samples == 1
    assert count(TEXTS, tokenizer, tmp_path, seq_len=12).samples == 0
    of_two = count(TEXTS, tokenizer, tmp_path, seq_len=1, batch_size=2, dp_world_size=2)
    assert (of_two.samples, of_two.batches) == (6, 1)


def test_windows_of_documents(tokenizer, tmp_path):
    """3, 0, 1 and 4 tokens and an end each, seq_len 3: windows, and tails of at least one token."""
    cut = {"seq_len": 3, "cut": "document"}
    texts = [f" {text}\n" for text in TEXTS]
    counted = count(texts, tokenizer, tmp_path, min_tail_len=1, batch_size=2, **cut)
    assert (counted.samples, counted.batches) == (2 + 0 + 1 + 2, 2)
    assert (counted.documents, counted.text_bytes) == (4, 13)  # stripped
    assert count(texts, tokenizer, tmp_path, min_tail_len=2, **cut).samples == 1 + 0 + 0 + 2
    assert count(texts, tokenizer, tmp_path, min_tail_len=1, stride=1, **cut).samples == 2 + 0 + 1 + 3
    assert count(texts, tokenizer, tmp_path, seq_len=3).samples == 3
    assert len(list((tmp_path / "cache").iterdir())) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stride": 2}, "only together with seq_len"),
        ({"cut": "document"}, "only together with seq_len"),
        ({"min_tail_len": 2}, "only together with seq_len"),
        ({"dp_world_size": 2}, "only together with batch_size"),
        ({"seq_len": 4, "dp_world_size": 2}, "only together with batch_size"),
        ({"seq_len": 4, "stride": 6}, "stride must be 1 to seq_len"),
        ({"seq_len": 4, "cut": "document", "stride": 5}, "stride must be 1 to seq_len"),
        ({"seq_len": 4, "min_tail_len": 2}, "min_tail_len belongs to cut"),
        ({"seq_len": 4, "cut": "pack"}, r"a count does not keep.*len\(build"),
        ({"seq_len": 4, "cut": "words"}, "cut must be"),
    ],
)
def test_what_says_nothing_is_refused(tokenizer, tmp_path, options, message):
    """Options that mean something only beside others, before anything is read."""
    source = Once(TEXTS)
    with pytest.raises(ConfigError, match=message):
        count(source, tokenizer, tmp_path, text_field="body", **options)
    assert source.yielded == 0


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("texts.jsonl", {"name": "mine"}, "name is for a source that is no path"),
        (TEXTS, {"split": "test"}, "a list is one already"),
    ],
)
def test_options_of_other_sources_are_refused(tokenizer, tmp_path, source, options, message):
    """A name beside a path, a split of a list."""
    with pytest.raises(ConfigError, match=message):
        count(source, tokenizer, tmp_path, **options)


@pytest.mark.parametrize(("source", "named"), [(None, "words"), (["a"], None)])
def test_nothing_is_no_source_and_no_tokenizer(source, named):
    """In one sentence."""
    with pytest.raises(ConfigError, match="count needs a source and a tokenizer, got None"):
        tdstream.count(source, named)


def test_it_is_what_a_preparation_writes(tokenizer, tmp_path):
    """The same tokens, and the same number of batches as the corpus has, for several cuts."""
    texts = [" ".join("abc"[number % 3] for number in range(length)) for length in range(40)]
    corpus = tdstream.prepare(texts, tokenizer, tmp_path / "corpus", encoder="hf").output_path
    for seq_len, stride, ranks in ((7, None, 1), (7, 7, 1), (4, 2, 3)):
        cut = {"seq_len": seq_len, "stride": stride, "batch_size": 4}
        counted = count(texts, tokenizer, tmp_path, dp_world_size=ranks, **cut)
        pipe = tdstream.build(corpus, dp_rank=0, dp_world_size=ranks, **cut)
        assert (counted.samples, counted.batches) == (pipe.total_samples, len(pipe))


def test_the_second_time_nothing_is_read(tokenizer, tmp_path):
    """But for the look that tells a source from others; a small JSON file holds the answer."""
    source = Once(["a b"] * 1000)
    first = count(source, tokenizer, tmp_path, text_field="body", name="mine")
    assert source.yielded == 1000
    again = count(source, tokenizer, tmp_path, text_field="body", name="mine", seq_len=2)
    assert again.tokens == first.tokens == 3000
    assert again.samples == 1000
    assert source.yielded <= 1000 + 17
    (file,) = (tmp_path / "cache").iterdir()
    assert json.loads(file.read_text())["tokens"] == 3000
    assert file.stat().st_size < 2000


def test_a_count_is_recalled_but_never_made(tokenizer, tmp_path):
    """Whoever only asks is told None, and of a source that was not counted reads only its beginning."""
    source, mine = Once(["a b"] * 1000), AutoTokenizer.from_pretrained(tokenizer)
    options = TextOptions.of(source, mine, name="mine", text_field="body")
    count(["a"], tokenizer, tmp_path)
    assert recall_count(options, cache_dir=tmp_path / "cache") is None
    assert source.yielded <= 17
    count(source, tokenizer, tmp_path, text_field="body", name="mine")
    assert recall_count(options, cache_dir=tmp_path / "cache").counts.tokens == 3000


def test_what_changes_a_count_changes_the_key(tokenizer, tmp_path):
    """Other texts, another tokenizer, another field, fewer records."""
    source = write_jsonl(tmp_path / "texts.jsonl", [{"text": "a b", "other": "a b c"}] * 3)
    assert count(source, tokenizer, tmp_path).tokens == 9
    assert count(source, tokenizer, tmp_path, text_field="other").tokens == 12
    assert count(source, tokenizer, tmp_path, max_samples=2).tokens == 6
    write_jsonl(source, [{"text": "a b c a b c", "other": "a"}] * 3)
    assert count(source, tokenizer, tmp_path).tokens == 21
    assert count(["a b"], tokenizer, tmp_path).tokens == 3
    assert count(["a b c"], tokenizer, tmp_path).tokens == 4
    one = numbers_tokenizer(tmp_path / "other", {**WORDS, "d": 5})
    assert count(["a b"], one, tmp_path).tokens == 3
    assert len(list((tmp_path / "cache").iterdir())) == 7


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"key": 1}'])
def test_a_damaged_file_is_counted_anew(tokenizer, tmp_path, damage):
    """And replaced."""
    count(TEXTS, tokenizer, tmp_path)
    (file,) = (tmp_path / "cache").iterdir()
    whole = file.read_text()
    file.write_text(damage)
    assert count(TEXTS, tokenizer, tmp_path).tokens == 12
    assert json.loads(file.read_text())["key"] == json.loads(whole)["key"]
    file.write_text(whole.replace('"tokens": 12', '"tokens": "many"'))
    assert count(TEXTS, tokenizer, tmp_path).tokens == 12


def test_a_cache_that_cannot_be_written_is_no_error(tokenizer, tmp_path, caplog):
    """The count is made all the same, and a line says that it is not kept."""
    (tmp_path / "file").write_text("")
    assert count(TEXTS, tokenizer, tmp_path, cache_dir=tmp_path / "file" / "below").tokens == 12
    assert "not kept" in caplog.text


def test_the_users_cache(tokenizer, tmp_path, monkeypatch):
    """XDG_CACHE_HOME says where it is."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    count(TEXTS, tokenizer, tmp_path, cache_dir=None)
    assert len(list((tmp_path / "xdg" / "tdstream" / "counts").glob("count-*.json"))) == 1


def test_bad_records(tokenizer, tmp_path):
    """Refused with the record's number, or left out on demand, which is another question."""
    source = write_jsonl(tmp_path / "texts.jsonl", [{"text": "a"}, {"text": None}])
    with pytest.raises(tdstream.SourceError, match="Record 1"):
        count(source, tokenizer, tmp_path)
    assert count(source, tokenizer, tmp_path, skip_bad=True).documents == 1
    with pytest.raises(tdstream.SourceError, match="Record 1"):
        count(source, tokenizer, tmp_path)


def test_a_tokenizer_in_hand_is_left_as_it_is(tokenizer, tmp_path):
    """Its own truncation is not counted with, and not lost."""
    mine = AutoTokenizer.from_pretrained(tokenizer)
    mine("a b c", truncation=True, max_length=2)
    assert count(TEXTS, mine, tmp_path).tokens == 12
    assert mine._tokenizer.truncation["max_length"] == 2


def test_its_own_bar(tokenizer, tmp_path, capfd):
    """On stderr, with the number of documents."""
    count(TEXTS, tokenizer, tmp_path, progress=True)
    shown = capfd.readouterr().err
    assert "Counting: 100%" in shown
    assert "4.00/4.00" in shown


def test_other_ranks_count_in_silence(tokenizer, tmp_path, capfd, monkeypatch):
    """Rank 1 shows nothing."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert count(TEXTS, tokenizer, tmp_path, progress=True).tokens == 12
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("bad", "message"),
    [({"seq_len": 0}, "seq_len"), ({"batch_size": 4}, "together with seq_len"), ({"max_samples": 0}, "max_")],
)
def test_numbers_are_checked_first(bad, message, tmp_path):
    """Before a tokenizer is looked for."""
    with pytest.raises(tdstream.ConfigError, match=message):
        count(TEXTS, "no/such/tokenizer", tmp_path, **bad)
