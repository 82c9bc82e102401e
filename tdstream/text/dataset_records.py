"""Records of `datasets`: streams with their own shards and states, files, and tables.

What the state of an IterableDataset is worth was measured at every place, with a second resume on top of the
first (datasets 5.2.0):

    generators, Arrow tables, json and parquet files; of these map, batched map, filter, skip, take and
    select_columns                                                         exact
    shuffle                                                                what is in its buffer is lost

Earlier versions repeat rows after a second resume, or stop moving after the first. So the state is used where
all parts of a dataset are known to be exact, with a version that was measured; elsewhere records are counted.
"""

from __future__ import annotations

import copy
import gc
import json
import logging
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

from tdstream.core.errors import SourceError, StateError
from tdstream.core.state_schema import shorten
from tdstream.text.fields import Table
from tdstream.text.provenance import walk_parts
from tdstream.text.records import MOST_SEGMENTS, IterableRecords, Place, SequenceRecords

logger = logging.getLogger(__name__)

_MEASURED = (5, 2)  # the version from which on these states are exact
_EXACT = {
    "ExamplesIterable",
    "ArrowExamplesIterable",
    "MappedExamplesIterable",
    "FilteredExamplesIterable",
    "SelectColumnsIterable",
    "SkipExamplesIterable",
    "TakeExamplesIterable",
    "RebatchedArrowExamplesIterable",
    "FormattedExamplesIterable",
}
_PLAIN = {"ArrowExamplesIterable", "SelectColumnsIterable"}  # files and tables as they are
_SHUFFLED = "BufferShuffledExamplesIterable"
_MOST_STATE_BYTES = 8_000  # as JSON


