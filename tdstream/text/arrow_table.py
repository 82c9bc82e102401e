"""The text in the records of an Arrow table, by the same rules as in `fields`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tdstream.text.fields import find_value, join_columns, split_path, split_text_field

Types = Mapping[str, pa.DataType]
"""The type of each field, by its name."""


class ArrowTable:
    """Records in an Arrow table."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @property
    def num_rows(self) -> int:
        """How many."""
        return int(self._table.num_rows)

    def slice(self, first: int, count: int | None) -> ArrowTable:
        """Return some of them; a count of None means all that follow."""
        return ArrowTable(self._table.slice(first, count))

    def texts(self, text_field: str) -> tuple[list[Any], list[str]]:
        """Return the value in the place of each text, and the parts of the field that no record has."""
        parts = split_text_field(text_field, self._table.column_names)
        found = {part: _read_column(self._table, part) for part in parts}
        columns = [values for values in found.values() if values is not None]
        texts = join_columns(columns) if columns else [None] * self.num_rows
        return texts, [part for part, values in found.items() if values is None]

    def list_fields(self) -> list[str]:
        """Return the paths of all fields."""
        return list_fields(get_types(self._table.schema))

    def list_filled(self) -> list[str]:
        """Return the names of the first record's fields that have a value."""
        return [name for name in self._table.column_names if self._table.column(name)[0].is_valid]

    def locate(self, row: int) -> str:  # noqa: ARG002 - `datasets` does not tell
        """Return nothing."""
        return ""


def get_types(schema: Any) -> dict[str, pa.DataType]:
    """Return the types of the fields of an Arrow schema or struct."""
    return {field.name: field.type for field in schema}


def list_fields(types: Types) -> list[str]:
    """Return the paths of all fields."""
    return list(_list_paths(types))


def _list_paths(types: Types) -> Iterator[str]:
    for name, kind in types.items():
        inner = get_types(kind) if pa.types.is_struct(kind) else {}
        yield from (f"{name}.{path}" for path in _list_paths(inner)) if inner else (name,)


def find_steps(path: str, types: Types) -> tuple[str, ...] | None:
    """Return the names to follow from a record to a value; None if there is no such field.

    The fields inside JSON are not known in advance: the rest of the path is then one step.
    """
    for head, rest in split_path(path):
        if head not in types:
            continue
        if not rest:
            return (head,)
        if _is_json(types[head]):
            return (head, rest)
        if pa.types.is_struct(types[head]):
            inner = find_steps(rest, get_types(types[head]))
            if inner is not None:
                return (head, *inner)
    return None


def find_missing(text_field: str, types: Types) -> list[str]:
    """Return the parts of a text field that no record can have."""
    return [part for part in split_text_field(text_field, types) if find_steps(part, types) is None]


def find_columns(text_field: str, types: Types) -> list[str]:
    """Return the columns in which the parts of a text field are."""
    steps = [find_steps(part, types) for part in split_text_field(text_field, types)]
    return list(dict.fromkeys(path[0] for path in steps if path))


def find_plain_columns(text_field: str, types: Types) -> list[str]:
    """Return the columns in which the parts of a text field are; none unless each part is there, as text."""
    for part in split_text_field(text_field, types):
        steps = find_steps(part, types)
        kind = None if steps is None else _find_type(steps, types)
        if kind is None or not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            return []
    return find_columns(text_field, types)


def _find_type(steps: tuple[str, ...], types: Types) -> pa.DataType | None:
    """Return the type at some steps; None inside JSON."""
    kind = types[steps[0]]
    for step in steps[1:]:
        if not pa.types.is_struct(kind):
            return None
        kind = get_types(kind)[step]
    return kind


def _read_column(table: pa.Table, path: str) -> list[Any] | None:
    """Return the values at a path, as Python objects; None if there is no such field."""
    steps = find_steps(path, get_types(table.schema))
    if steps is None:
        return None
    found = table.column(steps[0])
    for step in steps[1:]:
        if _is_json(found.type):
            return [find_value(value, step) for value in _to_python(found)]
        found = pc.struct_field(found, [found.type.get_field_index(step)])
    return _to_python(found)


def _is_json(kind: pa.DataType) -> bool:
    """Return whether a field holds values of several types, each as JSON."""
    return isinstance(kind, pa.BaseExtensionType) and "json" in kind.extension_name


def _to_python(values: Any) -> list[Any]:
    if _is_json(values.type):
        texts = values.cast(pa.string()).to_pylist()
        return [None if text is None else json.loads(text) for text in texts]
    try:
        return list(values.to_pylist())
    except UnicodeDecodeError:
        return [_decode(scalar) for scalar in values]


def _decode(scalar: Any) -> Any:
    """Return a value; one that is no UTF-8 as bytes."""
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return bytes(scalar.as_buffer())
