"""Sources are divided and gone on with exactly, each by the way that is exact for it."""

from __future__ import annotations

import datasets
import pytest
from helpers_stream import Texts, some_texts, write_shards

from tdstream.core.errors import SourceError
from tdstream.text import dataset_records
from tdstream.text.dataset_records import DatasetStreamRecords
from tdstream.text.records import IterableRecords, Place, SequenceRecords

TEXTS = some_texts(230)
NUMBERED = [f"{number}" for number in range(230)]


def generated(parts):
    """Yield records, a part at a time; a generator with shards."""
    for part in parts:
        for number in range(part * 58, min(part * 58 + 58, 230)):
            yield {"text": f"{number}"}


def from_generator():
    """A generator with four shards."""
    return datasets.IterableDataset.from_generator(generated, gen_kwargs={"parts": [0, 1, 2, 3]})


def from_table():
    """An Arrow table in four shards."""
    return datasets.Dataset.from_dict({"text": NUMBERED}).to_iterable_dataset(num_shards=4)


SHAPES = {
    "plain": lambda dataset: dataset,
    "map": lambda dataset: dataset.map(lambda record: {"text": record["text"] + "!"}),
    "batched": lambda dataset: dataset.map(
        lambda rows: {"text": [t * 2 for t in rows["text"]]}, batched=True, batch_size=5
    ),
    "filter": lambda dataset: dataset.filter(lambda record: int(record["text"]) % 3),
    "skip and take": lambda dataset: dataset.skip(7).take(150),
    "columns": lambda dataset: dataset.select_columns(["text"]),
    "shards shuffled": lambda dataset: dataset.shuffle(seed=1, buffer_size=1),
    "shuffled": lambda dataset: dataset.shuffle(seed=1, buffer_size=20),
}
COUNTED = {"shuffled", "shards shuffled"}  # a state that loses the buffer; one that nobody has measured


def texts_of(opened):
    """Return the texts of all blocks that are left."""
    return [record if isinstance(record, str) else record["text"] for block in opened for record in block]


def every_place(records, block=16):
    """Return the texts, and (texts before, place) behind each block."""
    opened, texts, places = records.open(0, Place(), block), [], []
    for found in opened:
        texts += [record["text"] for record in found]
        places.append((len(texts), opened.place()))
    return texts, places


@pytest.mark.parametrize("begin", [from_generator, from_table])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_dataset_goes_on_from_every_place_twice(begin, shape):
    """From each place on, and from the place behind the next block, of a copy that had gone on already."""

    def records():
        return DatasetStreamRecords(SHAPES[shape](begin()))

    texts, places = every_place(records())
    assert len(texts) > 100
    for done, place in places[::3]:
        assert bool(place.state) == (shape not in COUNTED), "which way is taken"
        opened = records().open(0, place, 16)
        block = [record["text"] for record in next(opened, [])]
        again = records().open(0, opened.place(), 16)
        assert block + texts_of(again) == texts[done:], (shape, done)


def test_files_go_on_by_their_own_state(tmp_path):
    """JSON lines in three files: a place in the third is found without opening the first."""
    paths = write_shards(tmp_path, tuple(NUMBERED), 3)

    def records():
        return DatasetStreamRecords(
            datasets.load_dataset("json", data_files=paths, split="train", streaming=True)
        )

    texts, places = every_place(records())
    assert texts == NUMBERED
    done, place = places[-3]
    assert place.state["examples_iterable"]["examples_iterable"]["shard_idx"] >= 1
    assert texts_of(records().open(0, place, 16)) == NUMBERED[done:]


def test_a_state_that_does_not_move_is_not_trusted(monkeypatch, caplog):
    """Where the dataset's state stays the same, records are counted from there on, and the log says so."""
    monkeypatch.setattr(datasets.IterableDataset, "state_dict", lambda self: {"frozen": 0})
    opened = DatasetStreamRecords(from_table()).open(0, Place(), 16)
    next(opened)
    next(opened)
    monkeypatch.undo()
    assert opened.place() == Place(32)
    assert "records are counted instead" in caplog.text
    assert texts_of(DatasetStreamRecords(from_table()).open(0, opened.place(), 16)) == NUMBERED[32:]


