"""tdstream.prepare makes of what a program has in hand the corpus that a file of the same texts becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import tdstream
from helpers_text import EOS, corpus_bytes, expected_tokens, write_jsonl
from tdstream.core.errors import ConfigError, OutputError, SourceError, TokenizerError
from tdstream.preparation import tokenizing as worker
from tdstream.preparation.tokenizing import EncoderSetup, Marks
from tdstream.text import records as text_records
from tdstream.text.batches import TextBatches
from tdstream.writing.merge import merge_tasks

TEXTS = [f"text {'x ' * (number * 7 % 19)}{number}" if number % 11 else "" for number in range(60)]


def texts() -> Iterator[str]:
    """Yield the texts."""
    yield from TEXTS


def records() -> Iterator[dict[str, Any]]:
    """Yield the texts in records."""
    for number, text in enumerate(TEXTS):
        yield {"id": number, "text": text}


class Again:
    """Something that can be iterated over again and again, and has a length."""

    def __iter__(self) -> Iterator[Any]:
        return records()

    def __len__(self) -> int:
        return len(TEXTS)


def stream(directory: Path) -> Any:
    """Return two files, written at the first call, as a stream."""
    half = [{"text": text} for text in TEXTS[:25]], [{"text": text} for text in TEXTS[25:]]
    paths = [directory / f"{number}.jsonl" for number in range(2)]
    files = [
        str(path if path.exists() else write_jsonl(path, rows))
        for path, rows in zip(paths, half, strict=True)
    ]
    return datasets.load_dataset("json", data_files=files, split="train", streaming=True)


def dataset() -> Any:
    """Return a map-style dataset."""
    return datasets.Dataset.from_list(list(records()))


SOURCES: dict[str, Callable[[Path], Any]] = {
    "list": lambda _: TEXTS,
    "tuple": lambda _: tuple(TEXTS),
    "records": lambda _: list(records()),
    "array": lambda _: np.array(TEXTS),
    "function": lambda _: texts,
    "function of records": lambda _: records,
    "again": lambda _: Again(),
    "dataset": lambda _: dataset(),
    "column": lambda _: dataset()["text"],
    "dict": lambda _: datasets.DatasetDict(train=dataset(), test=dataset().select([0])),
    "with indices": lambda _: datasets.Dataset.from_list(list(records())[::-1]).select(range(59, -1, -1)),
    "stream": stream,
    "mapped stream": lambda path: stream(path).map(lambda record: record),
    "torch stream": lambda path: stream(path).with_format("torch"),
    "shuffled stream": lambda path: stream(path).shuffle(seed=1, buffer_size=9),
    "stream of a function": lambda _: datasets.IterableDataset.from_generator(records),
}  # fmt: skip


def texts_of(kind: str, directory: Path) -> list[str]:
    """Return the texts of a source, in its order."""
    if kind == "shuffled stream":
        return [record["text"] for record in SOURCES[kind](directory)]
    return TEXTS


@pytest.fixture
def prepare(tmp_path: Path, tokenizer_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that prepares a source in chunks of 97 tokens into tmp_path/out."""
    monkeypatch.setattr(text_records, "_SEGMENT_RECORDS", 20)
    loaded = AutoTokenizer.from_pretrained(tokenizer_dir)

    def run(source: Any, tokenizer: Any = loaded, **named: Any) -> tdstream.PrepareResult:
        given = {"tokens_per_chunk": 97, "batch_size": 7, "encoder": "hf", **named}
        return tdstream.prepare(source, tokenizer, tmp_path / "out", **given)

    return run


