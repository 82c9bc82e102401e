"""Open what a caller has in hand instead of the name of a dataset, and say what tells it from others."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from datasets import Dataset, IterableDataset

from tdstream.checks import refuse_spent, refuse_unfit
from tdstream.errors import ConfigError
from tdstream.preparation.fields import missing_of, names_in, parts_of, steps_to, types_of
from tdstream.preparation.options import PrepareOptions
from tdstream.preparation.records import Facts, TextSource, missing_field
from tdstream.preparation.runs import ListRuns, OneRun, dataset_runs, list_runs
from tdstream.preparation.segments import Runs, Segments, share_of
from tdstream.preparation.tables import Table

_LOOK = 16
"""Records at the beginning that stand for a source whose records cannot all be compared."""


def open_given(given: Any, options: PrepareOptions) -> TextSource:
    """Open a list, a dataset, a function that returns an iterator, or anything that can be iterated again.

    Args:
        given: It.
        options: What was asked for; its ``dataset`` is what to call it.

    Raises:
        ConfigError: If it is something else, or an option does not go with it.
        SourceError: If it lacks the text field.
    """
    for name in ("data_name", "data_files", "lines"):
        if getattr(options, name):
            raise ConfigError(
                f"{name} is for a dataset that is named, not for one that is given. Leave it out."
            )
    given = _split_of(given, options.split)
    runs, facts = _opened(given, options)
    share = share_of(runs, options.task or 0, options.num_tasks or 1, options.max_samples)
    return TextSource(runs, share, options, facts)


def _split_of(given: Any, split: str) -> Any:
    if not isinstance(given, Mapping):
        if split != "train":
            raise ConfigError(
                f"split={split!r} chooses among the splits of a dataset, and a {type(given).__name__} is one "
                f"already. Leave it out."
            )
        return given
    if split not in given:
        raise ConfigError(
            f"A dict of datasets has to hold the split {split!r}, this one holds: "
            f"{', '.join(map(str, given)) or 'nothing'}. Name one with split, or pass the dataset itself."
        )
    return given[split]


def _opened(given: Any, options: PrepareOptions) -> tuple[Runs, Facts]:
    if isinstance(given, (list, tuple)):
        return _list(given, options)
    if isinstance(given, Dataset):
        return _dataset(given, options)
    if isinstance(given, IterableDataset):
        return _stream(given, options)
    refuse_unfit(given)
    runs = OneRun(_iterators(given))
    length = len(given) if hasattr(given, "__len__") else None
    return runs, _facts(options, {"length": length, "first": _digest([runs.look(_LOOK)], options)}, length)


def _list(given: list[Any] | tuple[Any, ...], options: PrepareOptions) -> tuple[ListRuns, Facts]:
    runs = list_runs(given)
    tables = (table for number in range(runs.count) for table in runs.tables(number, 1000))
    identity = {"length": len(given), "content": _digest(tables, options)}
    return runs, _facts(options, identity, len(given))


def _dataset(given: Dataset, options: PrepareOptions) -> tuple[ListRuns, Facts]:
    if given.format["type"] == "custom":
        raise ConfigError(
            "The dataset has a transform, which is applied only when single records are taken from it. "
            "Apply it with map() before."
        )
    runs = dataset_runs(given, _columns(given.features, options))
    return runs, _facts(options, {"length": len(given), "fingerprint": given._fingerprint}, len(given))


def _stream(given: IterableDataset, options: PrepareOptions) -> tuple[Runs, Facts]:
    info = given.info
    told = [str(told) for told in (info.dataset_name, info.config_name, info.version, given.split) if told]
    columns = None if given.features is None else _columns(given.features, options)
    if type(given._ex_iterable).__name__ == "ArrowExamplesIterable" and given._distributed is None:
        segments = Segments(given, None, options.num_tasks or 1)  # Files as they are, in their order.
        tables = segments.tables(0, _LOOK)
        first = [table for table in [next(tables, None)] if table is not None]
        segments.leave(tables)
        return segments, _facts(options, {"stream": told, "first": _digest(first, options)}, None)
    narrow = given if columns is None else given.select_columns(columns)
    runs = OneRun(lambda: iter(narrow.with_format(None)), streams=True)
    return runs, _facts(options, {"stream": told, "first": _digest([runs.look(_LOOK)], options)}, None)


def _iterators(given: Any) -> Callable[[], Iterator[Any]]:
    """Return a function that returns an iterator over all records at each call."""
    if callable(given) and not hasattr(given, "__iter__"):
        return lambda: _made_by(given)
    if isinstance(given, bytes) or not (hasattr(given, "__iter__") or hasattr(given, "__getitem__")):
        raise ConfigError(
            f"The source must be a path or name, a list of texts, a dataset, a function that returns an "
            f"iterator, or something to iterate over, got {type(given).__name__}."
        )
    if iter(given) is given:
        raise ConfigError(
            f"The source is a {type(given).__name__}, which can be read only once, and a resume has to read "
            f"it again. Pass the function that makes it, or a list."
        )
    return lambda: iter(given)


def _made_by(function: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    iterator = iter(function())
    refuse_spent(function, iterator)
    return iterator


def _columns(features: Any, options: PrepareOptions) -> list[str]:
    """Return the columns of a dataset that hold the text."""
    types = types_of(features.arrow_schema)
    missing = missing_of(options.text_field, types)
    if missing:
        raise missing_field(missing, names_in(types))
    steps = [steps_to(part, types) for part in parts_of(options.text_field, types)]
    return list(dict.fromkeys(path[0] for path in steps if path))


def _facts(options: PrepareOptions, identity: dict[str, Any], total: int | None) -> Facts:
    return Facts(identity=identity, total=total if options.num_tasks is None else None)


def _digest(tables: Iterable[Table], options: PrepareOptions) -> str:
    """Return a hash of the texts of some records."""
    total = hashlib.sha256()
    for table in tables:
        for value in table.texts(options.text_field)[0]:
            text = value if isinstance(value, str) else repr(value)
            content = text.encode("utf-8", "surrogatepass")
            total.update(b"%s%d:" % (b"s" if text is value else b"r", len(content)))
            total.update(content)
    return total.hexdigest()[:16]