def test_versions_that_were_not_measured_are_counted(monkeypatch):
    """An older datasets has states that repeat rows."""
    monkeypatch.setattr(dataset_records, "find_version", lambda _: (3, 6))
    _, places = every_place(DatasetStreamRecords(from_table()))
    assert not any(place.state for _, place in places)


@pytest.mark.parametrize("streams", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(
    "make",
    [
        lambda: IterableRecords(Texts(tuple(NUMBERED))),
        lambda: SequenceRecords(NUMBERED),
        lambda: DatasetStreamRecords(from_table()),
        lambda: DatasetStreamRecords(from_generator()),
        lambda: DatasetStreamRecords(SHAPES["shuffled"](from_table())),
    ],
)
def test_each_record_is_in_one_stream(make, streams):
    """By shards where there are enough, else by records: all streams together hold each record once."""
    shares = [texts_of(make().share(index, streams).open(0, Place(), 16)) for index in range(streams)]
    assert sorted(text for share in shares for text in share) == sorted(NUMBERED)
    assert all(shares)


def test_streams_of_a_dataset_are_its_shards():
    """With four shards, one of two streams has two whole ones, one of five has single records."""
    first = texts_of(DatasetStreamRecords(from_table()).share(0, 2).open(0, Place(), 16))
    assert first == NUMBERED[:58] + NUMBERED[116:173]
    assert texts_of(DatasetStreamRecords(from_table()).share(1, 5).open(0, Place(), 16)) == NUMBERED[1::5]


@pytest.mark.parametrize(
    "records", [IterableRecords(NUMBERED), SequenceRecords(NUMBERED), DatasetStreamRecords(from_table())]
)
def test_shares_go_on_too(records):
    """A share of records is gone on with behind any block."""
    share = records.share(2, 5)
    texts = NUMBERED[2::5]
    opened = share.open(0, Place(), 8)
    for done in range(8, len(texts), 8):
        next(opened)
        assert texts_of(share.open(0, opened.place(), 8)) == texts[done:]


def test_a_shuffled_dataset_is_shuffled_anew_in_each_epoch():
    """The epoch reaches a dataset that its owner has shuffled, and no other, and not the owner's own copy."""
    dataset = SHAPES["shuffled"](from_table())
    first, second = (texts_of(DatasetStreamRecords(dataset).open(epoch, Place(), 16)) for epoch in (0, 1))
    assert sorted(first) == sorted(second) == sorted(NUMBERED)
    assert first != second
    assert dataset.epoch == 0
    for epoch in range(5):
        assert texts_of(DatasetStreamRecords(from_table()).open(epoch, Place(), 16)) == NUMBERED


def test_two_passes_over_one_dataset_do_not_disturb_each_other():
    """Each keeps its own place."""
    records = DatasetStreamRecords(from_table())
    one, other = records.open(0, Place(), 16), records.open(0, Place(), 16)
    next(one), next(one), next(other)
    assert texts_of(records.open(0, other.place(), 16)) == NUMBERED[16:]
    assert texts_of(one) == NUMBERED[32:]


def test_rows_are_known_where_the_dataset_says_so():
    """An Arrow table knows its rows, a generator does not, and a filter makes nobody know."""
    assert DatasetStreamRecords(from_table()).num_rows == 230
    assert DatasetStreamRecords(from_table()).share(0, 2).num_rows == 115
    assert DatasetStreamRecords(from_generator()).num_rows is None
    assert DatasetStreamRecords(SHAPES["filter"](from_table())).num_rows is None


def test_a_dataset_that_was_divided_already_is_refused():
    """It would be divided once more."""
    from datasets.distributed import split_dataset_by_node

    with pytest.raises(SourceError, match="divided among ranks"):
        DatasetStreamRecords(split_dataset_by_node(from_table(), rank=0, world_size=2))
