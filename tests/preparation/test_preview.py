"""A dry run says what would be read and written, is about right, and writes nothing."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from helpers_text import corpus_bytes, expected_tokens, numbers_tokenizer, write_jsonl
from tdstream.cli.main import main
from tdstream.preparation.preview import show_bytes, show_count

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def texts_of(number: int) -> list[str]:
    """Return texts of 1 to 60 words."""
    return [" ".join(WORDS[: 1 + (place * 7) % 10] * (1 + place % 6)) for place in range(number)]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """Return a tokenizer with an id for each word."""
    words = {word: number for number, word in enumerate(WORDS, 2)}
    return numbers_tokenizer(tmp_path / "words", {"<unk>": 0, "<eos>": 1, **words})


def make_data(directory: Path, kind: str, texts: list[str]) -> Path:
    """Write texts as files of some kind."""
    directory.mkdir()
    for number in range(3):
        records = [{"id": place, "text": text} for place, text in enumerate(texts[number::3])]
        path = directory / f"{number}.{kind}"
        if kind == "parquet":
            pa.parquet.write_table(pa.Table.from_pylist(records), path)
        elif kind == "jsonl":
            write_jsonl(path, records)
        elif kind == "jsonl.gz":
            path.write_bytes(gzip.compress("".join(json.dumps(record) + "\n" for record in records).encode()))
        elif kind == "csv":
            rows = "".join(f"{record['id']},{record['text']}\n" for record in records)
            path.write_text("id,text\n" + rows)
    return directory


def run(capsys: pytest.CaptureFixture[str], *flags: Any) -> str:
    """Run the command; return what it said."""
    assert main(["prepare", *map(str, flags)]) == 0
    return capsys.readouterr().err


class TestEstimate:
    """Tokens, documents and room."""

    @pytest.mark.parametrize("kind", ["parquet", "jsonl", "jsonl.gz", "csv"])
    @pytest.mark.parametrize("number", [300, 150_000])
    def test_is_near(
        self, number: int, kind: str, tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """What is estimated from some texts is within 5 % of what all of them are."""
        texts = texts_of(number)
        data = make_data(tmp_path / "data", kind, texts)
        flags = ["--dataset", data, "--tokenizer", tokenizer, "--output_path", tmp_path / "out"]
        said = run(capsys, *flags, "--dry_run", "--encoder", "hf")
        found = re.search(r"about ([\d,]+) tokens in about ([\d,]+) documents", said)
        assert found is not None
        tokens, documents = (int(part.replace(",", "")) for part in found.groups())
        right = sum(len(text.split()) + 1 for text in texts)
        assert tokens == pytest.approx(right, rel=0.05)
        assert documents == pytest.approx(number, rel=0.05)
        assert not (tmp_path / "out").exists()

    def test_what_is_said(self, tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Files, what is left out, fields, a first text, tokenizer, type, end of text, encoder, room."""
        data = make_data(tmp_path / "data", "jsonl", ["one two"] * 9)
        (data / "notes.bak").write_text("no")
        flags = ["--dataset", data, "--tokenizer", tokenizer, "--output_path", tmp_path / "out"]
        said = run(capsys, *flags, "--dry_run", "--encoder", "hf")
        size = sum(path.stat().st_size for path in data.glob("*.jsonl"))
        for part in (
            "4 files (3 jsonl, 1 left out: 1 ",
            "(notes.bak)",
            f"3 files of {size} bytes. Fields: id, text; the text is in text.",
            "First text: 'one two'",
            f"Tokenizer {tokenizer}: 12 ids, stored as uint16; '<eos>' (1) ends each document.",
            "Encoder hf",
            "Estimated from 9 texts: about 27 tokens in about 9 documents, 126 bytes in",
            "are free",
            "Nothing was written.",
        ):
            assert part in said
        assert {path.name for path in tmp_path.iterdir()} == {"data", "words"}

    def test_too_little_room(
        self,
        tmp_path: Path,
        tokenizer: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """A corpus that does not fit is announced."""
        import shutil

        usage = shutil.disk_usage(tmp_path)
        monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=100))
        data = make_data(tmp_path / "data", "jsonl", ["one two"] * 9)
        flags = ["--dataset", data, "--tokenizer", tokenizer, "--output_path", tmp_path / "out"]
        assert "100 bytes are free. This will not fit." in run(capsys, *flags, "--dry_run")

    def test_at_most(self, tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A limit counts."""
        data = make_data(tmp_path / "data", "jsonl", ["one two"] * 900)
        flags = ["--dataset", data, "--tokenizer", tokenizer, "--output_path", tmp_path / "out"]
        said = run(capsys, *flags, "--dry_run", "--max_samples", "100")
        assert "100 records at most" in said
        assert "about 300 tokens in about 100 documents" in said

    def test_a_task(self, tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A task estimates its share."""
        data = make_data(tmp_path / "data", "jsonl", ["one two"] * 900)
        flags = ["--dataset", data, "--tokenizer", tokenizer, "--output_path", tmp_path / "out"]
        said = run(capsys, *flags, "--dry_run", "--task", 0, "--num_tasks", 3)
        assert "about 900 tokens in about 300 documents" in said


class TestRefusals:
    """What a real run refuses, a dry run refuses too."""

    @pytest.mark.parametrize(
        "more", [["--text_field", "body"], ["--split", "test"], ["--tokenizer", "./none"]]
    )
    def test_refused(
        self, more: list[str], tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """With the same sentence."""
        data = make_data(tmp_path / "data", "jsonl", ["one two"] * 9)
        flags = ["--dataset", data, "--tokenizer", tokenizer, "--output_path", tmp_path / "out", *more]
        errors = []
        for dry in ([], ["--dry_run"]):
            assert main(["prepare", *map(str, flags), *dry]) == 1
            errors.append(capsys.readouterr().err.splitlines()[-1])
        assert errors[0] == errors[1]
        assert errors[0].startswith("tdstream: error: ")

    def test_used_output(self, tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A complete corpus is refused, and with resume it is found to be complete."""
        data = make_data(tmp_path / "data", "jsonl", ["one two"] * 9)
        flags = [*("--dataset", data), *("--tokenizer", tokenizer), *("--output_path", tmp_path / "out")]
        run(capsys, *flags)
        assert main(["prepare", *map(str, flags), "--dry_run"]) == 1
        capsys.readouterr()
        assert "Complete already" in run(capsys, *flags, "--dry_run", "--resume")


def test_a_real_run_begins_with_it(
    tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same lines stand before the bar, and the sample takes nothing away from the corpus."""
    texts = texts_of(20_000)
    data = make_data(tmp_path / "data", "jsonl", texts)
    said = run(capsys, "--dataset", data, "--tokenizer", tokenizer, "--output_path", tmp_path / "out")
    before = said[: said.index("Preparing: ")]
    for part in ("3 files (3 jsonl)", "First text: 'one'", "stored as uint16", "Encoder ", "Estimated from"):
        assert part in before
    assert said[said.index("Preparing: ") :].count("100%") == 1
    ordered = [text for number in range(3) for text in texts[number::3]]
    assert corpus_bytes(tmp_path / "out") == expected_tokens(tokenizer, ordered, "<u2").tobytes()


def test_a_dataset_of_the_library(
    tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that was saved to disk is described from its first records."""
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_dict({"text": ["one two"] * 50}).save_to_disk(tmp_path / "saved")
    flags = ["--dataset", tmp_path / "saved", "--tokenizer", tokenizer, "--output_path", tmp_path / "out"]
    assert "about 150 tokens in about 50 documents" in run(capsys, *flags, "--dry_run")


def test_numbers() -> None:
    """Three digits count, and bytes have units."""
    assert (show_count(1_234_567.8), show_count(27), show_count(0)) == (
        "about 1,230,000",
        "about 27",
        "about 0",
    )
    assert [show_bytes(n) for n in (999, 1000, 2.5e9, 3e12)] == ["999 bytes", "1.0 kB", "2.5 GB", "3.0 TB"]


def test_the_choice_of_segments(tmp_path: Path) -> None:
    """They are evenly spaced."""
    from tdstream.text.open import open_text
    from tdstream.text.options import TextOptions

    for number in range(10):
        write_jsonl(tmp_path / f"{number}.jsonl", [{"text": "a"}])
    with open_text(TextOptions(dataset=str(tmp_path))) as text:
        assert text.choose_segments(4) == [0, 2, 5, 7]
        assert text.choose_segments(99) == list(range(10))
