"""Text for a preparation, named or in the caller's hands, on the hub or on this machine."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet
from datasets import Dataset, Features, IterableDataset, Value
from datasets.data_files import DataFilesDict, DataFilesList
from datasets.info import DatasetInfosDict
from datasets.packaged_modules import _PACKAGED_DATASETS_MODULES

from tdstream.core.errors import ConfigError, SourceError
from tdstream.text.arrow_table import Types, find_columns, find_missing, get_types, list_fields
from tdstream.text.batches import Facts, Task, TextBatches
from tdstream.text.dataset_records import FileSegments, StreamSegment, TableSegments, close_early
from tdstream.text.fields import Table, missing_field_error
from tdstream.text.file_formats import CHOICES
from tdstream.text.files import FileList, find_files, find_path, resolve_local, was_saved
from tdstream.text.network import hub_is_unreachable, in_one_line, looks_like_a_path
from tdstream.text.options import DEFAULT_DATA_NAME, TextOptions
from tdstream.text.provenance import describe_object, describe_stream
from tdstream.text.records import IterableRecords, Segments, SequenceRecords
from tdstream.text.source import SourceType, find_source_type

logger = logging.getLogger(__name__)

_PEEKED = 16
"""First records that stand for a source whose records cannot all be compared."""
_READ_BY = {"tsv": ("csv", {"sep": "\t"})}
"""The builder of `datasets` that reads a format, and its settings, where its name is another."""


def open_text(options: TextOptions, task: Task = None) -> TextBatches:
    """Open the text that the options name or hold; with `task`, share i of n of its records.

    Raises:
        ConfigError: If two options do not go together, or the source cannot be read.
        SourceError: If there is no such dataset, it cannot be reached or read, or it lacks the text field.
    """
    source = options.dataset if options.given is None else options.given
    files = find_files(options) if options.given is None else None
    if files is not None:
        logger.info("%s: %s", options.dataset, files.describe())
    request = _make_request(options, files) if options.given is None else None
    try:
        if request is not None and was_saved(request.path):
            source, request = datasets.load_from_disk(request.path), None
        if request is not None:
            segments, facts = _open_files(request, options, task)
            if facts.total is None and files is not None and files.root is not None:
                facts = replace(facts, total=_read_stated_total(files.root, options.split))
        else:
            segments, facts = _open_object(source, options, task)
        return TextBatches(segments, options, facts, task)
    except (ConfigError, SourceError):
        raise
    except StopIteration:  # the json reader's answer where no fields can be inferred
        raise SourceError(
            f"Dataset {options.dataset!r} has no documents: its first file is empty. Leave that out."
        ) from None
    except Exception as error:  # whatever the readers of `datasets` raise
        raise SourceError(
            f"Dataset {options.dataset!r} cannot be opened: {in_one_line(error)}. "
            f"Check the dataset, its data_name, split and data_files."
        ) from error


def _open_object(source: Any, options: TextOptions, task: Task) -> tuple[Segments, Facts]:
    for name in ("data_name", "data_files", "lines"):
        if getattr(options, name):
            raise ConfigError(
                f"{name} is for a dataset that is named, not for one that is given. Leave it out."
            )
    source = _choose_split(source, options.split)
    source_type = find_source_type(source)
    if source_type is SourceType.DATASET:
        return _open_dataset(source, options)
    if source_type is SourceType.DATASET_STREAM:
        return _open_dataset_stream(source, options, task)
    length = len(source) if hasattr(source, "__len__") else None
    if source_type is SourceType.LIST:
        records = SequenceRecords(source)
        tables = (table for segment in range(records.num_segments) for table in records.read(segment, 1000))
        return records, Facts(identity={"length": length, "content": _digest(tables, options)}, total=length)
    iterable = IterableRecords(source)
    first = _digest([iterable.peek(_PEEKED)], options)
    behind = describe_object(source, is_named=options.is_named)
    return iterable, Facts(identity={"length": length, "first": first}, total=length, provenance=behind)


def _choose_split(source: Any, split: str) -> Any:
    if not isinstance(source, Mapping):
        if split != "train":
            raise ConfigError(
                f"split={split!r} chooses among the splits of a dataset, and a {type(source).__name__} is "
                f"one already. Leave it out."
            )
        return source
    if split not in source:
        raise ConfigError(
            f"A dict of datasets has to hold the split {split!r}, this one holds: "
            f"{', '.join(map(str, source)) or 'nothing'}. Name one with split, or pass the dataset itself."
        )
    return source[split]


def _open_dataset(dataset: Dataset, options: TextOptions) -> tuple[Segments, Facts]:
    if dataset.format["type"] == "custom":
        raise ConfigError(
            "The dataset has a transform, which is applied only when single records are taken from it. "
            "Apply it with map() before."
        )
    columns = _find_columns(get_types(dataset.features.arrow_schema), options)
    identity = {"length": len(dataset), "fingerprint": dataset._fingerprint}
    return TableSegments(dataset, columns), Facts(identity=identity, total=len(dataset))


def _open_dataset_stream(
    dataset: IterableDataset, options: TextOptions, task: Task
) -> tuple[Segments, Facts]:
    info = dataset.info
    behind = describe_stream(dataset, is_named=options.is_named)
    names = [str(name) for name in (info.dataset_name, info.config_name, info.version, dataset.split) if name]
    features = dataset.features
    columns = None if features is None else _find_columns(get_types(features.arrow_schema), options)
    if type(dataset._ex_iterable).__name__ == "ArrowExamplesIterable" and dataset._distributed is None:
        files = FileSegments(dataset, None, _count_tasks(task))  # files as they are, in their order
        tables = files.read(0, _PEEKED)
        first = list(islice(tables, 1))
        files.leave(tables)
        return files, Facts(identity={"stream": names, "first": _digest(first, options)}, provenance=behind)
    stream = StreamSegment(dataset if columns is None else dataset.select_columns(columns))
    first = [stream.peek(_PEEKED)]
    return stream, Facts(identity={"stream": names, "first": _digest(first, options)}, provenance=behind)


def _count_tasks(task: Task) -> int:
    return 1 if task is None else task[1]


def _find_columns(types: Types, options: TextOptions) -> list[str]:
    """Return the columns that hold the text; raise SourceError if a part of it has none."""
    missing = find_missing(options.text_field, types)
    if missing:
        raise missing_field_error(missing, list_fields(types))
    return find_columns(options.text_field, types)


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


def _make_request(options: TextOptions, files: FileList | None) -> _Request:
    if files is not None:
        builder, more = _READ_BY.get(files.format, (files.format, {}))
        # Not as names, which would be taken for patterns.
        return _Request(builder, {**more, "data_files": DataFilesDict({options.split: _as_they_are(files)})})
    settings: dict[str, Any] = {}
    if options.data_name:
        settings["name"] = options.data_name
    path = find_path(options.dataset)
    if path is not None and os.path.isdir(path) and not (options.dataset in CHOICES and options.data_files):
        path = os.path.realpath(path)
        if options.data_files:
            settings["data_files"] = resolve_local(options.data_files, path)
        return _Request(path, settings)
    if options.data_files:
        is_format = options.dataset in CHOICES
        names = resolve_local(options.data_files, os.getcwd()) if is_format else list(options.data_files)
        settings["data_files"] = names
        if is_format:
            return _Request(options.dataset, settings)
    return _request_from_hub(options, settings)


def _as_they_are(files: FileList) -> DataFilesList:
    return DataFilesList(list(files.files), [(str(os.stat(file).st_mtime),) for file in files.files])


def _request_from_hub(options: TextOptions, settings: dict[str, Any]) -> _Request:
    name = options.dataset
    if name in CHOICES:
        raise SourceError(
            f"The dataset {name!r} is a format, and there is no such directory. Name its data_files."
        )
    if name in _PACKAGED_DATASETS_MODULES:  # would read whatever is in the working directory
        raise SourceError(
            f"The dataset {name!r} is a format that cannot be prepared, and there is no such directory. "
            f"Load it with `datasets`, and pass the dataset itself."
        )
    if "://" in name:
        raise SourceError(
            f"Dataset {name!r} is a URL. Pass its format ({', '.join(CHOICES)}) as the dataset, and the "
            f"URL in data_files."
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


def _open_files(request: _Request, options: TextOptions, task: Task) -> tuple[Segments, Facts]:
    builder = request.builder()
    _check_compression(builder.config.data_files or {})
    more = _make_settings(builder.name, options)
    if more:
        builder = request.builder(**more)
    stream = builder.as_streaming_dataset(split=options.split)
    types = _read_types(builder.name, stream)
    columns = [] if types is None else _find_columns(types, options)
    files = [str(file) for file in (builder.config.data_files or {}).get(options.split, [])]
    rows = _count_rows(builder.name, files)
    facts = Facts(
        files=files, total=_count(stream, rows, options), columns=None if types is None else list(types)
    )
    narrow = _read_only(columns, builder.name, options)
    if narrow:
        stream = request.builder(**more, **narrow).as_streaming_dataset(split=options.split)
    return FileSegments(stream, rows, _count_tasks(task)), facts


def _make_settings(builder: str, options: TextOptions) -> dict[str, Any]:
    if builder == "text":
        return {"sample_by": "line" if options.lines else "document"}
    if options.lines:
        raise ConfigError(
            f"lines is for text files, but dataset {options.dataset!r} is {builder}. Leave it out."
        )
    # Without this, an empty text or one that reads "NA" would be None.
    return {"na_filter": False} if builder == "csv" else {}


def _read_types(builder: str, stream: Any) -> dict[str, pa.DataType] | None:
    """Return the fields of the records; None where only the records themselves can tell."""
    if stream.features is not None:
        return get_types(stream.features.arrow_schema)
    if builder == "csv":
        tables = stream.with_format("arrow").iter(1)
        first = next(tables, None)
        close_early(tables)
        return None if first is None else dict.fromkeys(first.column_names, pa.string())
    return None


def _read_only(columns: list[str], builder: str, options: TextOptions) -> dict[str, Any]:
    """Return the settings of a builder that reads only these columns; empty if it cannot."""
    if columns and builder == "parquet":
        # Its own default batch size is that of the first row group, which may have no row at all.
        return {"columns": columns, "batch_size": max(options.batch_size, 1000)}
    if columns and builder == "csv":
        # Named as text, "007" stays "007" even where a whole block looks like numbers.
        return {"usecols": columns, "features": Features(dict.fromkeys(columns, Value("string")))}
    return {}


def _check_compression(data_files: Mapping[str, list[Any]]) -> None:
    files = [str(file) for files in data_files.values() for file in files]
    packed = next((file for file in files if file.endswith((".zst", ".zstd"))), None)
    if packed is not None and importlib.util.find_spec("zstandard") is None:
        raise SourceError(f"{packed} is compressed with zstd: pip install 'tdstream[zstd]'.")


def _read_stated_total(directory: str, split: str) -> int | None:
    """Return how many records the description of a directory states, if it has one."""
    try:
        infos = list(DatasetInfosDict.from_directory(directory).values())
    except Exception:  # whatever is written there, it is no data
        return None
    stated = (infos[0].splits or {}).get(split) if len(infos) == 1 else None
    return int(stated.num_examples) if stated is not None and stated.num_examples else None


def _count_rows(builder: str, files: list[str]) -> list[int] | None:
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
