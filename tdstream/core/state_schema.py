"""What the parts of a state hold: types and bounds, checked where a state comes in."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tdstream.core.checks import LARGEST
from tdstream.core.errors import StateError

MAX_DEPTH = 200
"""Levels of a state; a chain of datasets adds two for each of its parts."""
_LARGEST_SEED = 2**64 - 1
_SHOWN = 60


class Field(NamedTuple):
    """What a field of a state may hold."""

    expected: str
    """For the message."""
    convert: Callable[[Any], Any]
    """Returns the value as a plain type; raises ValueError or TypeError if it is not allowed."""


def integer(at_least: int = 0, at_most: int = LARGEST) -> Field:
    """Return a field for an integer; numpy's and torch's are taken, booleans are not."""

    def convert(value: Any) -> int:
        number = operator.index(value)
        if isinstance(value, bool) or not at_least <= number <= at_most:
            raise ValueError
        return number

    return Field(f"an integer of at least {at_least}", convert)


def one_of(*values: Any) -> Field:
    """Return a field for one of some values."""

    def convert(value: Any) -> Any:
        if not any(type(value) is type(allowed) and value == allowed for allowed in values):
            raise ValueError
        return value

    return Field(f"one of {', '.join(map(repr, values))}", convert)


def listed(field: Field, at_least: int, at_most: int) -> Field:
    """Return a field for a list of values of one kind."""

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, (list, tuple)) or not at_least <= len(value) <= at_most:
            raise ValueError
        return [field.convert(entry) for entry in value]

    return Field(f"a list of {at_least} to {at_most}, each {field.expected}", convert)


def _of_type(kind: type, expected: str) -> Field:
    def convert(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError
        return value

    return Field(expected, convert)


def _convert_number(value: Any) -> float:
    if isinstance(value, (bool, str)) or not 0 <= value < math.inf:
        raise ValueError
    return value if isinstance(value, (int, float)) else float(value)


COUNT, SIZE, SEED = integer(), integer(1), integer(0, _LARGEST_SEED)
TEXT, FLAG, PART = _of_type(str, "text"), _of_type(bool, "true or false"), _of_type(dict, "a dict")
LISTED = _of_type((list, tuple), "a list")  # type: ignore[arg-type]  # isinstance takes several
NUMBER = Field("a finite number of at least 0", _convert_number)
NONE = one_of(None)


def read_fields(
    name: str, part: Mapping[str, Any], fields: Mapping[str, Field], *, optional: bool = False
) -> dict[str, Any]:
    """Return the named fields of a part of a state as plain types; `optional` ones may be missing.

    Raises:
        StateError: If a field is missing or holds something else.
    """
    found = {}
    for key, field in fields.items():
        if key not in part:
            if optional:
                continue
            raise StateError(f"the state has no {name}.{key}, so it was cut or changed. {_ADVICE}")
        try:
            found[key] = field.convert(part[key])
        except (TypeError, ValueError, OverflowError, RuntimeError):
            raise StateError(
                f"the state's {name}.{key} is {shorten(part[key])}, expected {field.expected}; it was cut or "
                f"changed. {_ADVICE}"
            ) from None
    return found


_ADVICE = "Load what state_dict() returned."


def check_nesting(state: Any) -> None:
    """Refuse a state that contains itself, or is nested deeper than any that was saved."""
    open_: list[tuple[Any, int]] = [(state, 0)]
    deepest: dict[int, int] = {}
    while open_:
        value, depth = open_.pop()
        if not isinstance(value, (dict, list, tuple)) or deepest.get(id(value), -1) >= depth:
            continue
        if depth > MAX_DEPTH:
            raise StateError(
                f"the state contains itself, or is nested more than {MAX_DEPTH} deep, so it was changed. "
                f"{_ADVICE}"
            )
        deepest[id(value)] = depth
        open_ += [(inner, depth + 1) for inner in (value.values() if isinstance(value, dict) else value)]


def equal(one: Any, other: Any) -> bool:
    """Return whether two fields are equal; what cannot be compared differs, and True is not 1."""
    if isinstance(one, bool) is not isinstance(other, bool):
        return False
    try:
        return bool(one == other)
    except Exception:  # arrays, and objects of any class
        return False


def shorten(value: Any) -> str:
    """Return a value in at most some 80 characters of one line, whatever it is."""
    if isinstance(value, (dict, list, tuple, set, bytes)) and len(value) > _SHOWN:
        return f"a {type(value).__name__} of {len(value):,}"
    if isinstance(value, int) and abs(value) > LARGEST**2:
        return "an integer of many digits"
    try:
        text = " ".join(repr(value).split())
    except Exception:  # of objects of any class, or nested too deep
        return f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."
