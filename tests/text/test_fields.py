"""The text of a record is found where text_field says: in a field, inside of one, or in several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers_text import corpus_bytes, expected_tokens, write_jsonl
from tdstream.core.errors import ConfigError, SourceError
from tdstream.preparation.engine import prepare_corpus
from tdstream.preparation.options import PrepareOptions
from tdstream.text.arrow_table import ArrowTable
from tdstream.text.fields import Rows
from tdstream.text.options import TextOptions

RECORDS: list[dict[str, Any]] = [
    {
        "title": "T0",
        "text": "t0",
        "meta": {"title": "m0", "deep": {"x": "d0"}},
        "a.b": "dot0",
        "a": {"b": "in0"},
    },
    {
        "title": None,
        "text": "t1",
        "meta": {"title": None, "deep": {"x": "d1"}},
        "a.b": "dot1",
        "a": {"b": "in1"},
    },
    {"title": "", "text": "t2", "meta": {"title": "", "deep": None}, "a.b": "dot2", "a": None},
    {"title": "T3", "text": None, "meta": None, "a.b": "dot3", "a": {"b": "in3"}},
    {
        "title": None,
        "text": None,
        "meta": {"title": "m4", "deep": {"x": None}},
        "a.b": None,
        "a": {"b": None},
    },
]
TABLES: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "arrow": lambda records: ArrowTable(pa.Table.from_pylist(records)),
    "rows": Rows,
}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    ("text_field", "texts"),
    [
        ("text", ["t0", "t1", "t2", None, None]),
        ("meta.title", ["m0", None, "", None, "m4"]),
        ("meta.deep.x", ["d0", "d1", None, None, None]),
        ("a.b", ["dot0", "dot1", "dot2", "dot3", None]),
        ("title,text", ["T0\n\nt0", "t1", "t2", "T3", None]),
        ("text , title", ["t0\n\nT0", "t1", "t2", "T3", None]),
        ("title,meta.deep.x,text", ["T0\n\nd0\n\nt0", "d1\n\nt1", "t2", "T3", None]),
    ],
)
def test_values(kind: str, text_field: str, texts: list[str | None]) -> None:
    """Dots go inside, a field with a dot in its name wins, commas join what is there, in the order given."""
    assert TABLES[kind](RECORDS).texts(text_field) == (texts, [])


@pytest.mark.parametrize("kind", TABLES)
def test_a_name_with_a_comma(kind: str) -> None:
    """A field whose own name holds the comma is meant."""
    table = TABLES[kind]([{"a,b": "one", "a": "no", "b": "no"}])
    assert table.texts("a,b") == (["one"], [])


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    ("text_field", "missing"),
    [
        ("body", ["body"]),
        ("meta.body", ["meta.body"]),
        ("title.x", ["title.x"]),
        ("titel,text,meta.y", ["titel", "meta.y"]),
    ],
)
def test_missing(kind: str, text_field: str, missing: list[str]) -> None:
    """Every part that no record has is told."""
    assert TABLES[kind](RECORDS).texts(text_field)[1] == missing


@pytest.mark.parametrize("kind", TABLES)
def test_a_part_that_is_no_text(kind: str) -> None:
    """A number among the parts stays what it is, so that the record is refused."""
    assert TABLES[kind]([{"a": "x", "b": 5}]).texts("a,b") == ([5], [])


def parquet(directory: Path, records: list[dict[str, Any]]) -> Path:
    """Write parquet."""
    pq.write_table(pa.Table.from_pylist(records), directory / "a.parquet", row_group_size=2)
    return directory / "a.parquet"


def jsonl(directory: Path, records: list[dict[str, Any]]) -> Path:
    """Write JSON lines."""
    return write_jsonl(directory / "a.jsonl", records)


def comma_separated(directory: Path, records: list[dict[str, Any]]) -> Path:
    """Write a CSV file with what is nested under names with dots."""
    lines = ["title,text,meta.title,n"]
    for record in records:
        cells = [record["title"], record["text"], record["meta"]["title"], 5]
        lines.append(",".join("" if cell is None else str(cell) for cell in cells))
    (directory / "a.csv").write_text("\n".join(lines) + "\n")
    return directory / "a.csv"


GOOD = [
    {
        "title": f"T{number}" if number % 3 else None,
        "text": f"t{number}",
        "meta": {"title": f"m{number}", "n": 1},
    }
    for number in range(10)
]
READERS: dict[str, Callable[[Path, list[dict[str, Any]]], Any]] = {
    "parquet": parquet,
    "jsonl": jsonl,
    "csv": comma_separated,
    "dataset": lambda _, records: datasets.Dataset.from_list(records),
    "stream": lambda _, records: datasets.Dataset.from_list(records).to_iterable_dataset(),
    "list": lambda _, records: records,
}


@pytest.fixture
def prepare(tmp_path: Path, tokenizer_dir: Path) -> Callable[..., Any]:
    """Return a function that prepares a path or records into tmp_path/out."""

    def run(source: Any, **named: Any) -> Any:
        in_hand = not isinstance(source, Path)
        options = PrepareOptions.of(
            dataset="given" if in_hand else str(source), given=source if in_hand else None,
            tokenizer=str(tokenizer_dir), encoder="hf", output_path=tmp_path / "out",
            **{"batch_size": 3, **named},
        )  # fmt: skip
        return prepare_corpus(options)

    return run


class TestCorpus:
    """What is written for every kind of input."""

    @pytest.mark.parametrize("kind", READERS)
    @pytest.mark.parametrize("text_field", ["meta.title", "title,text"])
    def test_bytes(
        self, tmp_path: Path, tokenizer_dir: Path, prepare: Any, kind: str, text_field: str
    ) -> None:
        """The documents are the texts in the field that was named."""
        prepare(READERS[kind](tmp_path, GOOD), text_field=text_field)
        joined = [f"T{n}\n\nt{n}" if n % 3 else f"t{n}" for n in range(10)]
        texts = joined if text_field == "title,text" else [f"m{n}" for n in range(10)]
        assert corpus_bytes(tmp_path / "out") == expected_tokens(tokenizer_dir, texts, "<u2").tobytes()

    def test_mixed_json(self, tmp_path: Path, tokenizer_dir: Path, prepare: Any) -> None:
        """A path goes into fields whose values are of several kinds, too."""
        rows = [{"meta": {"title": "a"}}, {"meta": 5}, {"meta": {"title": "c", "n": [1, "x"]}}]
        path = write_jsonl(tmp_path / "a.jsonl", rows)
        counts = prepare(path, text_field="meta.title", skip_bad=True).counts
        assert (counts.documents, counts.skipped) == (2, 1)
        assert corpus_bytes(tmp_path / "out") == expected_tokens(tokenizer_dir, ["a", "c"], "<u2").tobytes()

    def test_a_part_that_comes_and_goes(self, tmp_path: Path, tokenizer_dir: Path, prepare: Any) -> None:
        """A part that the first records have may be absent from all of a later batch."""
        rows = [{"title": "T", "text": "a"}] * 3 + [{"text": "b"}] * 3
        prepare(rows, text_field="title,text")
        expected = expected_tokens(tokenizer_dir, ["T\n\na"] * 3 + ["b"] * 3, "<u2")
        assert corpus_bytes(tmp_path / "out") == expected.tobytes()


class TestRefusals:
    """Names that are wrong."""

    @pytest.mark.parametrize(
        ("kind", "fields"),
        [
            ("parquet", "title, text, meta.title, meta.n"),
            ("jsonl", "title, text, meta.title, meta.n"),
            ("csv", "title, text, meta.title, n"),
            ("dataset", "title, text, meta.title, meta.n"),
            ("stream", "title, text, meta.title, meta.n"),
            ("list", "title, text, meta.title, meta.n"),
        ],
    )
    def test_missing(self, tmp_path: Path, prepare: Any, kind: str, fields: str) -> None:
        """The parts that are missing are named, and all fields that there are."""
        with pytest.raises(SourceError) as caught:
            prepare(READERS[kind](tmp_path, GOOD), text_field="titel,text,meta.x")
        assert str(caught.value) == (
            f"The records have no field 'titel' and 'meta.x'; their fields are: {fields}. "
            f"Name one with text_field=...."
        )
        assert not (tmp_path / "out").exists()

    def test_bad_record(self, tmp_path: Path, prepare: Any) -> None:
        """A record in which all parts are absent is bad."""
        path = jsonl(tmp_path, [*GOOD, {"title": None, "text": None, "meta": {"title": "m", "n": 1}}])
        with pytest.raises(
            SourceError, match=r"^Record 10 .*no text in 'title,text': it is None or absent\. "
        ):
            prepare(path, text_field="title,text")
        assert prepare(path, text_field="title,text", skip_bad=True).counts.skipped == 1

    @pytest.mark.parametrize("text_field", ["title,,text", "title,", ",", " "])
    def test_empty_parts(self, text_field: str) -> None:
        """A comma stands between two names."""
        with pytest.raises(
            ConfigError, match=r"text_field must be a name, or names with commas between them"
        ):
            TextOptions(text_field=text_field)

    def test_long_lists_of_fields(self, prepare: Any) -> None:
        """Of very many fields the first are named."""
        with pytest.raises(SourceError, match=r"their fields are: f0, f1, .*, f39 and 60 more\. Name one"):
            prepare([{f"f{number}": "x" for number in range(100)}])


def test_only_what_is_needed_is_read(tmp_path: Path, prepare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of parquet, the fields that hold the parts are read, and no others."""
    read: list[str] = []
    real = ArrowTable.texts

    def texts(self: ArrowTable, text_field: str) -> Any:
        read.append(", ".join(self.list_fields()))
        return real(self, text_field)

    monkeypatch.setattr(ArrowTable, "texts", texts)
    prepare(parquet(tmp_path, [{**record, "url": "u"} for record in GOOD]), text_field="meta.title,text")
    assert set(read) <= {"meta.title, text", "text, meta.title"}
    assert read
