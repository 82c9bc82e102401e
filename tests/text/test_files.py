"""Patterns and directories name files in the order of their paths; none is read twice, and none left out."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import tdstream
from helpers_text import corpus_bytes, expected_tokens, write_jsonl
from tdstream.cli.main import main
from tdstream.core.errors import ConfigError, OutputError, SourceError
from tdstream.preparation.engine import prepare_corpus
from tdstream.preparation.options import PrepareOptions


def write(path: Path, *texts: str) -> Path:
    """Write texts into a file of the kind that its name tells."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(f'{{"text": "{text}"}}\n' for text in texts).encode()
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"text": list(texts)}), path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines))
    elif path.suffix == ".zst":
        path.write_bytes(zstandard.ZstdCompressor().compress(lines))
    elif path.suffix == ".csv":
        path.write_text("\n".join(["text", *texts]) + "\n")
    elif path.suffix == ".txt":
        path.write_text("\n".join(texts))
    else:
        path.write_bytes(lines)
    return path


@pytest.fixture
def prepared(tmp_path: Path, tokenizer_dir: Path) -> Callable[..., bytes]:
    """Return a function that prepares a dataset and returns the bytes of the corpus."""

    def run(dataset: Path | str, **named: Any) -> bytes:
        options = PrepareOptions.of(
            dataset=str(dataset), tokenizer=str(tokenizer_dir), encoder="hf", output_path=tmp_path / "out",
            **named,
        )  # fmt: skip
        prepare_corpus(options)
        return corpus_bytes(tmp_path / "out")

    return run


@pytest.fixture
def tokens(tokenizer_dir: Path) -> Callable[..., bytes]:
    """Return a function that returns the bytes of some documents."""
    return lambda *texts: expected_tokens(tokenizer_dir, list(texts), "<u2").tobytes()


