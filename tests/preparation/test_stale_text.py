"""Text that changed behind a function or a stream is never taken for what it was, without a word."""

from __future__ import annotations

import os
import time
from pathlib import Path

import datasets
import pytest

import tdstream
from helpers_text import numbers_tokenizer, write_jsonl
from tdstream.preparation import count_cache, staleness
from tdstream.preparation.cache import cached_corpus
from tdstream.preparation.result import Observer
from tdstream.text.options import TextOptions

HEAD = ["a b"] * 16
"""What a source is compared by if nothing else is known of it."""


@pytest.fixture
def tokenizer(tmp_path):
    """Return a tokenizer of whole words."""
    return numbers_tokenizer(tmp_path / "words", {"<unk>": 0, "<eos>": 1, "a": 2, "b": 3, "c": 4})


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Keep counts in this test's directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(count_cache, "_counted_here", set())


def streamed(place: Path, kind: str = "json"):
    """Return a stream over the files of a directory."""
    files = sorted(map(str, place.iterdir()))
    return datasets.load_dataset(kind, data_files=files, split="train", streaming=True)


def tokens_in_cache(source, tokenizer, tmp_path) -> int:
    """Return the tokens of a source's corpus in a cache."""
    text = TextOptions.of(source, tokenizer, encoder="hf")
    corpus = cached_corpus(text, tmp_path / "cache", goes_first=True, observe=Observer)
    return sum(path.stat().st_size for path in corpus.glob("*.bin")) // 2


class TestStreams:
    """An IterableDataset is known by the files behind it, and by what is done to them."""

    @pytest.mark.parametrize("kind", ["json", "text", "csv", "parquet"])
    def test_another_file_more(self, tokenizer, tmp_path, kind, caplog):
        """The cache and the count follow; and unchanged files are found again without a warning."""
        data = tmp_path / "data"
        data.mkdir()

        def write(name: str, texts: list[str]) -> None:
            table = datasets.Dataset.from_dict({"text": texts})
            if kind == "text":
                (data / name).write_text("\n".join(texts))
            else:
                getattr(table, f"to_{kind}")(str(data / name))

        write("0", HEAD * 2)
        for _ in range(2):
            assert tokens_in_cache(streamed(data, kind), tokenizer, tmp_path) == 32 * 3
            assert tdstream.count(streamed(data, kind), tokenizer, progress=False).tokens == 32 * 3
        write("1", HEAD)
        assert tokens_in_cache(streamed(data, kind), tokenizer, tmp_path) == 48 * 3
        assert tdstream.count(streamed(data, kind), tokenizer, progress=False).tokens == 48 * 3
        assert "may yield other text" not in caplog.text

    def test_a_file_of_the_same_length(self, tokenizer, tmp_path):
        """A change after the sixteenth record is seen by the file's time."""
        data = tmp_path / "data"
        data.mkdir()
        path = write_jsonl(data / "0.jsonl", [{"text": text} for text in [*HEAD, "a c"]])
        before = tokens_in_cache(streamed(data), tokenizer, tmp_path)
        write_jsonl(path, [{"text": text} for text in [*HEAD, "c a"]])
        os.utime(path, ns=(1, time.time_ns()))
        assert tokens_in_cache(streamed(data), tokenizer, tmp_path) == before
        assert len([path for path in (tmp_path / "cache").iterdir() if path.name[0] != "."]) == 2

    def test_what_is_done_to_it(self, tokenizer, tmp_path):
        """The same first records, but fewer, skipped or repeated ones."""
        data = tmp_path / "data"
        data.mkdir()
        write_jsonl(data / "0.jsonl", [{"text": text} for text in HEAD * 3])
        for change, documents in [
            (lambda stream: stream, 48),
            (lambda stream: stream.take(20), 20),
            (lambda stream: stream.take(21), 21),
            (lambda stream: stream.skip(2), 46),
            (lambda stream: stream.repeat(2), 96),
            (lambda stream: datasets.concatenate_datasets([stream, stream.take(3)]), 51),
        ]:
            assert tokens_in_cache(change(streamed(data)), tokenizer, tmp_path) == documents * 3

    def test_a_function_in_it(self, tokenizer, tmp_path, caplog):
        """Another function is another text; what the same one does cannot be known, and is said."""
        data = tmp_path / "data"
        data.mkdir()
        write_jsonl(data / "0.jsonl", [{"text": text} for text in [*HEAD, "c"]])

        def longer(row):
            return {"text": row["text"].replace("c", "c c c")}

        def shorter(row):
            return {"text": row["text"].replace("c", "")}

        assert tokens_in_cache(streamed(data).map(longer), tokenizer, tmp_path) == 16 * 3 + 4
        assert tokens_in_cache(streamed(data).map(shorter), tokenizer, tmp_path) == 16 * 3 + 1
        assert "may yield" not in caplog.text
        assert tokens_in_cache(streamed(data).map(shorter), tokenizer, tmp_path) == 16 * 3 + 1
        assert (
            "(17 documents, 49 tokens), and the source may yield other text since: the text goes"
            in caplog.text
        )

    def test_a_table_as_a_stream(self, tokenizer, tmp_path, caplog):
        """By the table's fingerprint."""
        for texts in (HEAD * 2, [*HEAD, "c"], HEAD * 2):
            stream = datasets.Dataset.from_dict({"text": texts}).to_iterable_dataset()
            tokens = sum(len(text.split()) + 1 for text in texts)
            assert tokens_in_cache(stream, tokenizer, tmp_path) == tokens
        assert "may yield" not in caplog.text

    def test_a_generator(self, tokenizer, tmp_path, caplog):
        """It is a function, whatever its arguments are."""
        texts = list(HEAD)

        def records(files):
            yield from ({"text": text} for text in texts)

        def stream():
            return datasets.IterableDataset.from_generator(records, gen_kwargs={"files": ["a"]})

        tokens_in_cache(stream(), tokenizer, tmp_path)
        tokens_in_cache(stream(), tokenizer, tmp_path)
        assert "made by a function" in caplog.text


