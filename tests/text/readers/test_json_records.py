"""Of a JSON record only the text matters, and what is wrong with one record is wrong with that one alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tdstream.core.errors import SourceError
from tdstream.text.fields import Unreadable, find_fault
from tdstream.text.readers import json_records, line_blocks
from tdstream.text.readers.json_records import JsonReader

OTHER_FIELDS = {
    "null, then a string": (None, "s"),
    "null, then a number": (None, 5),
    "null, then a list": (None, [1]),
    "null, then a dict": (None, {"a": 1}),
    "int, then float": (1, 1.5),
    "int, then string": (1, "x"),
    "bool, then string": (True, "x"),
    "date, then a word": ("2020-01-01T00:00:00", "never"),
    "word, then a date": ("never", "2020-01-01"),
    "a dict that gains a key": ({"a": 1}, {"a": 1, "b": 2}),
    "a dict, then a list": ({"a": 1}, [1, 2]),
    "a list that is empty, then of strings": ([], ["s"]),
    "a list of ints, then of dicts": ([1], [{"a": 1}]),
    "beyond 64 bits": (1, 10**30),
    "beyond 5,000 digits": (1, 10**6000),
    "nested deeply": (1, json.loads("[" * 300 + "]" * 300)),
    "string, then nothing": ("s", ...),
    "nothing, then string": (..., "s"),
}
"""The value of another field in all records, and in the last one; ... is none."""


def line(text: str, other: Any) -> bytes:
    """Return a line with a text, and another field unless it is ..."""
    fields = {"text": text} if other is ... else {"other": other, "text": text}
    return _dump(fields) + b"\n"


def _dump(fields: dict[str, Any]) -> bytes:
    big = fields.get("other")
    if isinstance(big, int) and big > 10**4000:
        return _dump({**fields, "other": 0}).replace(b'"other": 0', b'"other": 1' + b"0" * 6000)
    return json.dumps(fields).encode()


def read(path: Path, first_row: int = 0, *parts: str) -> list[Any]:
    """Return the values in the place of the texts of a file, after the first ones."""
    parts = parts or ("text",)
    tables = JsonReader(parts).read(str(path), first_row)
    return [value for table in tables for value in table.texts(",".join(parts))[0]]


def faults(values: list[Any]) -> list[str]:
    """Return what is wrong with each value."""
    return [find_fault(value) for value in values]


class TestOtherFields:
    """Types of other fields never matter."""

    @pytest.mark.parametrize("change", OTHER_FIELDS)
    def test_in_one_file(self, tmp_path: Path, change: str) -> None:
        """From one record to the next, without decoding line by line where Arrow can do it."""
        before, after = OTHER_FIELDS[change]
        path = tmp_path / "a.jsonl"
        path.write_bytes(line("a", before) + line("b", after) + line("c", before))
        assert read(path) == ["a", "b", "c"]

    @pytest.mark.parametrize("change", ["int, then string", "null, then a dict", "a dict that gains a key"])
    def test_at_the_last_record_of_a_large_file(self, tmp_path: Path, change: str) -> None:
        """In another block than the first ones."""
        before, after = OTHER_FIELDS[change]
        path = tmp_path / "a.jsonl"
        many = 17 * 1024
        path.write_bytes(line("x" * 1000, before) * many + line("last", after))
        assert path.stat().st_size > 16 << 20
        values = read(path)
        assert (len(values), values[0], values[-1]) == (many + 1, "x" * 1000, "last")

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        """Bytes that are not UTF-8, and half of a surrogate pair, harm only a text."""
        path = tmp_path / "a.jsonl"
        path.write_bytes(
            b'{"text": "a", "o": "\xff"}\n{"text": "b", "o": "\\ud800"}\n{"text": "c\xff"}\n'
            b'{"text": "\\udc80"}\n'
            b'{"\xff": 1, "text": "e"}\n'
        )
        values = read(path)
        assert [values[row] for row in (0, 1, 4)] == ["a", "b", "e"]
        assert faults(values[2:4]) == [
            "it holds bytes that are not UTF-8",
            "it holds half of a surrogate pair, which stands for no character",
        ]


class TestBadRecords:
    """One bad record is one bad record."""

    LINES = (
        (b'{"text": "good"}', ""),
        (b'{"text": 5}', "it holds int"),
        (b'{"text": ["x"]}', "it holds list"),
        (b'{"text": null}', "it is None or absent"),
        (b"{}", "it is None or absent"),
        (b"null", "it is None or absent"),
        (b"17", "it holds int"),
        (b'{"text": "cut', "it is not JSON: Unterminated string starting, in column 10"),
        (b'{"text": "a"},', "it is not JSON: something follows its end, in column 14"),
        (b'{"text": "a"} {"text": ', "it is not JSON: Expecting value, in column 24"),
        (b'{"text": "tab\there"}', "it is not JSON: Invalid control character, in column 14"),
        (b"\x00\x00\x00", "it is not JSON: Expecting value, in column 1"),
        (b'{"text": "good too"}', ""),
    )

    def test_each(self, tmp_path: Path) -> None:
        """Those around it are read, and it has its number and its line."""
        path = tmp_path / "a.jsonl"
        path.write_bytes(b"\n \n".join(content for content, _ in self.LINES))
        (table,) = JsonReader(["text"]).read(str(path))
        values = table.texts("text")[0]
        assert faults(values) == [fault for _, fault in self.LINES]
        assert (values[0], values[-1]) == ("good", "good too")
        assert table.slice(3, 5).slice(4, None).locate(0) == f"line 15 of {path}"
        assert JsonReader(["text"]).count_rows(str(path)) == len(self.LINES)

    def test_far_into_a_file(self, tmp_path: Path) -> None:
        """Only the block in which it is is decoded line by line; its line is known."""
        path = tmp_path / "a.jsonl"
        good = line("x" * 1000, 1)
        path.write_bytes(good * 20_000 + b"broken\n" + good * 3)
        tables = list(JsonReader(["text"]).read(str(path)))
        texts = [value for table in tables for value in table.texts("text")[0]]
        assert [row for row, value in enumerate(texts) if isinstance(value, Unreadable)] == [20_000]
        before = sum(table.num_rows for table in tables[:-1])
        assert tables[-1].locate(20_000 - before) == f"line 20,001 of {path}"

    def test_a_block_that_begins_with_null(self, tmp_path: Path) -> None:
        """Arrow 26 dies by a segmentation fault there."""
        (tmp_path / "a.jsonl").write_bytes(b'null\n{"text": "a"}\n')
        assert read(tmp_path / "a.jsonl") == [None, "a"]


class TestLayouts:
    """How records lie in a file."""

    @pytest.mark.parametrize(
        "content",
        [
            b'{"text": "a"}\n{"text": "b"}\n{"text": "c"}\n',
            b'{"text": "a"}\r\n\r\n{"text": "b"}\r\n{"text": "c"}',
            b'\xef\xbb\xbf{"text": "a"}\n\xef\xbb\xbf{"text": "b"}\n{"text": "c"}\n',
            b'{"text": "a"}{"text": "b"} {"text": "c"}',
            b'{"text": "a"}\n{"text": "b"}{"text": "c"}\n',
            b'{"text": "a"}\r{"text": "b"}\r{"text": "c"}\r',
            b'[{"text": "a"}, {"text": "b"},{"text": "c"}]',
            b'\n [\n{"text": "a"},\n{"text": "b"}\n,{"text": "c"}\n]\n\n',
            b'["a", "b", "c"]',
            b'{\n  "text": "a",\n  "o": [1,\n 2]\n}\n{\n"text": "b"}\n{"text": "c"}\n',
            b'{"te\\u0078t": "a"}\n{"text": "\\u0062"}\n{"text": "x", "text": "c"}\n',
        ],
    )
    def test_all_give_the_same_records(self, tmp_path: Path, content: bytes) -> None:
        """Lines, an array, or objects one after another; from any record on."""
        path = tmp_path / "a.json"
        path.write_bytes(content)
        assert read(path) == ["a", "b", "c"]
        assert [read(path, row) for row in (1, 2, 3)] == [["b", "c"], ["c"], []]
        assert JsonReader(["text"]).count_rows(str(path)) == 3

    @pytest.mark.parametrize("is_array", [False, True])
    def test_large_files_without_lines(self, tmp_path: Path, is_array: bool) -> None:
        """They are read a piece at a time, wherever the pieces end."""
        texts = [
            f"{number} " + 'é\U0001f600\\"\n'[: number % 6] * (number * 7 % 900) for number in range(2500)
        ]
        records = [
            json.dumps({"text": text, "o": True}, ensure_ascii=number % 2 == 0)
            for number, text in enumerate(texts)
        ]
        path = tmp_path / "a.json"
        content = f"[{','.join(records)}]" if is_array else " ".join(records)
        path.write_text(content, encoding="utf-8")
        assert path.stat().st_size > 3 << 20
        assert read(path) == texts
        assert read(path, 2000) == texts[2000:]

    @pytest.mark.parametrize("content", [b"", b"\n", b"  \n\t\r\n ", b"[]", b" [ ] \n", b"\xef\xbb\xbf"])
    def test_nothing(self, tmp_path: Path, content: bytes) -> None:
        """A file without records holds nothing."""
        (tmp_path / "a.jsonl").write_bytes(content)
        assert read(tmp_path / "a.jsonl") == []
        assert JsonReader(["text"]).count_rows(str(tmp_path / "a.jsonl")) == 0

    @pytest.mark.parametrize(
        ("content", "sentence"),
        [
            (b'[{"text": "a"}, {"text": "b"', r"a\.json was cut: it ends inside the record .* line 1"),
            (b'[{"text": "a"},\n', r"a\.json was cut: the array in it has no end"),
            (b'{\n"text": "a"\n}\n{\n"text": ', r"a\.json was cut: it ends inside the record .* line 4"),
            (b'[{"text": "a"}] 1', r"a\.json goes on after the end of its array, on line 1"),
            (b'[{"text": a}, {"text": "b"}]', r"a\.json is broken on line 1 .*cannot be told apart"),
            ('{"text": "é"}'.encode("utf-16"), r"a\.json is in UTF-16"),
        ],
    )
    def test_files_that_are_broken(self, tmp_path: Path, content: bytes, sentence: str) -> None:
        """Where the rest of a file cannot be told apart it is not passed over."""
        (tmp_path / "a.json").write_bytes(content)
        with pytest.raises(SourceError, match=sentence):
            read(tmp_path / "a.json")

    def test_one_bad_record_of_an_array(self, tmp_path: Path) -> None:
        """It is skipped up to the next line that begins one."""
        (tmp_path / "a.json").write_bytes(b'[\n{"text": "a"},\n{"text": b},\n{"text": "c"}\n]\n')
        values = read(tmp_path / "a.json")
        assert (values[0], values[2]) == ("a", "c")
        assert find_fault(values[1]) == "it is not JSON: Expecting value, in column 10"


class TestParts:
    """Nested and joined fields."""

    @pytest.mark.parametrize("is_fast", [True, False])
    def test_nested(self, tmp_path: Path, is_fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """A path, or a name with a dot, by Arrow and line by line alike."""
        if not is_fast:
            monkeypatch.setattr(json_records, "_LARGEST_PARSED", 0)
        rows: list[dict[str, Any]] = [
            {"m": {"t": "a", "n": 1}}, {"m": {"t": "b", "x": []}}, {"m": None}, {}, {"m": {"n": "x"}},
            {"m.t": "c", "m": {"t": "no"}}, {"m.t": None, "m": {"t": "d"}},
        ]  # fmt: skip
        (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
        assert read(tmp_path / "a.jsonl", 0, "m.t") == ["a", "b", None, None, None, "c", "d"]

    def test_a_dict_that_is_no_dict(self, tmp_path: Path) -> None:
        """What is no object has no fields."""
        (tmp_path / "a.jsonl").write_text(
            '{"m": {"t": "a"}}\n{"m": 5}\n{"m": [{"t": "x"}]}\n{"m": {"t": 1}}\n'
        )
        assert read(tmp_path / "a.jsonl", 0, "m.t") == ["a", None, None, 1]

    def test_joined(self, tmp_path: Path) -> None:
        """Each part may be absent."""
        (tmp_path / "a.jsonl").write_text('{"t": "T", "b": "x"}\n{"b": "y", "z": 1}\n{"t": ""}\n{"z": 2}\n')
        assert read(tmp_path / "a.jsonl", 0, "t", "b") == ["T\n\nx", "y", "", None]


@pytest.mark.parametrize("block_bytes", [1, 30, 64, 1000])
def test_blocks_of_any_size(tmp_path: Path, block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a block ends changes nothing, and reading goes on at any record."""
    monkeypatch.setattr(line_blocks.divide, "__defaults__", (block_bytes,))
    monkeypatch.setattr(line_blocks, "HEAD_BYTES", block_bytes)
    lines = [line(f"{number}" * (number % 5), "x" if number % 7 else 1) for number in range(40)]
    lines[11:11] = [b"\n", b'{"text": "p"}{"text": "q"}\n', b"  \n", b"bad\n"]
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines))
    whole = read(tmp_path / "a.jsonl")
    assert len(whole) == 43
    for row in range(0, 44, 3):
        assert read(tmp_path / "a.jsonl", row) == whole[row:]
    assert JsonReader(["text"]).count_rows(str(tmp_path / "a.jsonl")) == 43
