"""What a source of text is: the one decision on which opening, resuming and `build` depend."""

from __future__ import annotations

import inspect
import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any

from tdstream.core.errors import ConfigError, SourceError
from tdstream.corpus.meta import META_FILE
from tdstream.text.options import is_path


class SourceType(Enum):
    """The types of source, by how they are read."""

    LOCATION = auto()
    """A path, a pattern, or a name on the hub."""
    LIST = auto()
    """A list or tuple of texts or records."""
    DATASET = auto()
    """A `datasets.Dataset`."""
    DATASET_STREAM = auto()
    """A `datasets.IterableDataset`."""
    MAPPING = auto()
    """A dict of sources, such as a `datasets.DatasetDict`; readable only after choosing one."""
    SEQUENCE = auto()
    """Anything else with `len()` and `[]`."""
    FUNCTION = auto()
    """A function without arguments, or a class, that returns an iterator over texts or records."""
    ITERABLE = auto()
    """Anything else that can be iterated over repeatedly."""


def find_source_type(source: Any) -> SourceType:
    """Return the type of a source; `datasets` is not imported for it.

    Raises ConfigError for what cannot be read, not repeatedly, or not in the same order by every process.
    """
    known = (
        (SourceType.LOCATION, is_path(source)),
        (SourceType.LIST, isinstance(source, (list, tuple))),
        (SourceType.DATASET, _is_of_datasets(source, "Dataset")),
        (SourceType.DATASET_STREAM, _is_of_datasets(source, "IterableDataset")),
        (SourceType.MAPPING, isinstance(source, Mapping)),
    )
    found = next((type_ for type_, fits in known if fits), None)
    _check_not_data(source)
    if found is not None:
        return found
    _check_order(source)
    if is_function(source):
        _check_no_arguments(source)
        return SourceType.FUNCTION
    if isinstance(source, bytes) or not _is_iterable(source):
        raise ConfigError(
            f"a source is a path, a list of texts, a dataset, a function that returns an iterator, or an "
            f"object to iterate over repeatedly (or, for `build`, a token source), got {_name(source)}."
        )
    if hasattr(source, "__next__") and iter(source) is source:
        raise ConfigError(
            f"the source is a {_name(source)}, which can be read only once, but every epoch and every resume "
            f"reads it again. Pass the function that makes it, or a list."
        )
    is_indexable = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    return SourceType.SEQUENCE if is_indexable else SourceType.ITERABLE


def _check_not_data(source: Any) -> None:
    """Refuse what holds no text: token ids, corpora, and loaders of batches."""
    first = next(iter(_first_of(source)), None)
    if (hasattr(source, "dtype") and _is_number(source)) or any(map(_is_number, (first, *_first_of(first)))):
        raise ConfigError(
            f"the source is a {_name(source)} of numbers, not texts. If they are token ids, write them with "
            f"numpy.save, as uint16 or uint32, and pass the path of the .npy file, or pass a token source."
        )
    if is_path(first) and (not isinstance(first, str) or os.path.isfile(os.path.join(first, META_FILE))):
        raise ConfigError(
            f"the source is a {_name(source)} of paths, not of texts. To mix corpora, pass their names, "
            f'directories and weights: {{"web": ("data/web", 0.7), "code": ("data/code", 0.3)}}.'
        )
    if hasattr(source, "dataset") and hasattr(source, "batch_size") and _is_iterable(source):
        raise ConfigError(
            f"the source is a {_name(source)}, which loads batches already. Pass what it was made from."
        )


def _first_of(items: Any) -> Sequence[Any]:
    """Return the first item of a list or tuple, in a sequence that is empty if there is none."""
    return items[:1] if isinstance(items, (list, tuple)) else ()


def _is_number(item: Any) -> bool:
    """Return whether an object is a number, or an array or a tensor of them."""
    dtype = getattr(item, "dtype", None)
    return isinstance(item, (int, float)) or (dtype is not None and getattr(dtype, "kind", "i") in "iufb")


def is_function(source: Any) -> bool:
    """Return whether a source is to be called, rather than iterated over."""
    return callable(source) and (isinstance(source, type) or not _is_iterable(source))


def _is_iterable(source: Any) -> bool:
    return hasattr(source, "__iter__") or hasattr(source, "__getitem__")


def holds_text(source: Mapping[Any, Any]) -> bool:
    """Return whether a dict is one of datasets or columns, rather than one of sources to mix."""
    kinds = ("Dataset", "IterableDataset")
    return any(
        isinstance(part, list) or any(_is_of_datasets(part, kind) for kind in kinds)
        for part in source.values()
    )


def _is_of_datasets(source: Any, name: str) -> bool:
    module = sys.modules.get("datasets")
    return module is not None and isinstance(source, getattr(module, name))


def _check_order(source: Any) -> None:
    if hasattr(source, "iloc") or (hasattr(source, "columns") and hasattr(source, "__len__")):
        raise ConfigError(
            f"the source is a {_name(source)}; iterating over it does not yield its texts alone. Pass them "
            f'as a list, such as frame["text"].tolist(), or use datasets.Dataset.from_pandas(frame).'
        )
    if isinstance(source, (set, frozenset)):
        raise ConfigError(
            f"the source is a {_name(source)}, whose order differs between processes, so no run could "
            f"resume. Pass a list, such as sorted(source)."
        )


def _check_no_arguments(function: Callable[..., Any]) -> None:
    try:
        inspect.signature(function).bind()
    except ValueError:  # a builtin without a signature
        return
    except TypeError:
        raise ConfigError(
            f"the source, {getattr(function, '__name__', _name(function))}, needs arguments, but is called "
            f"without any. Bind them: functools.partial(function, argument)."
        ) from None


def _name(source: Any) -> str:
    return type(source).__name__


def check_new_iterator(function: Callable[[], Any], iterator: Any) -> None:
    """Raise SourceError for an iterator returned before: it resumes where its last reader stopped."""
    if _was_seen(function, iterator):
        raise SourceError(
            f"the source, {getattr(function, '__name__', _name(function))}, returned the same iterator once "
            f"more, which resumes where its last reader stopped. Return a new iterator from every call."
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
