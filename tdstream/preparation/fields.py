"""Find the text in records: a field, a field inside of a field, or several fields that are joined.

A text field is named by a path, in which a dot goes one level deeper: ``meta.title``. A field whose own name
holds the dot is preferred. Paths with commas between them, ``title,text``, are joined by an empty line; a
part that is absent or empty is left out, and a record has no text only if all of its parts are absent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

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
