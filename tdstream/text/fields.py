"""The text in a record: a field, a field inside a field, or several fields that are joined.

A text field is named by a path, in which a dot goes one level deeper: ``meta.title``. A field whose own name
contains the dot is preferred. Paths with commas between them, ``title,text``, are joined by an empty line; a
part that is absent or empty is left out, and a record has no text only if all of its parts are absent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import SourceError

_JOINER = "\n\n"
_MOST_NAMES = 40
_MOST_CHARACTERS = 1 << 20  # encoded at once
_ABSENT = object()


class Table(Protocol):
    """Consecutive records."""

    @property
    def num_rows(self) -> int:
        """How many."""
        ...

    def slice(self, first: int, count: int | None) -> Table:
        """Return some of them; a count of None means all that follow."""
        ...

    def texts(self, text_field: str) -> tuple[list[Any], list[str]]:
        """Return the value in the place of each text, and the parts of the field that no record has."""
        ...

    def list_fields(self) -> list[str]:
        """Return the paths of all fields."""
        ...

    def list_filled(self) -> list[str]:
        """Return the names of the first record's fields that have a value."""
        ...

    def locate(self, row: int) -> str:
        """Return the place of a record in its file; empty if it is from none."""
        ...


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands for a record, or a text, that cannot be read."""

    reason: str
    """What is wrong with it: "it is not JSON: ..."."""


class Rows:
    """Records as Python objects: each a text, or a dict with one."""

    def __init__(self, records: Sequence[Any]) -> None:
        self._records = records

    @property
    def num_rows(self) -> int:
        """How many."""
        return len(self._records)

    def slice(self, first: int, count: int | None) -> Rows:
        """Return some of them; a count of None means all that follow."""
        return Rows(self._records[first : None if count is None else first + count])

    def texts(self, text_field: str) -> tuple[list[Any], list[str]]:
        """Return the value in the place of each text, and the parts of the field that no record has."""
        if {str}.issuperset(map(type, self._records)):
            return list(self._records), []
        names = set().union(*(record for record in self._records if isinstance(record, Mapping)))
        if not names:
            return [_as_str(record) for record in self._records], []
        parts = split_text_field(text_field, names)
        found = {part: [_find_text(record, part) for record in self._records] for part in parts}
        missing = [part for part, values in found.items() if all(value is _ABSENT for value in values)]
        columns = [[None if value is _ABSENT else value for value in values] for values in found.values()]
        return join_columns(columns), missing

    def list_fields(self) -> list[str]:
        """Return the paths of all fields."""
        return list(dict.fromkeys(path for record in self._records for path in _list_paths(record)))

    def list_names(self) -> list[str]:
        """Return the names of all fields, without those inside others."""
        records = (record for record in self._records if isinstance(record, Mapping))
        return list(dict.fromkeys(name for record in records for name in record))

    def list_filled(self) -> list[str]:
        """Return the names of the first record's fields that have a value."""
        first = self._records[0]
        items = first.items() if isinstance(first, Mapping) else ()
        return [str(name) for name, value in items if value is not None]

    def locate(self, row: int) -> str:  # noqa: ARG002 - these are in memory
        """Return nothing."""
        return ""


def split_text_field(text_field: str, names: Iterable[str]) -> list[str]:
    """Return the paths of a text field: "a,b" is ["a", "b"], unless a field of that very name exists."""
    return [text_field] if text_field in names else [part.strip() for part in text_field.split(",")]


def split_path(path: str) -> Iterator[tuple[str, str]]:
    """Yield each way to divide a path at a dot, the longest head first.

    "a.b.c" gives ("a.b.c", ""), ("a.b", "c"), ("a", "b.c").
    """
    names = path.split(".")
    for count in range(len(names), 0, -1):
        yield ".".join(names[:count]), ".".join(names[count:])


def find_value(record: Any, path: str, absent: Any = None) -> Any:
    """Return the value at a path in a record, `absent` if there is none."""
    if not isinstance(record, Mapping):
        return absent
    found = record.get(path, absent)
    if found is not absent:
        return found
    for head, rest in split_path(path):
        if rest and head in record:
            found = find_value(record[head], rest, absent)
            if found is not absent:
                return found
    return absent


