"""Find the text that is to be prepared, on the hub or on this machine, and open it as a stream."""

from __future__ import annotations

import glob
import hashlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet
from datasets import Dataset, Features, IterableDataset, Value

from tdstream.core.checks import check_new_iterator, check_source
from tdstream.core.errors import ConfigError, SourceError
from tdstream.text.batches import Facts, Task, TextSource, missing_field
from tdstream.text.fields import Table, missing_of, names_in, parts_of, steps_to, types_of
from tdstream.text.files import (
    check_each_matches,
    check_no_file_twice,
    check_none_left_out,
    check_one_format,
    format_of,
    is_pattern,
    matching,
    was_saved,
)
from tdstream.text.network import hub_is_unreachable, in_one_line, looks_like_a_path
from tdstream.text.options import DEFAULT_DATA_NAME, TextOptions
from tdstream.text.segments import (
    FileSegments,
    ListRuns,
    OneRun,
    Runs,
    abandon,
    dataset_runs,
    list_runs,
    share_of,
)

_LOOK = 16
"""Records at the beginning that stand for a source whose records cannot all be compared."""


def open_given(given: Any, options: TextOptions, task: Task = None) -> TextSource:
    """Open a list, a dataset, a function that returns an iterator, or another repeatable iterable.

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
    number, num_tasks = task or (0, 1)
    runs, facts = _opened(given, options, num_tasks)
    share = share_of(runs, number, num_tasks, options.max_samples)
    return TextSource(runs, share, options, replace(facts, total=None) if task else facts, task)


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


def _opened(given: Any, options: TextOptions, num_tasks: int) -> tuple[Runs, Facts]:
    if isinstance(given, (list, tuple)):
        return _list(given, options)
    if isinstance(given, Dataset):
        return _dataset(given, options)
    if isinstance(given, IterableDataset):
        return _stream(given, options, num_tasks)
    check_source(given)
    runs = OneRun(_iterators(given))
    length = len(given) if hasattr(given, "__len__") else None
    return runs, Facts(
        identity={"length": length, "first": _digest([runs.look(_LOOK)], options)}, total=length
    )


def _list(given: list[Any] | tuple[Any, ...], options: TextOptions) -> tuple[ListRuns, Facts]:
    runs = list_runs(given)
    tables = (table for number in range(runs.count) for table in runs.tables(number, 1000))
    identity = {"length": len(given), "content": _digest(tables, options)}
    return runs, Facts(identity=identity, total=len(given))


def _dataset(given: Dataset, options: TextOptions) -> tuple[ListRuns, Facts]:
    if given.format["type"] == "custom":
        raise ConfigError(
            "The dataset has a transform, which is applied only when single records are taken from it. "
            "Apply it with map() before."
        )
    runs = dataset_runs(given, _columns(given.features, options))
    return runs, Facts(identity={"length": len(given), "fingerprint": given._fingerprint}, total=len(given))


def _stream(given: IterableDataset, options: TextOptions, num_tasks: int) -> tuple[Runs, Facts]:
    info = given.info
    told = [str(told) for told in (info.dataset_name, info.config_name, info.version, given.split) if told]
    columns = None if given.features is None else _columns(given.features, options)
    if type(given._ex_iterable).__name__ == "ArrowExamplesIterable" and given._distributed is None:
        segments = FileSegments(given, None, num_tasks)  # Files as they are, in their order.
        tables = segments.tables(0, _LOOK)
        first = [table for table in [next(tables, None)] if table is not None]
        segments.leave(tables)
        return segments, Facts(identity={"stream": told, "first": _digest(first, options)}, total=None)
    narrow = given if columns is None else given.select_columns(columns)
    runs = OneRun(lambda: iter(narrow.with_format(None)), streams=True)
    return runs, Facts(identity={"stream": told, "first": _digest([runs.look(_LOOK)], options)}, total=None)


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
    check_new_iterator(function, iterator)
    return iterator


def _columns(features: Any, options: TextOptions) -> list[str]:
    """Return the columns of a dataset that hold the text."""
    types = types_of(features.arrow_schema)
    missing = missing_of(options.text_field, types)
    if missing:
        raise missing_field(missing, names_in(types))
    steps = [steps_to(part, types) for part in parts_of(options.text_field, types)]
    return list(dict.fromkeys(path[0] for path in steps if path))


def _digest(tables: Iterable[Table], options: TextOptions) -> str:
    """Return a hash of the texts of some records."""
    total = hashlib.sha256()
    for table in tables:
        for value in table.texts(options.text_field)[0]:
            text = value if isinstance(value, str) else repr(value)
            content = text.encode("utf-8", "surrogatepass")
            total.update(b"%s%d:" % (b"s" if text is value else b"r", len(content)))
            total.update(content)
    return total.hexdigest()[:16]


_BUILDERS = {"parquet", "json", "csv", "text"}


@dataclass(frozen=True, slots=True)
class _Request:
    """What to ask `datasets` for."""

    path: str
    """Name on the hub, a directory, or the name of a format."""
    settings: dict[str, Any]
    """Keyword arguments beside it."""

    def builder(self, **more: Any) -> Any:
        """Return the builder that reads it."""
        return datasets.load_dataset_builder(self.path, **{**self.settings, **more})


def open_text(options: TextOptions, task: Task = None) -> TextSource:
    """Open the dataset that the options name or hold; with `task`, share i of n of its records.

    Raises:
        ConfigError: If two options do not go together.
        SourceError: If there is no such dataset, it cannot be reached or read, or it lacks the text field.
    """
    given = options.given
    request = _request(options) if given is None else None
    try:
        if request is not None and was_saved(Path(request.path)):
            given, request = datasets.load_from_disk(request.path), None
        return open_given(given, options, task) if request is None else _open(request, options, task)
    except (ConfigError, SourceError):
        raise
    except StopIteration:  # How the json reader says that there is nothing to infer the fields from.
        raise SourceError(
            f"Dataset {options.dataset!r} gives no document: its first file is empty. Leave that out."
        ) from None
    except Exception as error:  # It raises whatever its many readers raise.
        raise SourceError(
            f"Dataset {options.dataset!r} cannot be opened: {in_one_line(error)}. "
            f"Check the dataset, its data_name, split and data_files."
        ) from error


def _request(options: TextOptions) -> _Request:
    settings: dict[str, Any] = {}
    if options.data_files:
        settings["data_files"] = list(options.data_files)
    if options.data_name:
        settings["name"] = options.data_name
    path = Path(options.dataset).expanduser()
    if options.dataset in _BUILDERS and options.data_files:
        return _Request(options.dataset, settings)
    if path.is_file():
        return _file_request([path], options)
    if path.is_dir():
        return _Request(str(path), settings)
    if is_pattern(options.dataset):
        return _file_request(matching(options.dataset), options)
    return _hub_request(options, settings)


def _file_request(files: list[Path], options: TextOptions) -> _Request:
    if options.data_files:
        raise ConfigError(
            f"data_files chooses among the files of a dataset, but {options.dataset} names the files itself. "
            f"Leave it out."
        )
    builder, settings = format_of(files, options.dataset)
    return _Request(
        builder, {**settings, "data_files": [glob.escape(str(file.absolute())) for file in files]}
    )


def _hub_request(options: TextOptions, settings: dict[str, Any]) -> _Request:
    name = options.dataset
    if name in _BUILDERS:
        raise SourceError(
            f"The dataset {name!r} is a format, and there is no such directory. Name its data_files."
        )
    if looks_like_a_path(name):
        raise SourceError(f"Dataset {name!r} not found: there is no such file or directory.")
    if hub_is_unreachable():
        raise SourceError(
            f"Dataset {name!r} is no local file or directory, and the hub cannot be reached. "
            f"Check the name and the network."
        )
    if options.data_name is None:
        settings["name"] = DEFAULT_DATA_NAME
    return _Request(name, settings)


def _open(request: _Request, options: TextOptions, task: Task) -> TextSource:
    directory = Path(request.path)
    if directory.is_dir() or request.path in _BUILDERS:
        check_each_matches(options.data_files, directory if directory.is_dir() else Path())
    builder = request.builder()
    _check_files(builder, options)
    more = _settings_of(builder.name, options)
    if more:
        builder = request.builder(**more)
    stream = builder.as_streaming_dataset(split=options.split)
    types = _types(builder.name, stream)
    missing = missing_of(options.text_field, types) if types is not None else []
    if types is not None and missing:
        raise missing_field(missing, names_in(types))
    files = [str(file) for file in (builder.config.data_files or {}).get(options.split, [])]
    rows = _rows(builder.name, files)
    stream_of_text = _narrowed(request, more, builder.name, stream, types or {}, options)
    number, num_tasks = task or (0, 1)
    segments = FileSegments(stream_of_text, rows, num_tasks)
    share = share_of(segments, number, num_tasks, options.max_samples)
    total = _count(stream, rows, options) if task is None else None
    facts = Facts(files=files, total=total, columns=None if types is None else list(types))
    return TextSource(segments, share, options, facts, task)


def _settings_of(builder: str, options: TextOptions) -> dict[str, Any]:
    if builder == "text":
        return {"sample_by": "line" if options.lines else "document"}
    if options.lines:
        raise ConfigError(
            f"lines is for text files, but dataset {options.dataset!r} is {builder}. Leave it out."
        )
    # Without this, an empty text or one that reads "NA" would be None.
    return {"na_filter": False} if builder == "csv" else {}


def _types(builder: str, stream: Any) -> dict[str, pa.DataType] | None:
    """Return the fields of the records; None where only the records themselves can tell."""
    if stream.features is not None:
        return types_of(stream.features.arrow_schema)
    if builder == "csv":
        tables = stream.with_format("arrow").iter(1)
        first = next(tables, None)
        abandon(tables)
        return None if first is None else dict.fromkeys(first.column_names, pa.string())
    return None


def _narrowed(
    request: _Request,
    more: dict[str, Any],
    builder: str,
    stream: Any,
    types: dict[str, pa.DataType],
    options: TextOptions,
) -> Any:
    """Return the stream without the columns that nobody needs, where reading them can be avoided."""
    steps = [steps_to(part, types) for part in parts_of(options.text_field, types)]
    columns = list(dict.fromkeys(path[0] for path in steps if path))
    if not columns:
        return stream
    if builder == "parquet":
        # A batch size of its own: by default it is that of the first row group, which may have no row at all.
        more = {**more, "columns": columns, "batch_size": max(options.batch_size, 1000)}
    elif builder == "csv":
        # Named as text, "007" stays "007" even where a whole block looks like numbers.
        features = Features(dict.fromkeys(columns, Value("string")))
        more = {**more, "usecols": columns, "features": features}
    else:
        return stream
    return request.builder(**more).as_streaming_dataset(split=options.split)


def _check_files(builder: Any, options: TextOptions) -> None:
    files = [str(file) for files in (builder.config.data_files or {}).values() for file in files]
    directory = Path(options.dataset).expanduser()
    if options.data_files:
        check_one_format(files, "data_files")
        check_no_file_twice(files, options.data_files)
    elif directory.is_dir() and not options.data_name and not _is_described(directory):
        check_none_left_out(directory, files)
    packed = next((file for file in files if file.endswith((".zst", ".zstd"))), None)
    if packed is not None and importlib.util.find_spec("zstandard") is None:
        raise SourceError(f"{packed} is compressed with zstd: pip install 'tdstream[zstd]'.")


def _is_described(directory: Path) -> bool:
    """Return whether a card says which files of a directory are its data."""
    try:
        return "data_files:" in (directory / "README.md").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _rows(builder: str, files: list[str]) -> list[int] | None:
    """Return how many records each file holds, if that is cheap to know."""
    if builder != "parquet" or not files or not all(Path(file).is_file() for file in files):
        return None
    return [int(pyarrow.parquet.read_metadata(file).num_rows) for file in files]


def _count(stream: Any, rows: list[int] | None, options: TextOptions) -> int | None:
    """Return how many records there are, if that is cheap to know."""
    if not options.data_files:
        split = (stream.info.splits or {}).get(options.split)
        if split is not None and split.num_examples:
            return int(split.num_examples)
    return None if rows is None else sum(rows)
