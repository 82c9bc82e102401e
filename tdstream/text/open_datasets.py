"""Text that `datasets` reads: on the hub, saved to disk, described by a card, or in the caller's hands."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet
from datasets import Dataset, Features, IterableDataset, Value
from datasets.info import DatasetInfosDict
from datasets.packaged_modules import _PACKAGED_DATASETS_MODULES

from tdstream.core.errors import ConfigError, SourceError
from tdstream.text.arrow_table import Types, find_columns, find_missing, get_types, list_fields
from tdstream.text.batches import Facts, Task
from tdstream.text.dataset_records import FileSegments, StreamSegment, TableSegments, close_early
from tdstream.text.fields import hash_texts, missing_field_error
from tdstream.text.file_formats import CHOICES
from tdstream.text.files import find_path, resolve_local, was_saved
from tdstream.text.network import hub_is_unreachable, looks_like_a_path
from tdstream.text.options import DEFAULT_DATA_NAME, TextOptions
from tdstream.text.provenance import describe_stream
from tdstream.text.records import Segments

_PEEKED = 16


def load_saved(options: TextOptions) -> Any:
    """Return what ``save_to_disk`` wrote into the directory that the options name; None if it wrote none."""
    path = find_path(options.dataset)
    if path is None or not was_saved(path):
        return None
    if "::" in os.path.realpath(path):
        raise SourceError(
            f"Dataset {options.dataset!r} has '::' in its path, which `datasets` takes for a chain of URLs. "
            f"Rename the directory."
        )
    return datasets.load_from_disk(os.path.realpath(path))


def open_named(options: TextOptions, task: Task) -> tuple[Segments, Facts]:
    """Open a dataset by its name: on the hub, a directory with a card, or `data_files` with URLs."""
    return _open_files(_make_request(options), options, task)


def open_dataset(dataset: Dataset, options: TextOptions) -> tuple[Segments, Facts]:
    """Open a dataset in memory or on the disk."""
    if dataset.format["type"] == "custom":
        raise ConfigError(
            "The dataset has a transform, which is applied only when single records are taken from it. "
            "Apply it with map() before."
        )
    columns = _find_columns(get_types(dataset.features.arrow_schema), options)
    identity = {"length": len(dataset), "fingerprint": dataset._fingerprint}
    return TableSegments(dataset, columns), Facts(identity=identity, total=len(dataset))


def open_dataset_stream(dataset: IterableDataset, options: TextOptions, task: Task) -> tuple[Segments, Facts]:
    """Open a dataset that is read in a stream."""
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
        return files, Facts(
            identity={"stream": names, "first": hash_texts(first, options.text_field)}, provenance=behind
        )
    stream = StreamSegment(dataset if columns is None else dataset.select_columns(columns))
    first = [stream.peek(_PEEKED)]
    return stream, Facts(
        identity={"stream": names, "first": hash_texts(first, options.text_field)}, provenance=behind
    )


def _count_tasks(task: Task) -> int:
    return 1 if task is None else task[1]


def _find_columns(types: Types, options: TextOptions) -> list[str]:
    """Return the columns that hold the text; raise SourceError if a part of it has none."""
    missing = find_missing(options.text_field, types)
    if missing:
        raise missing_field_error(missing, list_fields(types))
    return find_columns(options.text_field, types)


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


def _make_request(options: TextOptions) -> _Request:
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


def read_stated_total(directory: str, split: str) -> int | None:
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
