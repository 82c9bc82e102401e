"""The bytes of a text file are the bytes of its document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tdstream.text.fields import find_fault
from tdstream.text.readers import line_blocks
from tdstream.text.readers.plain_text import TextReader


def read(path: Path, first_row: int = 0, *, lines: bool = False) -> list[Any]:
    """Return the documents of a file, after the first ones."""
    tables = TextReader(["text"], lines=lines).read(str(path), first_row)
    return [value for table in tables for value in table.texts("text")[0]]


@pytest.mark.parametrize("content", ["", "\n", "a", "a\r\nb\rc\n\r\n", "é\u2028\x0c\x00\n", "a\ufeffb"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_documents(tmp_path: Path, content: str, mark: str) -> None:
    """Every character stays, but for the byte order mark at the head."""
    (tmp_path / "a.txt").write_bytes((mark + content).encode())
    assert read(tmp_path / "a.txt") == [content]
    assert read(tmp_path / "a.txt", 1) == []


@pytest.mark.parametrize("block_bytes", [1, 5, 1 << 20])
def test_lines(tmp_path: Path, block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """LF, CR LF and CR end a line, as they always did; empty lines are documents."""
    monkeypatch.setattr(line_blocks.divide, "__defaults__", (block_bytes,))
    monkeypatch.setattr(line_blocks, "HEAD_BYTES", 4)
    (tmp_path / "a.txt").write_bytes("\ufeffa\r\nb\rc\n\n d \x0c\u2028e\n\r\nf".encode())
    lines = ["a", "b", "c", "", " d \x0c\u2028e", "", "f"]
    for row in range(len(lines) + 1):
        assert read(tmp_path / "a.txt", row, lines=True) == lines[row:]
    assert TextReader(["text"], lines=True).count_rows(str(tmp_path / "a.txt")) == len(lines)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    """One document, or one line, is bad, with its place."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\nb\xff\nc\n")
    assert find_fault(read(path)[0]) == "it holds bytes that are not UTF-8"
    (table,) = TextReader(["text"], lines=True).read(str(path))
    assert [find_fault(value) for value in table.texts("text")[0]] == [
        "",
        "it holds bytes that are not UTF-8",
        "",
    ]
    assert table.slice(1, 1).locate(0) == f"line 2 of {path}"
