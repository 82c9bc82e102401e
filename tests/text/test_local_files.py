"""What is prepared from local files: other fields, empty and bad pieces, fields that come and go."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers_text import corpus_bytes, expected_tokens
from tdstream.core.errors import SourceError
from tdstream.preparation.engine import prepare_corpus
from tdstream.preparation.options import PrepareOptions
from tdstream.text.local_files import LocalFiles
from tdstream.text.open import open_text
from tdstream.text.options import TextOptions
from tdstream.text.readers.json_records import JsonReader

Prepared = Callable[..., Any]


@pytest.fixture
def prepared(tmp_path: Path, tokenizer_dir: Path) -> Prepared:
    """Return a function that prepares tmp_path/data and returns the result."""

    def run(**named: Any) -> Any:
        return prepare_corpus(
            PrepareOptions.of(
                dataset=str(tmp_path / "data"), tokenizer=str(tokenizer_dir), encoder="hf",
                output_path=tmp_path / "out", **named,
            )
        )  # fmt: skip

    (tmp_path / "data").mkdir()
    return run


@pytest.fixture
def is_corpus_of(tmp_path: Path, tokenizer_dir: Path) -> Callable[..., bool]:
    """Return a function that tells whether the corpus has just these documents."""

    def compare(*texts: str) -> bool:
        return corpus_bytes(tmp_path / "out") == expected_tokens(tokenizer_dir, list(texts), "<u2").tobytes()

    return compare


def write(path: Path, *records: dict[str, Any]) -> None:
    """Write records into a file of the format that its name tells."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(list(records)), path)
    elif path.suffix in (".csv", ".tsv"):
        between = {".csv": ",", ".tsv": "\t"}[path.suffix]
        rows = [list(records[0]), *([str(value) for value in record.values()] for record in records)]
        path.write_text("".join(between.join(row) + "\n" for row in rows))
    else:
        path.write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.mark.parametrize("ending", ["jsonl", "parquet", "csv", "tsv"])
class TestOtherFields:
    """Files that differ in what is no text."""

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"n": 1}, {"n": 1, "m": 2}),
            ({"n": 1, "m": 2}, {"n": 1}),
            ({"n": 1}, {"m": 1}),
            ({"n": 1}, {"n": "x"}),
            ({"n": None}, {"n": 1.5}),
            ({"n": [1]}, {"n": {"a": [1]}}),
        ],
    )
    def test_between_files(
        self, tmp_path: Path, prepared: Prepared, is_corpus_of: Any, ending: str, one: Any, other: Any
    ) -> None:
        """Columns that are more, fewer, others, or of other types do not matter, in any order."""
        write(tmp_path / f"data/a.{ending}", {**one, "text": "a"})
        write(tmp_path / f"data/b.{ending}", {"text": "b", **other})
        write(tmp_path / f"data/c.{ending}", {**one, "text": "c"})
        prepared()
        assert is_corpus_of("a", "b", "c")

    def test_a_file_without_the_text(
        self, tmp_path: Path, prepared: Prepared, is_corpus_of: Any, ending: str
    ) -> None:
        """Its records are bad ones, with their place, even in the first file."""
        write(tmp_path / f"data/a.{ending}", {"other": "x", "id": 1})
        write(tmp_path / f"data/b.{ending}", {"text": "b", "id": 1})
        with pytest.raises(
            SourceError, match=rf"^Record 0 .* of .*a\.{ending}, has no text .*None or absent"
        ):
            prepared()
        assert prepared(skip_bad=True).counts.skipped == 1
        assert is_corpus_of("b")

    def test_parts_that_come_and_go(
        self, tmp_path: Path, prepared: Prepared, is_corpus_of: Any, ending: str
    ) -> None:
        """Of several fields, each file may have others."""
        write(tmp_path / f"data/a.{ending}", {"text": "a", "id": 1})
        write(tmp_path / f"data/b.{ending}", {"title": "B", "text": "b"})
        write(tmp_path / f"data/c.{ending}", {"id": 1, "title": "C"})
        prepared(text_field="title,text")
        assert is_corpus_of("a", "B\n\nb", "C")

    def test_a_field_that_no_file_has(self, tmp_path: Path, prepared: Prepared, ending: str) -> None:
        """It is refused, with the fields of all files."""
        write(tmp_path / f"data/a.{ending}", {"text": "a", "id": 1})
        write(tmp_path / f"data/b.{ending}", {"body": "b"})
        with pytest.raises(SourceError, match=r"have no field 'boddy'; their fields are: text, id, body"):
            prepared(text_field="boddy")
        assert not (tmp_path / "out").exists()


