"""Find the text in records: a field, a field inside of a field, or several fields that are joined.

A text field is named by a path, in which a dot goes one level deeper: ``meta.title``. A field whose own name
holds the dot is preferred. Paths with commas between them, ``title,text``, are joined by an empty line; a
part that is absent or empty is left out, and a record has no text only if all of its parts are absent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

JOINER = "\n\n"
"""What stands between the parts of a joined text."""
_MOST_NAMES = 40

Types = Mapping[str, pa.DataType]
"""The type of each field, by its name."""


def parts_of(text_field: str, names: Iterable[str]) -> list[str]:
    """Return the paths that a text field stands for: one, or several to be joined.

    Args:
        text_field: What was asked for.
        names: The fields that there are; one that has just this name is meant.
    """
    return [text_field] if text_field in names else [part.strip() for part in text_field.split(",")]


def types_of(schema: Any) -> dict[str, pa.DataType]:
    """Return the types of the fields of an Arrow schema or struct."""
    return {field.name: field.type for field in schema}


def steps_to(path: str, types: Types) -> tuple[str, ...] | None:
    """Return the names to follow from a record to a value; None if there is no such field.

    What lies in a field that holds JSON cannot be known before; the rest of the path is then one step.

    Args:
        path: Names with dots between them.
        types: The fields of a record.
    """
    for head, rest in _heads(path):
        if head not in types:
            continue
        if not rest:
            return (head,)
        if is_json(types[head]):
            return (head, rest)
        if pa.types.is_struct(types[head]):
            inner = steps_to(rest, types_of(types[head]))
            if inner is not None:
                return (head, *inner)
    return None


def missing_of(text_field: str, types: Types) -> list[str]:
    """Return those parts of a text field that no record can have.

    Args:
        text_field: What was asked for.
        types: The fields of a record.
    """
    return [part for part in parts_of(text_field, types) if steps_to(part, types) is None]


def column(table: pa.Table, path: str) -> list[Any] | None:
    """Return the values of a field of a table; None if there is no such field.

    Args:
        table: Some records.
        path: Names with dots between them.

    Returns:
        Python objects; what is no UTF-8 is bytes.
    """
    steps = steps_to(path, types_of(table.schema))
    if steps is None:
        return None
    found = table.column(steps[0])
    for step in steps[1:]:
        if is_json(found.type):
            return [value_at(value, step) for value in _values(found)]
        found = pc.struct_field(found, [found.type.get_field_index(step)])
    return _values(found)


def value_at(record: Any, path: str, absent: Any = None) -> Any:
    """Return a value of a record.

    Args:
        record: A dict, in which there may be dicts.
        path: Names with dots between them.
        absent: What to return if there is none.
    """
    if not isinstance(record, Mapping):
        return absent
    for head, rest in _heads(path):
        if head in record:
            found = value_at(record[head], rest, absent) if rest else record[head]
            if found is not absent:
                return found
    return absent


def joined(columns: list[list[Any]]) -> list[Any]:
    """Return the text of each record.

    Args:
        columns: The values of each part, of which there is at least one.

    Returns:
        None where all parts are absent; where a part is no text, that part.
    """
    return columns[0] if len(columns) == 1 else [_join(parts) for parts in zip(*columns, strict=True)]


def _join(parts: tuple[Any, ...]) -> Any:
    present = [part for part in parts if part is not None]
    bad = next((part for part in present if not isinstance(part, str)), None)
    if bad is not None or not present:
        return bad
    return JOINER.join(part for part in present if part)


def paths_in(record: Any) -> Iterator[str]:
    """Yield the paths to the values of a record, those inside of others too.

    Args:
        record: A dict, in which there may be dicts; anything else has none.
    """
    for name, value in record.items() if isinstance(record, Mapping) else ():
        if isinstance(value, Mapping) and value:
            yield from (f"{name}.{path}" for path in paths_in(value))
        else:
            yield str(name)


def names_in(types: Types) -> str:
    """Return the names of all fields for a sentence, those inside of others too."""
    return listed(_nested(types))


def listed(names: Iterable[str]) -> str:
    """Return names for a sentence."""
    every = list(names)
    more = f" and {len(every) - _MOST_NAMES:,} more" if len(every) > _MOST_NAMES else ""
    return (", ".join(every[:_MOST_NAMES]) or "none") + more


def _nested(types: Types) -> Iterator[str]:
    for name, kind in types.items():
        inner = types_of(kind) if pa.types.is_struct(kind) else {}
        yield from (f"{name}.{path}" for path in _nested(inner)) if inner else (name,)


def _heads(path: str) -> Iterator[tuple[str, str]]:
    """Yield each way to divide a path in two at a dot, the longest beginning first."""
    names = path.split(".")
    for count in range(len(names), 0, -1):
        yield ".".join(names[:count]), ".".join(names[count:])


def is_json(kind: pa.DataType) -> bool:
    """Return whether a field holds values of several kinds, each as JSON."""
    return isinstance(kind, pa.BaseExtensionType) and "json" in kind.extension_name


def _values(values: Any) -> list[Any]:
    if is_json(values.type):
        texts = values.cast(pa.string()).to_pylist()
        return [None if text is None else json.loads(text) for text in texts]
    try:
        return list(values.to_pylist())
    except UnicodeDecodeError:
        return [_value(scalar) for scalar in values]


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return bytes(scalar.as_buffer())


_ABSENT = object()


class Table(Protocol):
    """Some records that follow each other."""

    @property
    def num_rows(self) -> int:
        """How many."""
        ...

    @property
    def names(self) -> str:
        """The names of their fields, for a sentence."""
        ...

    def slice(self, first: int, count: int | None) -> Table:
        """Return some of them; a count of None means all that follow."""
        ...

    def texts(self, text_field: str) -> tuple[list[Any], list[str]]:
        """Return what stands in the place of each text, and those parts of the field that no record has."""
        ...

    def filled(self) -> list[str]:
        """Return the names of the first one's fields that have a value."""
        ...


