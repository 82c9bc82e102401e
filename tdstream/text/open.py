"""Text for a preparation, named or in the caller's hands, on the hub or on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tdstream.core.errors import ConfigError, SourceError
from tdstream.text.batches import Facts, Task, TextBatches
from tdstream.text.fields import hash_texts
from tdstream.text.files import find_files
from tdstream.text.local_files import open_local
from tdstream.text.network import in_one_line
from tdstream.text.options import TextOptions
from tdstream.text.provenance import describe_object
from tdstream.text.records import IterableRecords, Segments, SequenceRecords
from tdstream.text.source import SourceType, find_source_type

_PEEKED = 16
"""First records that stand for a source whose records cannot all be compared."""


def open_text(options: TextOptions, task: Task = None) -> TextBatches:
    """Open the text that the options name or hold; with `task`, share i of n of its records.

    Raises:
        ConfigError: If two options do not go together, or the source cannot be read.
        SourceError: If there is no such dataset, it cannot be reached or read, or it lacks the text field.
    """
    try:
        segments, facts = (
            _open_location(options, task)
            if options.given is None
            else _open_object(options.given, options, task)
        )
        return TextBatches(segments, options, facts, task)
    except (ConfigError, SourceError):
        raise
    except Exception as error:  # whatever the readers of `datasets` raise
        raise SourceError(
            f"Dataset {options.dataset!r} cannot be opened: {in_one_line(error)}. "
            f"Check the dataset, its data_name, split and data_files."
        ) from error


def _open_location(options: TextOptions, task: Task) -> tuple[Segments, Facts]:
    """Open what the options name; `datasets`, which takes a second to import, only where it is needed."""
    files = find_files(options)
    if files is not None:
        files = files.without(options.skipped_files)
        files.log(options.dataset)
        segments, facts = open_local(files, options, task)
        if facts.total is None and files.root is not None and _has_card(files.root):
            from tdstream.text.open_datasets import read_stated_total  # noqa: PLC0415

            facts = replace(facts, total=read_stated_total(files.root, options.split))
        return segments, facts
    from tdstream.text.open_datasets import load_saved, open_named  # noqa: PLC0415

    saved = load_saved(options)
    return open_named(options, task) if saved is None else _open_object(saved, options, task)


def _has_card(directory: str) -> bool:
    """Return whether a directory may state how many records there are."""
    return any(os.path.isfile(os.path.join(directory, name)) for name in ("README.md", "dataset_infos.json"))


def _open_object(source: Any, options: TextOptions, task: Task) -> tuple[Segments, Facts]:
    for name in ("data_name", "data_files", "lines"):
        if getattr(options, name):
            raise ConfigError(
                f"{name} is for a dataset that is named, not for one that is given. Leave it out."
            )
    source = _choose_split(source, options.split)
    source_type = find_source_type(source)
    if source_type is SourceType.DATASET:
        from tdstream.text.open_datasets import open_dataset  # noqa: PLC0415

        return open_dataset(source, options)
    if source_type is SourceType.DATASET_STREAM:
        from tdstream.text.open_datasets import open_dataset_stream  # noqa: PLC0415

        return open_dataset_stream(source, options, task)
    length = len(source) if hasattr(source, "__len__") else None
    if source_type is SourceType.LIST:
        records = SequenceRecords(source)
        tables = (table for segment in range(records.num_segments) for table in records.read(segment, 1000))
        return records, Facts(
            identity={"length": length, "content": hash_texts(tables, options.text_field)}, total=length
        )
    iterable = IterableRecords(source)
    first = hash_texts([iterable.peek(_PEEKED)], options.text_field)
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