class TestNothing:
    """Files without records hold nothing."""

    LINES, OTHERS = ("jsonl", "json", "csv", "tsv"), ("parquet", "arrow", "jsonl.gz", "jsonl.zst")

    @pytest.mark.parametrize(
        ("ending", "content"),
        [*itertools.product(LINES, [b"", b"\n", b"  \n"]), *((ending, b"") for ending in OTHERS)],
    )
    def test_in_any_place(
        self, tmp_path: Path, prepared: Prepared, is_corpus_of: Any, ending: str, content: bytes
    ) -> None:
        """First, in the middle and last."""
        if content and ending.rsplit(".", maxsplit=1)[-1] not in ("jsonl", "json", "csv", "tsv"):
            pytest.skip("not a file of this format")
        kind = ending.partition(".")[0]
        for name in "ace":
            (tmp_path / f"data/{name}.{ending}").write_bytes(content)
        if kind == "arrow":
            for name in "bd":
                with pa.ipc.new_stream(
                    f"{tmp_path}/data/{name}.arrow", pa.schema({"text": pa.string()})
                ) as file:
                    file.write_table(pa.table({"text": [name]}))
        else:
            for name in "bd":
                write(tmp_path / f"data/{name}.{kind}", {"id": 1, "text": name})
        prepared()
        assert is_corpus_of("b", "d")

    @pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet", "jsonl.zst"])
    def test_all(self, tmp_path: Path, prepared: Prepared, ending: str) -> None:
        """Nothing at all is refused."""
        for name in "ab":
            (tmp_path / f"data/{name}.{ending}").touch()
        with pytest.raises(SourceError, match=r"^Dataset .*data' has no documents: it holds no record"):
            prepared()
        assert not (tmp_path / "out").exists()

    def test_a_first_parquet_file_of_type_null(
        self, tmp_path: Path, prepared: Prepared, is_corpus_of: Any
    ) -> None:
        """What pandas writes of no rows says nothing about the others."""
        pq.write_table(pa.table({"text": pa.nulls(0), "id": pa.nulls(0)}), tmp_path / "data/a.parquet")
        write(tmp_path / "data/b.parquet", {"text": "b", "id": 1})
        prepared()
        assert is_corpus_of("b")


class TestSegments:
    """Runs of files, counted as ever."""

    def test_rows(self, tmp_path: Path) -> None:
        """600 files are 256 runs of three or two; reading begins at any record of a run."""
        files = []
        for number in range(600):
            files.append(str(tmp_path / f"{number:03}.jsonl"))
            write(Path(files[-1]), *({"text": f"{number} {row}"} for row in range(number % 4)))
        found = LocalFiles(files, JsonReader(["text"]))
        assert found.num_segments == 256
        assert LocalFiles(files, JsonReader(["text"]), at_least=500).num_segments == 500
        first = range(3, 6)  # 600 = 256 x 2 + 88: the first 88 runs have three files
        expected = [f"{number} {row}" for number in first for row in range(number % 4)]
        assert found.count_rows(1) == len(expected) == 3 + 0 + 1
        for row in range(5):
            tables = found.read(1, 2, row)
            assert [len(table.texts("text")[0]) for table in tables] == [2] * ((4 - row) // 2) + [1] * (
                row % 2
            )
            assert [text for table in found.read(1, 2, row) for text in table.texts("text")[0]] == expected[
                row:
            ]
        last = [f"{number} {row}" for number in (598, 599) for row in range(number % 4)]
        assert [text for table in found.read(255, 9) for text in table.texts("text")[0]] == last

    def test_facts(self, tmp_path: Path) -> None:
        """The number of bytes is known of all files, that of records where a file tells it."""
        write(tmp_path / "a.jsonl", {"text": "a", "m": {"x": 1}})
        write(tmp_path / "a.parquet", {"text": "a"}, {"text": "b"})
        for name, total, columns in (("a.jsonl", None, ["text", "m"]), ("a.parquet", 2, ["text"])):
            with open_text(TextOptions(dataset=str(tmp_path / name))) as source:
                facts = source.facts
            assert (facts.total, facts.columns, facts.files) == (total, columns, [str(tmp_path / name)])
            assert facts.num_bytes == (tmp_path / name).stat().st_size


def test_datasets_is_not_imported(tmp_path: Path) -> None:
    """Local files are read without it."""
    write(tmp_path / "a.jsonl", {"text": "a"})
    code = (
        "import sys\nfrom tdstream.text.open import open_text\n"
        "from tdstream.text.options import TextOptions\n"
        "with open_text(TextOptions(dataset=sys.argv[1])) as source:\n"
        "    print([batch.texts for batch in source.batches()])\n"
        "print({'datasets', 'pandas', 'transformers', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.jsonl")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[['a']]\nset()\n"
