"""Comma-separated text has quoted fields, tab-separated text has none; one bad row is one bad record."""

from __future__ import annotations

import csv
import logging
from pathlib import Path
from typing import Any

import pytest

from tdstream.core.errors import SourceError
from tdstream.text.fields import find_fault
from tdstream.text.readers.delimited import DelimitedReader


def read(path: Path, first_row: int = 0, *parts: str) -> list[Any]:
    """Return the values in the place of the texts of a file, after the first rows."""
    reader = DelimitedReader(parts or ("text",), "\t" if path.suffix == ".tsv" else ",")
    return [value for table in reader.read(str(path), first_row) for value in table.texts("")[0]]


def write(path: Path, content: bytes) -> Path:
    """Write a file."""
    path.write_bytes(content)
    return path


class TestCommas:
    """Comma-separated text."""

    CONTENT = (
        b"\xef\xbb\xbfid,text\r\n1,007\r\n\r\n  \r\n"
        b'2,"a, ""b""\r\nc\rd\ne"\r\n3,NA\r\n4,\r\n5,d"e"\r\n6,""\r\n'
    )
    TEXTS = ("007", 'a, "b"\r\nc\rd\ne', "NA", "", 'd"e"', "")

    def test_bytes_of_texts(self, tmp_path: Path) -> None:
        """Quoted line ends stay as they are; numbers and NA are texts; blank lines are no rows."""
        path = write(tmp_path / "a.csv", self.CONTENT)
        for row in range(len(self.TEXTS) + 1):
            assert read(path, row) == list(self.TEXTS[row:])
        assert DelimitedReader((), ",").count_rows(str(path)) == len(self.TEXTS)

    def test_as_written_by_the_standard_library(self, tmp_path: Path) -> None:
        """What csv.writer writes comes back."""
        texts = ["", '"', "a\nb", ",", "é\r", "x" * 200_000, "'", "\\"]
        with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([["n", "text"], *([n, text] for n, text in enumerate(texts))])
        assert read(tmp_path / "a.csv") == texts

    def test_bad_rows(self, tmp_path: Path) -> None:
        """A row with too many fields, too few, or bytes that are not UTF-8, is one bad record."""
        path = write(tmp_path / "a.csv", b'id,text\n1,"a\n"\n2,b,c\n3\n4,\xff\n5,e,,\n\xff,f\n')
        (table,) = DelimitedReader(("text",), ",").read(str(path))
        values = table.texts("text")[0]
        assert [find_fault(value) for value in values] == [
            "", "it has 3 fields, and the header 2", "it is None or absent",
            "it holds bytes that are not UTF-8", "", "",
        ]  # fmt: skip
        assert [values[row] for row in (0, 4, 5)] == ["a\n", "e", "f"]
        assert [table.locate(row) for row in (0, 1, 5)] == [
            f"line {number} of {path}" for number in (2, 4, 8)
        ]

    def test_a_quotation_mark_that_is_never_closed(self, tmp_path: Path) -> None:
        """The rest of the file would be one text."""
        with pytest.raises(SourceError, match=r"a\.csv has a quotation mark on line 3 that is never closed"):
            read(write(tmp_path / "a.csv", b'text\na\n"b\nc\nd\n'))

    def test_a_row_of_very_many_lines(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """It is read, and said once."""
        many = "x\n" * 1000
        with caplog.at_level(logging.WARNING, logger="tdstream"):
            assert read(write(tmp_path / "a.csv", f'text\na\n"{many}"\n"{many}"\n'.encode())) == [
                "a",
                many,
                many,
            ]
        (message,) = caplog.messages
        assert message.endswith(
            "goes from line 3 to line 1,003. If that is no long document, a quotation mark on line 3 is not "
            "closed, and its text has swallowed other rows."
        )

    @pytest.mark.parametrize("content", [b"", b"\n", b" \n\r\n", b"id,text\n", b"\xef\xbb\xbf"])
    def test_nothing(self, tmp_path: Path, content: bytes) -> None:
        """A file without rows holds nothing."""
        path = write(tmp_path / "a.csv", content)
        assert (read(path), DelimitedReader((), ",").count_rows(str(path))) == ([], 0)


class TestTabs:
    """Tab-separated text."""

    def test_quotation_marks(self, tmp_path: Path) -> None:
        """They are characters, and every line is a record."""
        path = write(tmp_path / "a.tsv", b'id\ttext\n1\t"a\n2\tb"\r\n\n3\t5" x 7"\n4\t\n5\t \xc2\xa0\n')
        assert read(path) == ['"a', 'b"', '5" x 7"', "", " \xa0"]
        assert read(path, 3) == ["", " \xa0"]

    def test_quoting_by_a_program(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """What looks quoted is said once; a row that was divided by it is a bad record."""
        path = write(tmp_path / "a.tsv", b'id\ttext\n1\t"say ""a"""\n2\t"b\tc"\n3\t"say ""d"""\n')
        with caplog.at_level(logging.WARNING, logger="tdstream"):
            values = read(path)
        assert (values[0], values[2]) == ('"say ""a"""', '"say ""d"""')
        assert find_fault(values[1]).startswith(
            "it has 3 fields, and the header 2 (quotation marks do not group"
        )
        assert [
            record.getMessage().count("texts in quotation marks, such as on line 2")
            for record in caplog.records
        ] == [1]


def test_joined_and_absent_columns(tmp_path: Path) -> None:
    """Columns are joined; one that this file does not have is absent."""
    path = write(tmp_path / "a.csv", b"b,x,a\nB,1,A\n,2,A\n")
    assert read(path, 0, "a", "b") == ["A\n\nB", "A"]
    assert read(path, 0, "c", "b") == ["B", ""]
    assert read(path, 0, "c") == [None, None]