class ArrowTable:
    """Records in an Arrow table."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @property
    def num_rows(self) -> int:
        """How many."""
        return int(self._table.num_rows)

    @property
    def names(self) -> str:
        """The names of their fields, for a sentence."""
        return names_in(types_of(self._table.schema))

    def slice(self, first: int, count: int | None) -> ArrowTable:
        """Return some of them; a count of None means all that follow."""
        return ArrowTable(self._table.slice(first, count))

    def texts(self, text_field: str) -> tuple[list[Any], list[str]]:
        """Return what stands in the place of each text, and those parts of the field that no record has."""
        parts = parts_of(text_field, self._table.column_names)
        found = {part: column(self._table, part) for part in parts}
        columns = [values for values in found.values() if values is not None]
        texts = joined(columns) if columns else [None] * self.num_rows
        return texts, [part for part, values in found.items() if values is None]

    def filled(self) -> list[str]:
        """Return the names of the first one's fields that have a value."""
        return [name for name in self._table.column_names if self._table.column(name)[0].is_valid]


class Rows:
    """Records as Python objects: each a text, or a dict that holds one."""

    def __init__(self, records: Sequence[Any]) -> None:
        self._records = records

    @property
    def num_rows(self) -> int:
        """How many."""
        return len(self._records)

    @property
    def names(self) -> str:
        """The names of their fields, for a sentence."""
        return listed(dict.fromkeys(path for record in self._records for path in paths_in(record)))

    def slice(self, first: int, count: int | None) -> Rows:
        """Return some of them; a count of None means all that follow."""
        return Rows(self._records[first : None if count is None else first + count])

    def texts(self, text_field: str) -> tuple[list[Any], list[str]]:
        """Return what stands in the place of each text, and those parts of the field that no record has."""
        names = self._names()
        if not names:
            return [_plain(record) for record in self._records], []
        found = {part: self._column(part) for part in parts_of(text_field, names)}
        missing = [part for part, values in found.items() if all(value is _ABSENT for value in values)]
        columns = [[None if value is _ABSENT else value for value in values] for values in found.values()]
        return joined(columns), missing

    def filled(self) -> list[str]:
        """Return the names of the first one's fields that have a value."""
        first = self._records[0]
        items = first.items() if isinstance(first, Mapping) else ()
        return [str(name) for name, value in items if value is not None]

    def _names(self) -> dict[Any, None]:
        """Return all names of fields, as the keys of a dict, in the order in which they appear."""
        return {name: None for record in self._records if isinstance(record, Mapping) for name in record}

    def _column(self, part: str) -> list[Any]:
        return [
            _plain(value_at(record, part, _ABSENT) if isinstance(record, Mapping) else record)
            for record in self._records
        ]


def _plain(value: Any) -> Any:
    """Return a value; a text of a class of its own, as numpy has one, as an ordinary text."""
    return str.__str__(value) if isinstance(value, str) and type(value) is not str else value