class TestPatterns:
    """--dataset with stars."""

    def test_order(self, tmp_path: Path, prepared: Any, tokens: Any) -> None:
        """Files of all directories below are read in the order of their paths, as text."""
        for name in ("b/2", "b/10", "c", "a/x/y", "a1/z"):
            write(tmp_path / f"data/{name}.jsonl", name)
        (tmp_path / "data/b/note.md").write_text("not matched")
        assert prepared(tmp_path / "data/**/*.jsonl") == tokens("a/x/y", "a1/z", "b/10", "b/2", "c")

    @pytest.mark.parametrize("ending", ["parquet", "jsonl", "jsonl.gz", "jsonl.zst", "csv", "txt"])
    def test_kinds(self, tmp_path: Path, prepared: Any, tokens: Any, ending: str) -> None:
        """Every kind of file can be matched, and other files beside it do not matter."""
        for name in ("p1", "p2", "q1"):
            write(tmp_path / f"data/{name}.{ending}", f"text {name}")
        write(tmp_path / "data/other.tsv", "x")
        assert prepared(tmp_path / f"data/p?.{ending}") == tokens("text p1", "text p2")

    def test_compressed_and_plain(self, tmp_path: Path, prepared: Any, tokens: Any) -> None:
        """The same kind, compressed and not, is one kind."""
        for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl.zst", "d.json"):
            write(tmp_path / "data" / name, name)
        assert prepared(tmp_path / "data/*.json*") == tokens("a.jsonl", "b.jsonl.gz", "c.jsonl.zst", "d.json")

    def test_a_file_beside_its_compressed_copy(
        self, tmp_path: Path, prepared: Any, tokens: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Both are read, since they may differ, and a warning names them; other files have no twin."""
        for name in ("a.jsonl", "a.jsonl.gz", "b.jsonl", "c/a.jsonl.zst", "c/b.jsonl.gz"):
            write(tmp_path / "data" / name, name[0])
        assert prepared(tmp_path / "data") == tokens("a", "a", "b", "c", "c")
        said = [record.getMessage() for record in caplog.records if "read twice" in record.getMessage()]
        assert len(said) == 1
        assert f"{tmp_path}/data/a.jsonl is read, and so is {tmp_path}/data/a.jsonl.gz. If one" in said[0]

    def test_lines(self, tmp_path: Path, prepared: Any, tokens: Any) -> None:
        """Text files are one document each, or one per line."""
        for name in ("a", "b"):
            write(tmp_path / f"data/{name}.txt", f"{name}1", f"{name}2")
        assert prepared(tmp_path / "data/*.txt") == tokens("a1\na2", "b1\nb2")
        lines = prepared(tmp_path / "data/*.txt", lines=True, overwrite=True)
        assert lines == tokens("a1", "a2", "b1", "b2")

    def test_a_file_whose_name_is_a_pattern(self, tmp_path: Path, prepared: Any, tokens: Any) -> None:
        """A file that has just this name is meant."""
        write(tmp_path / "a*.jsonl", "star")
        write(tmp_path / "ab.jsonl", "other")
        assert prepared(tmp_path / "a*.jsonl") == tokens("star")

    @pytest.mark.parametrize(
        ("pattern", "sentence"),
        [
            ("data/**/*.csv", r"^No file matches '.*csv'\. Check the pattern"),
            ("da*", r"^No file matches '.*', only 1 directories; end the pattern with /\*\*/\*\.jsonl"),
            (
                "data/*",
                r"holds files of several kinds, such as .*a\.jsonl and .*b\.parquet\. Prepare one kind",
            ),
            ("data/*/*", r"c\.docx is of no known kind; expected one of \.parquet"),
        ],
    )
    def test_refusals(self, tmp_path: Path, prepared: Any, pattern: str, sentence: str) -> None:
        """What matches nothing, several kinds, or an unknown kind is refused, and nothing is written."""
        write(tmp_path / "data/a.jsonl", "a")
        write(tmp_path / "data/b.parquet", "b")
        write(tmp_path / "data/c/c.docx", "c")
        with pytest.raises(SourceError, match=sentence):
            prepared(tmp_path / pattern)
        assert not (tmp_path / "out").exists()

    def test_data_files_beside_a_pattern(self, tmp_path: Path, prepared: Any) -> None:
        """A pattern names its files itself."""
        write(tmp_path / "a.jsonl", "a")
        with pytest.raises(ConfigError, match=r"names the files itself"):
            prepared(tmp_path / "*.jsonl", data_files=("a.jsonl",))


class TestDirectories:
    """--dataset with a directory."""

    def test_all_below(self, tmp_path: Path, prepared: Any, tokens: Any) -> None:
        """All files below are read in the order of their paths; cards, licenses and hidden ones are not."""
        for name in ("b/2", "b/10", "c", "a/x"):
            write(tmp_path / f"data/{name}.jsonl", name)
        write(tmp_path / "data/.hidden/z.jsonl", "hidden")
        for name in ("README.md", "LICENSE.txt", "b/readme.txt"):
            (tmp_path / "data" / name).write_text("about")
        assert prepared(tmp_path / "data") == tokens("a/x", "b/10", "b/2", "c")

    @pytest.mark.parametrize("other", ["z.parquet", "z/z.csv", "z.txt"])
    def test_several_kinds(self, tmp_path: Path, prepared: Any, other: str) -> None:
        """A directory with files of several kinds is refused instead of being read in part."""
        write(tmp_path / "data/a.jsonl", "a")
        write(tmp_path / "data/b.jsonl", "b")
        write(tmp_path / "data" / other, "z")
        with pytest.raises(
            SourceError, match=rf"data' holds files of several kinds, such as .*a\.jsonl and .*{other}"
        ):
            prepared(tmp_path / "data")

    def test_files_that_belong_to_no_split(self, tmp_path: Path, prepared: Any) -> None:
        """A directory that looks like a split does not let the others be forgotten."""
        write(tmp_path / "data/train/a.jsonl", "a")
        write(tmp_path / "data/x/b.jsonl", "b")
        with pytest.raises(
            SourceError, match=r"1 files of .*data belong to none of its splits, such as .*x/b\.jsonl"
        ):
            prepared(tmp_path / "data")
        assert prepared(tmp_path / "data/**/*.jsonl")

    def test_a_card_that_chooses(self, tmp_path: Path, prepared: Any, tokens: Any) -> None:
        """Where the dataset's card says which files are data, the others are not missed."""
        write(tmp_path / "data/a.jsonl", "a")
        write(tmp_path / "data/b.jsonl", "b")
        (tmp_path / "data/README.md").write_text(
            "---\nconfigs:\n- config_name: default\n  data_files: b.jsonl\n---\n"
        )
        assert prepared(tmp_path / "data") == tokens("b")

    def test_saved_to_disk(self, tmp_path: Path, prepared: Any, tokens: Any) -> None:
        """What save_to_disk has written is read as that dataset."""
        one = datasets.Dataset.from_dict({"text": ["a", "b"], "id": [1, 2]})
        one.save_to_disk(tmp_path / "one")
        datasets.DatasetDict(train=one, test=one.select([1])).save_to_disk(tmp_path / "two")
        assert prepared(tmp_path / "one") == tokens("a", "b")
        assert prepared(tmp_path / "two", split="test", overwrite=True) == tokens("b")

    def test_as_it_is(
        self, tmp_path: Path, prepared: Any, tokens: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Of a directory with links and leftovers each document is read once, and the rest is said."""
        for name in ("2024-01/a", "2024-02/b", "a.jsonl.bak", "a.jsonl.tmp", "meta.json"):
            write(tmp_path / (f"data/{name}" if "." in name else f"data/{name}.jsonl"), name)
        write(tmp_path / "elsewhere/c.jsonl", "c")
        (tmp_path / "data/latest").symlink_to("2024-02")
        (tmp_path / "data/self").symlink_to(".")
        (tmp_path / "data/more").symlink_to("../elsewhere")
        expected = tokens("2024-01/a", "2024-02/b", "c")
        for dataset in ("data", "data/**", "data/**/*.jsonl"):
            assert prepared(tmp_path / dataset, overwrite=True) == expected
        left_out = (
            "1 already read under another path (latest/), 1 describing data (meta.json), 1 leading back"
        )
        assert f"8 files (3 jsonl, 5 left out: {left_out} up (self/), 2 temporary (a.jsonl" in caplog.text

    def test_odd_names(self, tmp_path: Path, prepared: Any, tokens: Any) -> None:
        """Names that mean something elsewhere are read as they are."""
        odd = ("a[1]", "b*", "c?", "d%20e", "f#g", "h::i", "j\nk", "l m", "ä", os.fsdecode(b"n\xff"))
        for name in odd:
            write(tmp_path / f"data/{name}/{name}.jsonl", repr(name).replace("\\", "/"))
        expected = [tokens(repr(name).replace("\\", "/")) for name in sorted(odd)]
        assert prepared(tmp_path / "data") == b"".join(expected)
        for name, content in zip(sorted(odd), expected, strict=True):
            assert prepared(tmp_path / f"data/{name}", overwrite=True) == content

    def test_places(
        self, tmp_path: Path, tokenizer_dir: Path, tokens: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The command reads the directory that is meant, wherever it is called."""
        write(tmp_path / "json/a.jsonl", "a")
        write(tmp_path / "json/b/c.jsonl", "c")
        write(tmp_path / "other.jsonl", "other")
        (tmp_path / "link").symlink_to("json/b")
        places = [("json", "."), ("json/b", ".."), ("json/b", "../../json"), (".", "json"), ("link", "..")]
        for number, (place, dataset) in enumerate(places):
            monkeypatch.chdir(tmp_path / place)
            output = tmp_path / f"out{number}"
            options = {"dataset": dataset, "tokenizer": tokenizer_dir, "encoder": "hf", "output_path": output}
            assert main(["prepare", *(f"--{name}={value}" for name, value in options.items())]) == 0
            assert corpus_bytes(output) == tokens("a", "c")

    def test_output_inside(self, tmp_path: Path, prepared: Any) -> None:
        """A corpus inside the directory that is read is refused before anything is written."""
        write(tmp_path / "a.jsonl", "a")
        with pytest.raises(OutputError, match=r"out lies in .*, which is read with all that is in it"):
            prepared(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]

    def test_count_inside(self, tmp_path: Path, tokenizer_dir: Path) -> None:
        """So is a count."""
        write(tmp_path / "a.jsonl", "a")
        with pytest.raises(OutputError, match=r"counts lies in .*, which is read"):
            tdstream.count(tmp_path, tokenizer=tokenizer_dir, cache_dir=tmp_path / "counts")


class TestDataFiles:
    """--data_files with patterns."""

    def test_order(self, tmp_path: Path, prepared: Any, tokens: Any) -> None:
        """Patterns are taken in the order given, the files of each in the order of their paths."""
        for name in ("a1", "a2", "b1"):
            write(tmp_path / f"data/{name}.jsonl", name)
        assert prepared(tmp_path / "data", data_files=("b*.jsonl", "a*.jsonl")) == tokens("b1", "a1", "a2")
        absolute = (f"{tmp_path}/data/**/*2.jsonl", f"{tmp_path}/data/b1.jsonl")
        assert prepared("json", data_files=absolute, overwrite=True) == tokens("a2", "b1")

    def test_twice(self, tmp_path: Path, prepared: Any, tokens: Any) -> None:
        """Patterns that overlap are refused; a name that is given twice is what was asked for."""
        write(tmp_path / "data/a.jsonl", "a")
        with pytest.raises(ConfigError, match=r"data_files names .*a\.jsonl twice\. Each file may match"):
            prepared(tmp_path / "data", data_files=("a.jsonl", "*.jsonl"))
        assert prepared(tmp_path / "data", data_files=("a.jsonl", "a.jsonl")) == tokens("a", "a")

    def test_refusals(self, tmp_path: Path, prepared: Any) -> None:
        """Nothing that matches, or several kinds, is refused."""
        write(tmp_path / "data/a.jsonl", "a")
        write(tmp_path / "data/b.parquet", "b")
        for pattern in ("c*", "c.jsonl", "**/c.jsonl"):
            with pytest.raises(SourceError, match=r"^No file matches '.*' of data_files in .*data\. Check"):
                prepared(tmp_path / "data", data_files=("a.jsonl", pattern))
        with pytest.raises(SourceError, match=r"'data_files' holds files of several kinds"):
            prepared(tmp_path / "data", data_files=("*",))


def test_resume_sees_a_file_more(tmp_path: Path, prepared: Any) -> None:
    """What a pattern matches is part of what a preparation is."""
    write_jsonl(
        tmp_path / "a.jsonl", [{"text": f"{number} a b c"} for number in range(50)] + [{"text": None}]
    )
    with pytest.raises(SourceError, match=r"Record 50 .*tokens are safe"):
        prepared(tmp_path / "*.jsonl", tokens_per_chunk=50, batch_size=5)
    write(tmp_path / "b.jsonl", "more")
    with pytest.raises(ConfigError, match=r"other settings: files was 1 file of .* bytes, is 2 files of "):
        prepared(tmp_path / "*.jsonl", tokens_per_chunk=50, resume=True)