@pytest.fixture
def stop_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that lets every source stop with KeyboardInterrupt after some batches."""
    real = TextBatches.batches

    def choose(num_batches: int) -> None:
        def batches(self: TextBatches) -> Iterator[Any]:
            for number, batch in enumerate(real(self)):
                if number == num_batches:
                    raise KeyboardInterrupt
                yield batch

        monkeypatch.setattr(TextBatches, "batches", batches)

    return choose


class TestSources:
    """What may be given."""

    @pytest.mark.parametrize("kind", SOURCES)
    def test_bytes(self, tmp_path: Path, tokenizer_dir: Path, prepare: Any, kind: str) -> None:
        """Whatever holds the texts, the shards are their tokens, each followed by end-of-text."""
        result = prepare(SOURCES[kind](tmp_path))
        expected = expected_tokens(tokenizer_dir, texts_of(kind, tmp_path), "<u2")
        assert corpus_bytes(result.output_path) == expected.tobytes()
        assert (result.counts.documents, result.counts.empty) == (60, 6)
        assert (result.counts.tokens, result.meta.num_documents) == (len(expected), 60)

    @pytest.mark.parametrize("kind", SOURCES)
    def test_resume(
        self, tmp_path: Path, tokenizer_dir: Path, prepare: Any, stop_after: Any, kind: str
    ) -> None:
        """Stopped again and again, and given anew each time, every text is in the corpus once."""
        stops = 0
        for num_batches in range(3, 99):
            stop_after(num_batches)
            try:
                result = prepare(SOURCES[kind](tmp_path), resume=True)
                break
            except KeyboardInterrupt:
                stops += 1
        assert stops >= 2
        expected = expected_tokens(tokenizer_dir, texts_of(kind, tmp_path), "<u2")
        assert corpus_bytes(result.output_path) == expected.tobytes()
        assert result.counts.documents == 60

    @pytest.mark.parametrize("kind", ["list", "function", "dataset", "shuffled stream"])
    @pytest.mark.parametrize("num_tasks", [2, 5])
    def test_tasks(
        self, tmp_path: Path, tokenizer_dir: Path, prepare: Any, kind: str, num_tasks: int
    ) -> None:
        """Several tasks divide a source, by runs of records or by records."""
        for task in reversed(range(num_tasks)):
            assert prepare(SOURCES[kind](tmp_path), task=task, num_tasks=num_tasks).meta is None
        merge_tasks(tmp_path / "out")
        expected = expected_tokens(tokenizer_dir, texts_of(kind, tmp_path), "<u2")
        assert corpus_bytes(tmp_path / "out") == expected.tobytes()

    @pytest.mark.parametrize("kind", ["list", "again", "dataset", "function"])
    def test_max_samples(self, tokenizer_dir: Path, prepare: Any, tmp_path: Path, kind: str) -> None:
        """No more records than asked for are read, across runs of records."""
        result = prepare(SOURCES[kind](tmp_path), max_samples=43)
        assert corpus_bytes(result.output_path) == expected_tokens(tokenizer_dir, TEXTS[:43], "<u2").tobytes()

    def test_a_path(self, tmp_path: Path, tokenizer_dir: Path, prepare: Any) -> None:
        """A path is read as the command reads it."""
        prepare(write_jsonl(tmp_path / "a.jsonl", list(records())), str(tokenizer_dir))
        assert corpus_bytes(tmp_path / "out") == expected_tokens(tokenizer_dir, TEXTS, "<u2").tobytes()

    def test_build_takes_the_result(self, prepare: Any) -> None:
        """The directory that is returned is a corpus to train on."""
        pipe = tdstream.build(prepare(TEXTS).output_path, seq_len=8, dp_rank=0, dp_world_size=1)
        assert next(iter(pipe))["input_ids"].shape == (8,)

    def test_the_first_reading_loses_nothing(self, tmp_path: Path, tokenizer_dir: Path, prepare: Any) -> None:
        """What was looked at to recognise a source is not gone where it can be read only once."""
        once = texts()
        prepare(lambda: once)
        assert corpus_bytes(tmp_path / "out") == expected_tokens(tokenizer_dir, TEXTS, "<u2").tobytes()

    def test_a_bad_record(self, prepare: Any) -> None:
        """A record that holds no text is named by its number, or skipped and counted."""
        source = [*TEXTS[:30], None, {"text": 5}, {"other": "x"}, 7, *TEXTS[30:]]
        with pytest.raises(SourceError, match=r"^Record 30 .* of 'list' has no text .* None or absent"):
            prepare(source)
        result = prepare(source, skip_bad=True, resume=True)
        assert (result.counts.documents, result.counts.skipped) == (60, 4)

    def test_an_error_in_a_function(self, prepare: Any) -> None:
        """What a caller's function raises is a sentence, with the record after which it did."""

        def broken() -> Iterator[str]:
            yield from TEXTS[:30]
            raise RuntimeError("no more")

        with pytest.raises(
            SourceError, match=r"test_prepare.*broken' cannot be read on .*: no more"
        ) as caught:
            prepare(broken)
        assert isinstance(caught.value.__cause__, RuntimeError)


