"""The records of a datasets.IterableDataset: divided by its own shards, and resumed by its own state.

What its state is worth was measured, at every place, with a second resume on top of the first (5.2.0):

    generators, Arrow tables, json and parquet files; of these map, batched map, filter, skip, take and
    select_columns                                                         exact
    shuffle                                                                what is in its buffer is lost

Earlier versions repeat rows after a second resume, or stop to move after the first. So the state is used
where all parts of a dataset are known to be exact, with a version that was measured; elsewhere records are
counted.
"""

from __future__ import annotations

import copy
import json
import logging
import re
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

from tdstream.core.errors import SourceError
from tdstream.text.records import Place

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
_SHUFFLED = "BufferShuffledExamplesIterable"
_MOST_BYTES = 8_000  # of a state, as JSON


class DatasetRecords:
    """The records of an IterableDataset.

    Args:
        dataset: It, whole: not divided among ranks by `split_dataset_by_node`.
        index: Which share this is, of records; 0 where shares are whole shards.
        count: How many shares there are.
        num_rows: How many records this share has, about; None asks the dataset.

    Raises:
        SourceError: If it was divided among ranks already.
    """

    def __init__(self, dataset: Any, index: int = 0, count: int = 1, *, num_rows: int | None = None) -> None:
        if getattr(dataset, "_distributed", None) is not None:
            raise SourceError(
                "the dataset was divided among ranks by split_dataset_by_node, and would be divided again. "
                "Pass the whole dataset."
            )
        self._dataset, self._index, self._count = dataset, index, count
        self._parts = list(_parts(dataset._ex_iterable))
        self._shuffled = any(type(part).__name__ == _SHUFFLED for part in self._parts)
        self.num_rows = _rows_of(dataset) if num_rows is None else num_rows

    def share(self, index: int, count: int) -> DatasetRecords:
        """Return the shards of stream `index`, if there are enough for all; else every count-th record."""
        rows = None if self.num_rows is None else -(-self.num_rows // count)
        if count > 1 and self._dataset.num_shards >= count:
            divided = self._dataset.shard(num_shards=count, index=index, contiguous=False)
            return DatasetRecords(divided, num_rows=rows)
        return DatasetRecords(self._dataset, index, count, num_rows=rows)

    def open(self, epoch: int, place: Place, block_records: int) -> OpenedDataset:
        """Begin to read at a place."""
        dataset = _own(self._dataset)
        dataset._epoch = epoch if self._shuffled else 0  # an epoch shuffles shards also where nobody asked
        if place.state:
            dataset.load_state_dict(copy.deepcopy(place.state))
        batches = dataset.iter(batch_size=block_records * self._count)
        if not place.state:
            blocks = -(-place.records // block_records)
            next(islice(batches, blocks, blocks), None)
        return OpenedDataset(dataset, batches, place, self._index, self._count, keeps_state=self._is_exact())

    def describe(self) -> dict[str, Any]:
        """Return the dataset's name, configuration, split and shards, as far as it knows them."""
        info = self._dataset.info
        named = {"dataset": info.dataset_name, "config": info.config_name, "split": self._dataset.split}
        words = {name: str(value or "") for name, value in named.items()}
        return {"records": "IterableDataset", **words, "num_shards": int(self._dataset.num_shards)}

    def _is_exact(self) -> bool:
        return version_of(self._dataset) >= _MEASURED and all(map(_is_exact, self._parts))


class OpenedDataset:
    """A dataset that is being read.

    Args:
        dataset: It.
        batches: Those that are left of it.
        place: What the place before them is called.
        index: Which of `count` records in turn are this stream's.
        count: See index.
        keeps_state: Whether places are named by the dataset's own state.
    """

    def __init__(
        self,
        dataset: Any,
        batches: Iterator[dict[str, list[Any]]],
        place: Place,
        index: int,
        count: int,
        *,
        keeps_state: bool,
    ) -> None:
        self._dataset, self._batches, self._place = dataset, batches, place
        self._index, self._count = index, count
        self._keeps_state = keeps_state

    def __iter__(self) -> OpenedDataset:
        return self

    def __next__(self) -> list[Any]:
        """Return the next block: this stream's records of one batch of the dataset."""
        while True:
            own = _records(next(self._batches))[self._index :: self._count]
            self._move(len(own))
            if own:
                return own

    def place(self) -> Place:
        """Return the place behind the last block."""
        return self._place

    def _move(self, num_records: int) -> None:
        state = self._dataset.state_dict() if self._keeps_state else {}
        if state and (state == self._place.state or len(json.dumps(state)) > _MOST_BYTES):
            logger.warning("The dataset's own state does not move, or is large: records are counted instead.")
            self._keeps_state, state = False, {}
        self._place = Place(self._place.records + num_records, state)


def version_of(dataset: Any) -> tuple[int, int]:
    """Return the version of the package that a dataset's class is from."""
    package = __import__(type(dataset).__module__.split(".")[0])
    found = re.findall(r"\d+", package.__version__)
    return int(found[0]), int(found[1])


def _records(batch: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]


def _rows_of(dataset: Any) -> int | None:
    """Return how many records a dataset has, if it says so, and nothing was done to it since."""
    first = dataset._ex_iterable
    shards = getattr(first, "kwargs", {}).get("shards")
    if type(first).__name__ == "ArrowExamplesIterable" and shards and hasattr(shards[0], "num_rows"):
        return sum(int(shard.num_rows) for shard in shards)
    split = (dataset.info.splits or {}).get(str(dataset.split))
    plain = type(first).__name__ in ("ExamplesIterable", "ArrowExamplesIterable")
    return int(split.num_examples) if plain and not shards and split and split.num_examples else None


def _own(dataset: Any) -> Any:
    """Return the same dataset with a place and an epoch of its own, and without a format."""
    # Not copy.copy, which gives two objects with one and the same __dict__.
    return sys.modules["datasets"].IterableDataset(
        ex_iterable=_copied(dataset._ex_iterable),
        info=dataset.info.copy(),
        split=dataset.split,
        token_per_repo_id=getattr(dataset, "_token_per_repo_id", None),
    )


def _copied(iterable: Any) -> Any:
    """Return a part that keeps a place of its own, and so do those it reads."""
    part = copy.copy(iterable)
    if hasattr(part, "ex_iterable"):
        part.ex_iterable = _copied(part.ex_iterable)
    if hasattr(part, "ex_iterables"):
        part.ex_iterables = [_copied(one) for one in part.ex_iterables]
    return part


def _parts(iterable: Any) -> Iterator[Any]:
    """Yield the parts of a dataset, each one that reads another before that."""
    yield iterable
    inner = (
        [iterable.ex_iterable] if hasattr(iterable, "ex_iterable") else getattr(iterable, "ex_iterables", [])
    )
    for one in inner:
        yield from _parts(one)


def _is_exact(part: Any) -> bool:
    return type(part).__name__ in _EXACT
