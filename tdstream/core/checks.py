"""Checks of arguments and sources, each raising one sentence that says what was expected."""

from __future__ import annotations

import inspect
import operator
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tdstream.core.errors import ConfigError, SourceError

LARGEST = 2**62
"""The sum of two such numbers still fits in 64 bits."""


def check_int(name: str, value: Any, *, at_least: int) -> int:
    """Return an integer, numpy's included, as an int; refuse True, 3.0 and anything below `at_least`."""
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
    """Return a boolean, numpy's included, as a bool; refuse 1, "yes" and None."""
    if not isinstance(value, (bool, np.bool_)):
        raise ConfigError(f"{name} must be True or False, got {value!r}.")
    return bool(value)


def check_seconds(name: str, value: Any) -> float:
    """Return a finite duration of at least 0 as a float."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not 0 <= value < float("inf"):
        raise ConfigError(f"{name} must be a number of seconds, at least 0, got {value!r}.")
    return float(value)


def check_source(source: Any) -> None:
    """Refuse iterables that yield no documents, or yield them in a different order in each process."""
    kind = type(source).__name__
    if hasattr(source, "iloc") or (hasattr(source, "columns") and hasattr(source, "__len__")):
        raise ConfigError(
            f"the source is a {kind}; iterating over it does not yield its texts alone. Pass them as a list, "
            f'such as frame["text"].tolist(), or use datasets.Dataset.from_pandas(frame).'
        )
    if isinstance(source, (set, frozenset)):
        raise ConfigError(
            f"the source is a {kind}, whose order differs between processes, so no run could resume. "
            f"Pass a list, such as sorted(source)."
        )
    if callable(source) and not hasattr(source, "__iter__") and not _takes_no_arguments(source):
        raise ConfigError(
            f"the source, {getattr(source, '__name__', kind)}, needs arguments, but is called without any. "
            f"Bind them: functools.partial(function, argument)."
        )


def _takes_no_arguments(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True


def check_new_iterator(function: Callable[[], Any], iterator: Any) -> None:
    """Refuse an iterator that a function has returned before: it resumes where its last reader stopped."""
    if _was_seen(function, iterator):
        name = getattr(function, "__name__", type(function).__name__)
        raise SourceError(
            f"the source, {name}, returned the same iterator once more, which resumes where its last reader "
            f"stopped. Return a new iterator from every call."
        )


_seen: weakref.WeakSet[Any] = weakref.WeakSet()
_last: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # function -> its last iterator


def _was_seen(function: Callable[[], Any], iterator: Any) -> bool:
    """Return whether an iterator was seen before, and remember it."""
    try:
        seen = iterator in _seen
        _seen.add(iterator)
    except TypeError:  # iterators of lists, maps and the like cannot be referenced weakly
        try:
            seen, _last[function] = _last.get(function) is iterator, iterator
        except TypeError:
            return False
    return seen