class DatasetStreamRecords:
    """The records of an IterableDataset, for a live stream.

    Shares are whole shards where there are enough, else every count-th record; num_rows is about a share.
    Of files whose text is in plain columns only these are read, without a dict for each record; what the
    dataset's states say does not depend on that.
    """

    def __init__(
        self,
        dataset: Any,
        index: int = 0,
        count: int = 1,
        *,
        text_field: str = "",
        num_rows: int | None = None,
    ) -> None:
        if getattr(dataset, "_distributed", None) is not None:
            raise SourceError(
                "the dataset was divided among ranks by split_dataset_by_node, and would be divided again. "
                "Pass the whole dataset."
            )
        self._dataset, self._index, self._count = dataset, index, count
        self._text_field = text_field
        self._parts = list(walk_parts(dataset._ex_iterable))
        self._shuffled = any(type(part).__name__ == _SHUFFLED for part in self._parts)
        self.num_rows = _read_num_rows(dataset) if num_rows is None else num_rows

    def share(self, index: int, count: int) -> DatasetStreamRecords:
        """Return the shards of stream `index`, if there are enough for all; else every count-th record."""
        rows = None if self.num_rows is None else -(-self.num_rows // count)
        if count > 1 and self._dataset.num_shards >= count:
            divided = self._dataset.shard(num_shards=count, index=index, contiguous=False)
            return DatasetStreamRecords(divided, text_field=self._text_field, num_rows=rows)
        return DatasetStreamRecords(self._dataset, index, count, text_field=self._text_field, num_rows=rows)

    def open(self, epoch: int, place: Place, block_records: int) -> DatasetBlocks:
        """Begin to read at a place."""
        rows = _count_arrow_rows(self._dataset)
        if rows is not None and len(range(self._index, rows, self._count)) < place.records:
            # The dataset's own state would skip what is missing of a shard, and go on with the next one.
            place = Place(len(range(self._index, rows, self._count)))
        dataset, columns = _copy_dataset(self._dataset), self._find_text_columns()
        if columns:
            dataset = dataset.select_columns(columns).with_format("arrow")
        dataset._epoch = epoch if self._shuffled else 0  # an epoch shuffles shards unasked
        if place.state:
            _check_state(place.state)
            dataset.load_state_dict(copy.deepcopy(place.state))
        batches = dataset.iter(batch_size=block_records * self._count)
        if not place.state:
            blocks = islice(batches, -(-place.records // block_records))
            place = Place(sum(len(self._own_rows(batch)) for batch in blocks))
        names = list(self._dataset.features or ())
        take = partial(_take_texts, text_field=self._text_field, names=names) if columns else _records
        return DatasetBlocks(
            dataset, batches, place, self._index, self._count, take=take, keeps_state=self._is_exact()
        )

    def _own_rows(self, batch: Any) -> range:
        """Return which records of a batch, a dict of lists or an Arrow table, are in this share."""
        rows = len(next(iter(batch.values()), ())) if isinstance(batch, dict) else batch.num_rows
        return range(self._index, rows, self._count)

    def describe(self) -> dict[str, Any]:
        """Return the dataset's name, configuration and split, where known, and its number of shards."""
        info = self._dataset.info
        named = {"dataset": info.dataset_name, "config": info.config_name, "split": self._dataset.split}
        words = {name: str(value or "") for name, value in named.items()}
        return {"records": "IterableDataset", **words, "num_shards": int(self._dataset.num_shards)}

    def _find_text_columns(self) -> list[str]:
        """Return the columns of plain text to read alone; none where all records are needed as they are."""
        features = self._dataset.features
        if not self._text_field or features is None or find_version(self._dataset) < _MEASURED:
            return []
        if not {type(part).__name__ for part in self._parts} <= _PLAIN:
            return []
        from tdstream.text.arrow_table import find_plain_columns, get_types  # noqa: PLC0415

        return find_plain_columns(self._text_field, get_types(features.arrow_schema))

    def _is_exact(self) -> bool:
        return find_version(self._dataset) >= _MEASURED and all(map(_is_exact, self._parts))


class DatasetBlocks:
    """A dataset that is being read: record index, index + count, ... of each of its batches."""

    def __init__(
        self,
        dataset: Any,
        batches: Iterator[Any],
        place: Place,
        index: int,
        count: int,
        *,
        take: Callable[[Any], list[Any]],
        keeps_state: bool,
    ) -> None:
        self._dataset, self._batches, self._place = dataset, batches, place
        self._take = take
        self._index, self._count = index, count
        self._keeps_state = keeps_state
        self._begins = bool(place.state)  # at a state

    def __iter__(self) -> DatasetBlocks:
        return self

    def __next__(self) -> list[Any]:
        """Return this stream's records of the dataset's next batch that has any."""
        while True:
            own = self._take(self._next_batch())[self._index :: self._count]
            self._move(len(own))
            if own:
                return own

    def _next_batch(self) -> dict[str, list[Any]]:
        begins, self._begins = self._begins, False
        try:
            return next(self._batches)
        except (AssertionError, AttributeError, KeyError, TypeError) as error:
            if begins:  # what datasets makes of another dataset's state
                raise _no_state_error(f"{type(error).__name__}: {shorten(error)}") from error
            raise

    def place(self) -> Place:
        """Return the place after the last block."""
        return self._place

    def _move(self, num_records: int) -> None:
        state = self._dataset.state_dict() if self._keeps_state else {}
        if state and (state == self._place.state or len(json.dumps(state)) > _MOST_STATE_BYTES):
            logger.warning("The dataset's own state does not move, or is large: records are counted instead.")
            self._keeps_state, state = False, {}
        self._place = Place(self._place.records + num_records, state)


def find_version(dataset: Any) -> tuple[int, int]:
    """Return the version of the package that a dataset's class is from."""
    package = __import__(type(dataset).__module__.split(".")[0])
    found = re.findall(r"\d+", package.__version__)
    return int(found[0]), int(found[1])


def _records(batch: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]


def _take_texts(table: Any, text_field: str, names: list[str]) -> list[Any]:
    """Return the texts in an Arrow table; where a record has none, a dict with the names of its fields."""
    from tdstream.text.arrow_table import ArrowTable  # noqa: PLC0415 - other live streams do without pyarrow

    texts = ArrowTable(table).texts(text_field)[0]
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            texts[row] = {**dict.fromkeys(names), **table.slice(row, 1).to_pylist()[0]}
    return texts


def _read_num_rows(dataset: Any) -> int | None:
    """Return how many records a dataset has, where it says so and nothing was applied to it since."""
    rows = _count_arrow_rows(dataset)
    if rows is not None:
        return rows
    first = dataset._ex_iterable
    shards = getattr(first, "kwargs", {}).get("shards")
    split = (dataset.info.splits or {}).get(str(dataset.split))
    plain = type(first).__name__ in ("ExamplesIterable", "ArrowExamplesIterable")
    return int(split.num_examples) if plain and not shards and split and split.num_examples else None


def _check_state(saved: Any) -> None:
    """Refuse what is not a state of a dataset: names and counts, nested."""
    waiting = [saved if isinstance(saved, dict) and "examples_iterable" in saved else object()]
    while waiting:
        value = waiting.pop()
        if isinstance(value, (dict, list)):
            waiting += value.values() if isinstance(value, dict) else value
        elif not (value is None or isinstance(value, str) or (isinstance(value, int) and value >= 0)):
            raise _no_state_error(f"it holds {shorten(value)}")


def _no_state_error(what: str) -> StateError:
    return StateError(
        f"the state's place in the dataset is not one of this dataset ({what}); it was changed, or saved "
        f"over another dataset. Load what state_dict() returned, over the same dataset."
    )


def _count_arrow_rows(dataset: Any) -> int | None:
    """Return how many records a dataset in memory or on a local disk has; None for others."""
    first = dataset._ex_iterable
    shards = getattr(first, "kwargs", {}).get("shards")
    if type(first).__name__ == "ArrowExamplesIterable" and shards and hasattr(shards[0], "num_rows"):
        return sum(int(shard.num_rows) for shard in shards)
    return None


def _copy_dataset(dataset: Any) -> Any:
    """Return a dataset that keeps its own place and epoch, without a format."""
    # Not copy.copy, which gives two objects with one and the same __dict__.
    return sys.modules["datasets"].IterableDataset(
        ex_iterable=_copy_part(dataset._ex_iterable),
        info=dataset.info.copy(),
        split=dataset.split,
        token_per_repo_id=getattr(dataset, "_token_per_repo_id", None),
    )


def _copy_part(iterable: Any) -> Any:
    """Copy a part and all that it reads."""
    part = copy.copy(iterable)
    if hasattr(part, "ex_iterable"):
        part.ex_iterable = _copy_part(part.ex_iterable)
    if hasattr(part, "ex_iterables"):
        part.ex_iterables = [_copy_part(one) for one in part.ex_iterables]
    return part


def _is_exact(part: Any) -> bool:
    return type(part).__name__ in _EXACT


class FileSegments:
    """The files of a dataset, in their order, for a preparation: runs of files that can be opened one by one.

    There are `at_least` segments if there are as many files. `rows_of_files` is known where it is cheap.
    """

    def __init__(self, dataset: Any, rows_of_files: Sequence[int] | None, at_least: int = 1) -> None:
        num_files = int(dataset.num_shards) if hasattr(dataset, "shard") else 1
        self._dataset = dataset
        self._reading: Any = None
        self.num_segments = min(num_files, max(MOST_SEGMENTS, at_least))
        self._rows: dict[int, int] = {}
        if rows_of_files is not None and len(rows_of_files) == num_files:
            first = 0
            for segment in range(self.num_segments):
                # As `shard` divides files: 7 files in 3 segments are 3, 2 and 2.
                stop = first + num_files // self.num_segments + (segment < num_files % self.num_segments)
                self._rows[segment] = sum(rows_of_files[first:stop])
                first = stop

    def read(self, segment: int, batch_size: int, first_row: int = 0) -> Iterator[Table]:
        """Read a segment as Arrow tables: only the text is converted, and nothing is decoded twice."""
        from tdstream.text.arrow_table import ArrowTable  # noqa: PLC0415 - live streams do without pyarrow

        opened = self._dataset
        if self.num_segments > 1:
            opened = opened.shard(num_shards=self.num_segments, index=segment, contiguous=True)
        self._reading = opened.with_format("arrow").iter(batch_size)
        return _skip_rows(map(ArrowTable, self._reading), first_row)

    def count_rows(self, segment: int) -> int:
        """Return how many records a segment has, after reading it where nothing else tells."""
        if segment not in self._rows:
            self._rows[segment] = sum(table.num_rows for table in self.read(segment, 1000))
        return self._rows[segment]

    def leave(self, tables: Any) -> None:  # noqa: ARG002 - it is what was opened last
        """Stop reading a segment before its end."""
        close_early(self._reading)


def _skip_rows(tables: Iterator[Table], first_row: int) -> Iterator[Table]:
    """Return the tables after their first rows."""
    while first_row:
        table = next(tables, None)
        if table is None:
            break
        if table.num_rows > first_row:
            return chain([table.slice(first_row, None)], tables)
        first_row -= table.num_rows
    return tables  # no generator, which would keep what it has yielded


class StreamSegment(IterableRecords):
    """The records of an IterableDataset that is more than its files, for a preparation: one segment."""

    def __init__(self, dataset: Any) -> None:
        super().__init__(lambda: iter(dataset.with_format(None)))

    def leave(self, tables: Any) -> None:
        """Stop reading before the end."""
        close_early(tables)


class TableSegments(SequenceRecords):
    """Some columns of a `datasets.Dataset`, for a preparation."""

    def __init__(self, dataset: Any, columns: list[str]) -> None:
        super().__init__(dataset)
        self._narrow = dataset.select_columns(columns).with_format("arrow")

    def _read_range(self, first: int, stop: int, batch_size: int) -> Iterator[Table]:
        from tdstream.text.arrow_table import ArrowTable  # noqa: PLC0415 - live streams do without pyarrow

        for table in self._narrow.select(range(first, stop)).iter(batch_size):
            yield ArrowTable(table)


def close_early(tables: Any) -> None:
    """Close a generator of `datasets` that was not read to its end."""
    with warnings.catch_warnings():
        # pandas leaves the file of a reader that was not read to its end to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        tables.close()
        gc.collect()
    # The readers' threads end by themselves, but abort an interpreter that ends before them.
    time.sleep(0.1)
