"""A live stream over files reads only the text, and its states say what they said before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tdstream.core.errors import SourceError
from tdstream.text.dataset_records import DatasetStreamRecords
from tdstream.text.fields import Rows
from tdstream.text.options import TextOptions
from tdstream.text.records import Place
from tdstream.text.text_stream import open_stream

ROWS = [
    {"id": n, "text": f"t{n}", "meta": {"title": f"m{n}", "n": [n]}, "title": f"T{n}" if n % 3 else None}
    for n in range(90)
]
TEXTS = {
    "text": [f"t{n}" for n in range(90)],
    "meta.title": [f"m{n}" for n in range(90)],
    "title,text": [f"T{n}\n\nt{n}" if n % 3 else f"t{n}" for n in range(90)],
}


@pytest.fixture(params=["parquet", "json", "table"])
def stream(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return a dataset of two shards."""
    if request.param == "table":
        return datasets.Dataset.from_list(ROWS).to_iterable_dataset(num_shards=2)
    files = [str(tmp_path / f"{name}.{request.param}") for name in "ab"]
    for path, part in zip(files, (ROWS[:50], ROWS[50:]), strict=True):
        if request.param == "parquet":
            pq.write_table(pa.Table.from_pylist(part), path, row_group_size=7)
        else:
            Path(path).write_text("".join(json.dumps(row) + "\n" for row in part))
    return datasets.load_dataset(
        request.param, data_files=files, split="train", streaming=True, cache_dir=str(tmp_path)
    )


def read(records: Any, place: Place, text_field: str) -> list[tuple[list[str], Place]]:
    """Return the texts of each block, and the place after it."""
    opened = records.open(0, place, 4)
    return [(Rows(block).texts(text_field)[0], opened.place()) for block in opened]


@pytest.mark.parametrize("text_field", TEXTS)
@pytest.mark.parametrize("share", [None, (0, 2), (1, 3)])
def test_same_texts_and_states(stream: Any, text_field: str, share: tuple[int, int] | None) -> None:
    """Whether all columns are read or only the text, and each goes on from the other's places."""
    narrow, wide = DatasetStreamRecords(stream, text_field=text_field), DatasetStreamRecords(stream)
    if share is not None:
        narrow, wide = narrow.share(*share), wide.share(*share)
    assert narrow._find_text_columns()
    assert not wide._find_text_columns()
    blocks = read(narrow, Place(), text_field)
    assert blocks == read(wide, Place(), text_field)
    if share is None:
        assert [text for block, _ in blocks for text in block] == TEXTS[text_field]
    for number in range(0, len(blocks), 5):
        place = blocks[number][1]
        assert read(narrow, place, text_field) == read(wide, place, text_field)
        rest = [text for block, _ in read(narrow, Place(place.records), text_field) for text in block]
        assert rest == [text for block, _ in blocks[number + 1 :] for text in block]


def test_a_bad_record(tmp_path: Path) -> None:
    """It is refused with the names of all its fields, although only the text was read."""
    rows = [{"id": n, "text": None if n == 6 else "x", "url": "u"} for n in range(9)]
    stream = datasets.Dataset.from_list(rows).to_iterable_dataset()
    texts = open_stream(TextOptions(given=stream, dataset="given"))
    with pytest.raises(SourceError, match=r"^Record 6 .*it is None or absent. Its other fields: id, url"):
        list(texts.blocks(0, 0, 1, Place(), 4))


def test_other_streams_are_read_as_they_are() -> None:
    """What a function makes of records, shuffled ones, and fields that are no text."""
    plain = datasets.Dataset.from_list(ROWS).to_iterable_dataset()
    for stream, text_field in (
        (plain.map(lambda row: row), "text"), (plain.shuffle(seed=1), "text"), (plain, "id"), (plain, "nope"),
        (plain.filter(lambda row: True), "text"),
    ):  # fmt: skip
        assert not DatasetStreamRecords(stream, text_field=text_field)._find_text_columns()