class TestIdentity:
    """What is gone on with, and what is not."""

    @pytest.mark.parametrize(
        ("kind", "other"),
        [
            ("list", lambda _: [*TEXTS[:-1], "changed"]),
            ("list", lambda _: TEXTS[:-1]),
            ("function", lambda _: lambda: iter(TEXTS)),
            ("again", lambda _: dataset()),
            ("dataset", lambda _: dataset().select(range(59))),
            ("dataset", lambda _: dataset().map(lambda record: {"text": record["text"] + "!"})),
            ("stream", lambda path: stream(path).skip(1)),
            ("shuffled stream", lambda path: stream(path).shuffle(seed=2, buffer_size=9)),
        ],
    )
    def test_another_source(
        self, tmp_path: Path, prepare: Any, stop_after: Any, kind: str, other: Any
    ) -> None:
        """Another source than the one that was begun with is refused; the same one goes on."""
        stop_after(6)
        with pytest.raises(KeyboardInterrupt):
            prepare(SOURCES[kind](tmp_path))
        stop_after(99)
        with pytest.raises(ConfigError, match=r"was started with other settings: (dataset|given) was "):
            prepare(other(tmp_path), resume=True)
        assert prepare(SOURCES[kind](tmp_path), resume=True).counts.documents == 60

    def test_name(self, prepare: Any, stop_after: Any) -> None:
        """A name takes the place of the function's own, and has to be the same."""
        stop_after(6)
        with pytest.raises(KeyboardInterrupt):
            prepare(texts, name="v1")
        stop_after(99)
        with pytest.raises(ConfigError, match=r"with other settings: dataset was 'v1', is 'v2'"):
            prepare(texts, name="v2", resume=True)
        assert prepare(lambda: iter(TEXTS), name="v1", resume=True).counts.documents == 60