class TestFunctions:
    """A function is known by its name and its first records, which proves nothing."""

    def test_the_cache_says_its_age(self, tokenizer, tmp_path, caplog):
        """Each time, with documents and tokens; not where it has just been prepared."""
        texts = list(HEAD)

        def source():
            return iter(texts)

        assert tokens_in_cache(source, tokenizer, tmp_path) == 48
        assert "may yield" not in caplog.text
        texts.extend(["c"] * 100)
        for times in (1, 2):
            assert tokens_in_cache(source, tokenizer, tmp_path) == 48
            assert caplog.text.count("(16 documents, 48 tokens), and the source may yield other") == times
        assert "only the first records of source were compared" in caplog.text

    def test_a_version_tells_texts_apart(self, tokenizer, tmp_path, caplog):
        """And then nothing is in doubt."""
        texts = list(HEAD)

        def source():
            return iter(texts)

        source.text_version = 1
        assert tokens_in_cache(source, tokenizer, tmp_path) == 48
        assert tdstream.count(source, tokenizer, progress=False).tokens == 48
        texts.append("c")
        assert tokens_in_cache(source, tokenizer, tmp_path) == 48
        source.text_version = 2
        assert tokens_in_cache(source, tokenizer, tmp_path) == 50
        assert tdstream.count(source, tokenizer, progress=False).tokens == 50
        assert "may yield" not in caplog.text

    def test_a_count_is_made_each_time(self, tokenizer, tmp_path, caplog):
        """So it is right; a change is said, and replaces what was kept."""
        texts = list(HEAD)

        def source():
            return iter(texts)

        assert tdstream.count(source, tokenizer, progress=False).tokens == 48
        texts.append("c")
        assert tdstream.count(source, tokenizer, progress=False).tokens == 50
        assert (
            "it had 16 documents and 48 tokens when it was counted before, and has 17 and 50" in caplog.text
        )

    def test_complete_already(self, tokenizer, tmp_path, caplog):
        """A corpus that is complete, from a function: whether it is of the same text is not known."""
        how = {"encoder": "hf", "resume": True}

        def source():
            return iter(HEAD)

        assert not tdstream.prepare(source, tokenizer, tmp_path / "out", **how).was_complete
        assert "may yield" not in caplog.text
        assert tdstream.prepare(source, tokenizer, tmp_path / "out", **how).was_complete
        assert "may yield other text since: only the first" in caplog.text
        caplog.clear()
        named = {**how, "name": "mine"}
        for _ in range(2):
            tdstream.prepare(source, tokenizer, tmp_path / "named", **named)
        assert "may yield" not in caplog.text


class TestWholePasses:
    """A pass over all of a text is right, and a count that it contradicts is not kept."""

    @pytest.mark.parametrize("num_workers", [0, 1, 2])
    def test_more_text_than_counted(self, tokenizer, num_workers, caplog, monkeypatch):
        """The total is the pass's, from its end on, and the next run counts again."""
        texts = list(HEAD)

        def source():
            return iter(texts)

        tdstream.count(source, tokenizer, progress=False)  # 48 tokens: 9 samples of 4 + 1, 4 batches
        monkeypatch.setattr(count_cache, "_counted_here", set())
        texts.extend(HEAD * 4)
        options = {"tokenizer": tokenizer, "seq_len": 4, "batch_size": 2, "encoder": "hf"}
        loader = tdstream.loader(source, **options, num_workers=num_workers)
        if num_workers < 2:
            assert tdstream.steps(loader, 1).total == 4
            assert "The count of" in caplog.text
            assert "(16 documents, 48 tokens)" in caplog.text
        batches = sum(1 for _ in loader)
        assert batches == 24  # 240 tokens, also as twice 120
        assert f"its epoch had {batches} batches, and 4 were counted" in caplog.text
        assert loader.total_hint().total == batches
        again = tdstream.loader(source, **options)
        assert again.total_hint() is None or again.total_hint().kind != "counted"

    def test_without_a_loader(self, tokenizer, caplog):
        """The dataset of `build` compares as well."""
        texts = HEAD * 4

        def source():
            return iter(texts)

        tdstream.count(source, tokenizer, progress=False)
        del texts[20:]
        pipe = tdstream.build(source, tokenizer=tokenizer, seq_len=4, batch_size=2, encoder="hf")
        batches = sum(1 for _ in pipe)
        assert f"its epoch had {batches} batches" in caplog.text

    def test_as_counted(self, tokenizer, caplog):
        """Then nothing is said, in this epoch and the next."""
        counted = tdstream.count(lambda: iter(HEAD * 4), tokenizer, seq_len=4, batch_size=2, progress=False)
        source = lambda: iter(HEAD * 4)  # noqa: E731 - a function of the same name
        tdstream.count(source, tokenizer, progress=False)
        loader = tdstream.loader(source, tokenizer=tokenizer, seq_len=4, batch_size=2, encoder="hf")
        for _ in range(2):
            assert sum(1 for _ in loader) == counted.batches
        assert caplog.text == ""


@pytest.mark.parametrize(
    ("seconds", "age"),
    [
        (-5, "0 seconds"),
        (0.5, "0 seconds"),
        (1, "1 second"),
        (119, "1 minute"),
        (7200, "2 hours"),
        (3 * 86_400, "3 days"),
    ],
)
def test_ages(seconds, age):
    """In the largest unit."""
    assert staleness.describe_age(seconds) == age
