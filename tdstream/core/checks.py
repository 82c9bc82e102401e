"""Check what callers pass, and say in one sentence what was expected."""

from __future__ import annotations

import inspect
import operator
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tdstream.core.errors import ConfigError, SourceError

LARGEST = 2**62
"""So that sums of two still fit into 64 bits."""


def check_int(name: str, value: Any, *, at_least: int) -> int:
    """Return a whole number as an int; numpy's integers are whole numbers, True and 3.0 are not.

    Args:
        name: What to call it.
        value: What was passed.
        at_least: The smallest number that makes sense.

    Raises:
        ConfigError: If it is anything else.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise ConfigError(f"{name} must be an integer of at least {at_least}, got {value!r}.") from None
    if isinstance(value, bool) or number < at_least:
        raise ConfigError(f"{name} must be an integer of at least {at_least}, got {value!r}.")
    if number > LARGEST:
        raise ConfigError(f"{name} must be at most 2^62, got {value!r}.")
    return number


def check_bool(name: str, value: Any) -> bool:
    """Return a truth value as a bool; numpy's are truth values, 1, "yes" and None are not.

    Args:
        name: What to call it.
        value: What was passed.

    Raises:
        ConfigError: If it is anything else.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise ConfigError(f"{name} must be True or False, got {value!r}.")
    return bool(value)


def check_seconds(name: str, value: Any) -> float:
    """Return a length of time.

    Args:
        name: What to call it.
        value: What was passed.

    Raises:
        ConfigError: If it is no finite number of at least 0.
    """
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not 0 <= value < float("inf"):
        raise ConfigError(f"{name} must be a number of seconds, at least 0, got {value!r}.")
    return float(value)


def check_source(source: Any) -> None:
    """Refuse what can be iterated over, but gives no documents, or gives them in another order each time.

    Raises:
        ConfigError: If it is a table or a column of one, a set, or a function that needs arguments.
    """
    kind = type(source).__name__
    if hasattr(source, "iloc") or (hasattr(source, "columns") and hasattr(source, "__len__")):
        raise ConfigError(
            f"the source is a {kind}, whose texts are not told from its columns or its index. Pass "
            f'them as a list, such as frame["text"].tolist(), or datasets.Dataset.from_pandas(frame).'
        )
    if isinstance(source, (set, frozenset)):
        raise ConfigError(
            f"the source is a {kind}, which has another order in each process, so that no run could be "
            f"gone on with. Pass a list, such as sorted(source)."
        )
    if callable(source) and not hasattr(source, "__iter__") and not _needs_nothing(source):
        raise ConfigError(
            f"the source, {getattr(source, '__name__', kind)}, needs arguments, and is called without any. "
            f"Bind them: functools.partial(function, argument)."
        )


def check_new_iterator(function: Callable[[], Any], iterator: Any) -> None:
    """Refuse an iterator that a function has returned before: it goes on where its last reader stopped.

    Raises:
        SourceError: If it was handed in before, by this function or another one.
    """
    if _was_seen(function, iterator):
        name = getattr(function, "__name__", type(function).__name__)
        raise SourceError(
            f"the source, {name}, returned the same iterator once more, which goes on where its last reader "
            f"stopped. Let it make a new one at every call."
        )


_seen: weakref.WeakSet[Any] = weakref.WeakSet()
_last_of: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _was_seen(function: Callable[[], Any], iterator: Any) -> bool:
    """Return whether an iterator is known, and know it from now on."""
    try:
        seen = iterator in _seen
        _seen.add(iterator)
    except TypeError:  # those of lists, maps and the like can only be known by keeping them
        try:
            seen, _last_of[function] = _last_of.get(function) is iterator, iterator
        except TypeError:
            return False
    return seen


def _needs_nothing(function: Callable[[], Any]) -> bool:
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    except ValueError:  # a builtin that does not say
        return True
    return True