class TestTokenizer:
    """A tokenizer in hand."""

    def test_it_is_left_as_it_was(self, tokenizer_dir: Path, prepare: Any, tmp_path: Path) -> None:
        """Truncation and padding that a caller has set do not cut documents, and are not turned off."""
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
        tokenizer._tokenizer.enable_truncation(2)
        tokenizer._tokenizer.enable_padding(length=9)
        prepare(TEXTS, tokenizer)
        assert tokenizer._tokenizer.truncation["max_length"] == 2
        assert tokenizer._tokenizer.padding["length"] == 9
        assert corpus_bytes(tmp_path / "out") == expected_tokens(tokenizer_dir, TEXTS, "<u2").tobytes()

    def test_processes(self, tokenizer_dir: Path, prepare: Any, tmp_path: Path) -> None:
        """It reaches other processes as it is, with a token that was added and no directory holds."""
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_file=str(tokenizer_dir / "tokenizer.json"), eos_token=EOS
        )
        tokenizer.add_tokens(["xyzzy"])
        result = prepare(["a xyzzy", *TEXTS], tokenizer, num_proc=2)
        written = np.frombuffer(corpus_bytes(tmp_path / "out"), "<u2")
        assert written[: list(written).index(0)].tolist()[-1] == 400
        assert (result.meta.tokenizer_name_or_path, result.meta.vocab_size) == ("", 401)
        assert written.tobytes().endswith(expected_tokens(tokenizer_dir, TEXTS, "<u2").tobytes())

    def test_one_that_cannot_be_sent(
        self, tokenizer_dir: Path, prepare: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A tokenizer that other processes cannot have is refused with what to do."""

        class Own(PreTrainedTokenizerFast):  # type: ignore[misc]
            """A class that cannot be imported."""

        tokenizer = Own(tokenizer_file=str(tokenizer_dir / "tokenizer.json"), eos_token=EOS)
        with pytest.raises(TokenizerError, match=r"cannot be sent to other processes: .*Use num_proc=1"):
            prepare(TEXTS, tokenizer, num_proc=2)
        setup = EncoderSetup(
            tokenizer="x",
            pickled=b"cnowhere\nthing\n.",
            tokenizer_fingerprint="",
            encoder="hf",
            marks=Marks(0),
        )
        with pytest.raises(
            TokenizerError, match=r"cannot be loaded by another process: No module named 'nowh"
        ):
            worker._encoder(setup)

    def test_no_eos(self, tokenizer_dir: Path, prepare: Any) -> None:
        """One without an end-of-text token, or of another kind, is refused."""
        plain = PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_dir / "tokenizer.json"))
        with pytest.raises(TokenizerError, match=r"Tokenizer '\w+' has no end-of-text token"):
            prepare(TEXTS, plain)
        with pytest.raises(
            TokenizerError, match=r"or a Hugging Face tokenizer, got Tokenizer\. A tokenizers"
        ):
            prepare(TEXTS, plain._tokenizer)


class TestRefusals:
    """What cannot be prepared."""

    @pytest.mark.parametrize(
        ("source", "sentence"),
        [
            (iter(TEXTS), r"the source is a list_iterator, which can be read only once"),
            (texts(), r"the source is a generator, which can be read only once"),
            (5, r"or an object to iterate over repeatedly .*got int\."),
            (b"text", r"or an object to iterate over repeatedly .*got bytes\."),
            (None, r"needs a source and a tokenizer, got None\."),
            ({"a": TEXTS}, r"has to hold the split 'train', this one holds: a\."),
            (dataset().with_transform(lambda batch: batch), r"has a transform, .* with map\(\) before"),
        ],
    )
    def test_sources(self, tmp_path: Path, prepare: Any, source: Any, sentence: str) -> None:
        """What is no source is refused in a sentence, and nothing is written."""
        with pytest.raises(ConfigError, match=sentence):
            prepare(source)
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(
        ("source", "named", "sentence"),
        [
            (TEXTS, {"chunk": 1}, r"prepare has no option chunk; its options are: append, batch_size"),
            (TEXTS, {"dataset": "x"}, r"prepare has no option dataset"),
            (TEXTS, {"data_files": "x"}, r"data_files is for a dataset that is named"),
            (TEXTS, {"lines": True}, r"lines is for a dataset that is named"),
            ("a.jsonl", {"name": "x"}, r"name is for a source that is no path or name"),
            (TEXTS, {"batch_size": 0}, r"batch_size must be an integer of at least 1, got 0"),
            (TEXTS, {"tokens_per_chunk": 1e6}, r"tokens_per_chunk must be an integer .*, got 1000000.0"),
        ],
    )
    def test_options(self, prepare: Any, source: Any, named: dict[str, Any], sentence: str) -> None:
        """An option that is unknown, or does not go with the source, is refused."""
        with pytest.raises(ConfigError, match=sentence):
            prepare(source, **named)

    @pytest.mark.parametrize("kind", ["records", "dataset", "stream", "function of records"])
    def test_missing_field(self, tmp_path: Path, prepare: Any, kind: str) -> None:
        """A field that no record has is refused, naming those that there are."""
        fields = "text" if kind == "stream" else "id, text"
        with pytest.raises(SourceError, match=rf"no field 'body'; their fields are: {fields}\. Name one"):
            prepare(SOURCES[kind](tmp_path), text_field="body")
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("source", [[], lambda: iter(()), datasets.Dataset.from_dict({"text": []})])
    def test_nothing(self, tmp_path: Path, prepare: Any, source: Any) -> None:
        """A source without records is refused."""
        with pytest.raises(SourceError, match=r"has no documents: it holds no record"):
            prepare(source)
        assert not (tmp_path / "out").exists()

    def test_the_same_iterator_again(self, prepare: Any) -> None:
        """A function that does not make a new iterator is found out where it is read again."""
        once = texts()
        with pytest.raises(SourceError, match=r"the same iterator once more"):
            prepare(lambda: once, task=0, num_tasks=2)

    def test_what_is_there_is_kept(self, prepare: Any) -> None:
        """A corpus that lies there is replaced only when told."""
        prepare(TEXTS)
        with pytest.raises(OutputError):
            prepare(TEXTS[:1])
        assert prepare(TEXTS[:1], overwrite=True).counts.documents == 1
