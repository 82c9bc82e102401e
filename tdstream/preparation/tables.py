"""Some records that follow each other, in an Arrow table or as Python objects: what their texts are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from tdstream.preparation.fields import (
    column,
    joined,
    listed,
    names_in,
    parts_of,
    paths_in,
    types_of,
    value_at,
)

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
