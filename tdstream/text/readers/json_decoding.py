"""Records out of JSON text, one by one; what is broken becomes one bad record."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from tdstream.core.errors import SourceError
from tdstream.text.fields import Unreadable

_SPACE = " \t\n\r"
_LONGEST_INT = 4000  # digits; Python refuses to convert more, and no text depends on it
_PIECE = 1 << 20
_NEAR = 64  # characters: a word, a number or an escape that is cut there is reported where it begins


def _to_int(digits: str) -> int | float:
    return int(digits) if len(digits) <= _LONGEST_INT else float("inf")


_DECODER = json.JSONDecoder(parse_int=_to_int)


def decode_line(line: bytes) -> list[Any]:
    """Return the records of a line that is not blank: one, or several objects that follow each other.

    A line that is broken anywhere is one `Unreadable`.
    """
    text = _decode_bytes(line).removeprefix("\ufeff")
    records: list[Any] = []
    place = _skip_space(text, 0)
    while place < len(text):
        if records and not (text[place] == "{" and isinstance(records[-1], dict)):
            return [Unreadable(f"it is not JSON: something follows its end, in column {place + 1:,}")]
        try:
            record, place = decode_value(text, place)
        except ValueError as error:
            return [Unreadable(f"it is not JSON: {describe(error)}")]
        records.append(record)
        place = _skip_space(text, place)
    return records or [Unreadable("it is not JSON: the line holds a byte order mark alone")]


def decode_value(text: str, place: int) -> tuple[Any, int]:
    """Return the value that begins at a place, and where it ends; a text that is no UTF-8 is bytes.

    Raises:
        json.JSONDecodeError: If there is no complete value.
        ValueError: If it is nested too deeply.
    """
    try:
        value, end = _DECODER.raw_decode(text, place)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return (value if _is_utf8(text, place, end) else _mark_bytes(value)), end


def describe(error: ValueError) -> str:
    """Return what is wrong, and the column."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.removesuffix(' at')}, in column {error.colno:,}"
    return str(error)


def is_unfinished(error: ValueError, text: str) -> bool:
    """Return whether a text is right up to its end, and something is missing there."""
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.pos >= len(text.rstrip(_SPACE)) or error.msg.startswith("Unterminated string")


def _decode_bytes(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("utf-8", "surrogateescape")


def _is_utf8(text: str, begin: int, end: int) -> bool:
    """Return whether a part of a decoded file was UTF-8; what was not stands in it as surrogates."""
    part = text if (begin, end) == (0, len(text)) else text[begin:end]
    if part.isascii():
        return True
    try:
        part.encode()
    except UnicodeEncodeError:
        return False
    return True


def _mark_bytes(value: Any) -> Any:
    """Return a value with those texts as bytes that were not UTF-8 in the file."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogateescape") if not _has_escape(value) else value
        return value
    if isinstance(value, dict):
        return {_mark_key(name): _mark_bytes(inner) for name, inner in value.items()}
    return value


def _has_escape(text: str) -> bool:
    """Return whether a text has a surrogate that no byte of a file stands for."""
    return any("\ud800" <= char <= "\udfff" and not "\udc80" <= char <= "\udcff" for char in text)


def _mark_key(name: str) -> str:
    return name.encode("utf-8", "surrogateescape" if not _has_escape(name) else "replace").decode(
        "utf-8", "replace"
    )


def _skip_space(text: str, place: int) -> int:
    while place < len(text) and text[place] in _SPACE:
        place += 1
    return place


class ValueStream:
    """The values of a JSON file that has not one record per line: an array, or objects one after another.

    Iterate over (record, line): the number of the line on which it begins, counted from 1.
    """

    def __init__(self, file: BinaryIO, path: str, head: bytes) -> None:
        self._file, self._path = file, path
        self._decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
        self._text = self._decode(head)
        self._place, self._line, self._ended = 0, 1, False

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        if self._peek() != "[":
            yield from self._read_values()
            return
        self._place += 1
        yield from self._read_array()
        self._peek()
        if self._place < len(self._text):
            raise SourceError(f"{self._path} goes on after the end of its array, on line {self._line:,}.")

    def _read_values(self) -> Iterator[tuple[Any, int]]:
        while self._peek():
            yield self._read_value()

    def _read_array(self) -> Iterator[tuple[Any, int]]:
        is_first = True
        while True:
            char = self._peek()
            if char == "]":
                self._place += 1
                return
            if char == "," and not is_first:
                self._place += 1
                char = self._peek()
            if not char:
                raise SourceError(
                    f"{self._path} was cut: the array in it has no end. Make it again, or copy it again."
                )
            yield self._read_value()
            is_first = False

    def _read_value(self) -> tuple[Any, int]:
        """Return the value here, and its line; after a broken one, go to the next line that begins one."""
        line = self._line
        while True:
            try:
                record, end = decode_value(self._text, self._place)
            except ValueError as error:
                if self._may_go_on(error) and self._read_more():
                    continue
                if is_unfinished(error, self._text):
                    raise SourceError(
                        f"{self._path} was cut: it ends inside the record that begins on line {line:,}. Make "
                        f"it again, or copy it again."
                    ) from None
                reason = f"it is not JSON: {describe(error)}"
                self._skip_broken(line, reason)
                return Unreadable(reason), line
            if end == len(self._text) and self._read_more():  # a number may go on
                continue
            self._move(end)
            return record, line

    def _skip_broken(self, line: int, reason: str) -> None:
        """Go to the next line that begins an object."""
        while True:
            end = self._text.find("\n", self._place)
            while end >= 0:
                start = _skip_space(self._text, end + 1)
                if self._text.startswith("{", start):
                    self._move(start)
                    return
                end = self._text.find("\n", end + 1)
            if not self._read_more():
                break
        raise SourceError(
            f"{self._path} is broken on line {line:,} ({reason}), and what follows cannot be told apart. "
            f"Repair it."
        )

    def _may_go_on(self, error: ValueError) -> bool:
        """Return whether a value may be right if more of the file is read."""
        place = getattr(error, "pos", 0)
        return place >= len(self._text) - _NEAR or is_unfinished(error, self._text)

    def _peek(self) -> str:
        """Return the next character that is no space; empty at the end."""
        while True:
            self._move(_skip_space(self._text, self._place))
            if self._place < len(self._text):
                return self._text[self._place]
            if not self._read_more():
                return ""

    def _move(self, place: int) -> None:
        self._line += self._text.count("\n", self._place, place)
        self._place = place

    def _read_more(self) -> bool:
        """Read as much again as is open, so that a long value is not decoded too often; False at the end."""
        if self._ended:
            return False
        rest = self._text[self._place :]
        piece = self._file.read(max(_PIECE, len(rest)))
        self._ended = not piece
        self._text, self._place = rest + self._decode(piece, self._ended), 0
        return True