def _find_text(record: Any, path: str) -> Any:
    """Return the value at a path in a record; a record that is no dict, itself."""
    if type(record) is dict:  # the usual case, fast
        found = record.get(path)
        if type(found) is str:
            return found
    return _as_str(find_value(record, path, _ABSENT) if isinstance(record, Mapping) else record)


def join_columns(columns: list[list[Any]]) -> list[Any]:
    """Return the text of each record from the values of each part.

    It is None where all parts are absent; where a part is no text, it is that part.
    """
    return columns[0] if len(columns) == 1 else [_join(parts) for parts in zip(*columns, strict=True)]


def _join(parts: tuple[Any, ...]) -> Any:
    present = [part for part in parts if part is not None]
    bad = next((part for part in present if not isinstance(part, str)), None)
    if bad is not None or not present:
        return bad
    return _JOINER.join(part for part in present if part)


def _list_paths(record: Any) -> Iterator[str]:
    for name, value in record.items() if isinstance(record, Mapping) else ():
        if isinstance(value, Mapping) and value:
            yield from (f"{name}.{path}" for path in _list_paths(value))
        else:
            yield str(name)


def _as_str(value: Any) -> Any:
    """Return a value; a text of a subclass of str, such as numpy's, as a str."""
    return str.__str__(value) if isinstance(value, str) and type(value) is not str else value


def measure_texts(values: list[Any]) -> NDArray[np.int64] | None:
    """Return the bytes of each text in UTF-8; None if one of the values is no text."""
    if not {str}.issuperset(map(type, values)):
        return None
    try:
        sizes = [len(value) if value.isascii() else _count_bytes(value) for value in values]
    except UnicodeEncodeError:
        return None
    return np.array(sizes, np.int64)


def _count_bytes(text: str) -> int:
    """Return the bytes of a text in UTF-8, without a copy of all of a long one."""
    if len(text) <= _MOST_CHARACTERS:
        return len(text.encode())
    starts = range(0, len(text), _MOST_CHARACTERS)
    return sum(len(text[start : start + _MOST_CHARACTERS].encode()) for start in starts)


def hash_texts(tables: Iterable[Table], text_field: str) -> str:
    """Return a hash of the texts of some records."""
    total = hashlib.sha256()
    for table in tables:
        for value in table.texts(text_field)[0]:
            text = value if isinstance(value, str) else repr(value)
            content = text.encode("utf-8", "surrogatepass")
            total.update(b"%s%d:" % (b"s" if text is value else b"r", len(content)))
            total.update(content)
    return total.hexdigest()[:16]


def find_fault(value: object) -> str:
    """Return why a value is no text; empty if it is one."""
    if value is None:
        return "it is None or absent"
    if isinstance(value, Unreadable):
        return value.reason
    if isinstance(value, bytes):
        return "it holds bytes" + ("" if is_utf8(value) else " that are not UTF-8")
    if not isinstance(value, str):
        return f"it holds {type(value).__name__}"
    if measure_texts([value]) is None:
        return "it holds half of a surrogate pair, which stands for no character"
    return ""


def is_utf8(content: bytes) -> bool:
    """Return whether bytes are text in UTF-8."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def no_text_error(where: str, text_field: str, fault: str, fields: Iterable[str], hint: str) -> SourceError:
    """Return the error for a record without text, named by `where`, with the record's other fields."""
    others = join_names(name for name in fields if name != text_field)
    return SourceError(f"{where} has no text in {text_field!r}: {fault}. Its other fields: {others}.", hint)


def missing_field_error(missing: list[str], fields: Iterable[str]) -> SourceError:
    """Return the error for a text field, or parts of one, that no record has."""
    return SourceError(
        f"The records have no field {' and '.join(map(repr, missing))}; their fields are: "
        f"{join_names(fields)}.",
        "Name one with {text_field:...}.",
    )


def join_names(names: Iterable[str]) -> str:
    """Return names for a sentence; of very many the first."""
    every = list(names)
    more = f" and {len(every) - _MOST_NAMES:,} more" if len(every) > _MOST_NAMES else ""
    return (", ".join(every[:_MOST_NAMES]) or "none") + more
