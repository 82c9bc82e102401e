"""A live stream that is killed at any step goes on exactly, from a small state, and reads little again."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import datasets
import pytest
from helpers_stream import (
    BATCH_SIZE,
    SEQ_LEN,
    Texts,
    ids_of,
    joined_rows,
    rows_of,
    some_texts,
    through_file,
    write_shards,
)
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream

TEXTS = some_texts(600)
CUTS = ("stream", "document")


def build(source, tokenizer, **options):
    """Return a live stream with a small buffer."""
    settings = {"seq_len": SEQ_LEN, "batch_size": BATCH_SIZE, "shuffle_buffer": 80} | options
    return tdstream.build(source, tokenizer=tokenizer, **settings)


def cut_and_go_on(make, steps, total=None):
    """Return the batches of a pass that is left after so many steps, and gone on with by another one."""
    first = make()
    iterator = iter(first)
    before = [ids_of(batch) for batch in islice(iterator, steps)]
    state = through_file(first.state_dict() if hasattr(first, "state_dict") else iterator.state_dict())
    del iterator, first
    second = make()
    if hasattr(second, "load_state_dict"):
        second.load_state_dict(state)
        after = iter(second)
    else:
        after = iter(second)
        after.load_state_dict(state)
    return before + [ids_of(batch) for batch in after]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("buffer", [0, 80, 5000])
def test_cut_at_every_step(tokenizer_dir, cut, buffer):
    """Wherever a pass is left, the two halves are the whole."""

    def make():
        return build(lambda: iter(TEXTS[:250]), tokenizer_dir, cut=cut, shuffle_buffer=buffer)

    whole = [ids_of(batch) for batch in make()]
    for steps in range(0, len(whole) + 1, 5):
        assert cut_and_go_on(make, steps) == whole, steps


@pytest.mark.parametrize("stride", [None, 5])
def test_cut_at_every_step_of_samples_longer_than_blocks(tokenizer_dir, stride):
    """Documents of a word, 20 in a sample, 10 in a block: a sample is due by where it ends.

    By where it began it could be due before others that have left when it is complete, and be taken for one
    that was served.
    """
    texts = [f"w{2 + number}" for number in range(500)]

    def make():
        return build(
            lambda: iter(texts), tokenizer_dir, seq_len=39, stride=stride, batch_size=1, shuffle_buffer=80
        )

    whole = [ids_of(batch) for batch in make()]
    expected = [[row[:-1]] for row in joined_rows(texts, seq_len=39, stride=stride)]
    assert sorted(whole) == sorted(expected) != whole
    for steps in range(0, len(whole) + 1, 1 if stride is None else 17):
        assert cut_and_go_on(make, steps) == whole, steps


def test_a_second_and_a_third_cut(tokenizer_dir):
    """A pass that was gone on with can be left again, at the very next step too."""
    whole = [ids_of(batch) for batch in build(lambda: iter(TEXTS), tokenizer_dir)]
    found, state = [], None
    while len(found) < len(whole):
        iterator = iter(build(lambda: iter(TEXTS), tokenizer_dir))
        if state is not None:
            iterator.load_state_dict(state)
            assert iterator.state_dict() == state
        found += [ids_of(batch) for batch in islice(iterator, 1 + len(found) % 7)]
        state = through_file(iterator.state_dict())
    assert found == whole


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("wrap", ["stateful", "loader"])
def test_with_workers(tokenizer_dir, workers, wrap):
    """StatefulDataLoader over build(), and tdstream.loader: at the beginning, in the middle, at the end."""

    def make():
        options = {
            "seq_len": SEQ_LEN,
            "batch_size": BATCH_SIZE,
            "shuffle_buffer": 80,
            "tokenizer": tokenizer_dir,
        }
        if wrap == "loader":
            return tdstream.loader(lambda: iter(TEXTS), num_workers=workers, **options)
        return StatefulDataLoader(tdstream.build(lambda: iter(TEXTS), **options), num_workers=workers)

    whole = [ids_of(batch) for batch in make()]
    for steps in (0, 1, len(whole) // 2, len(whole) - 1):
        assert cut_and_go_on(make, steps) == whole, steps


def test_the_state_stays_small(tokenizer_dir):
    """With a buffer of 10,000 documents, far into a pass: less than 16 KB, and nothing of the text in it."""
    texts = some_texts(12_000)
    iterator = iter(build(lambda: iter(texts), tokenizer_dir, shuffle_buffer=10_000))
    for _ in range(3):
        list(islice(iterator, 100))
        state = iterator.state_dict()
        place = state["nodes"]["stream"]
        assert place["read"] - place["records"] <= 10_000
        assert len(json.dumps(state)) < 2_000
    assert "w7" not in json.dumps(state)


@pytest.mark.exhaustive
@pytest.mark.parametrize("cut", CUTS)
def test_cut_anywhere_with_a_large_buffer(tokenizer_dir, cut):
    """A buffer of 10,000 documents of 15,000, left at 500 steps: the two halves are the whole."""
    dataset = datasets.Dataset.from_dict({"text": list(some_texts(15_000, longest=12))})

    def make():
        stream = dataset.to_iterable_dataset(num_shards=4)
        return iter(build(stream, tokenizer_dir, shuffle_buffer=10_000, batch_size=16, cut=cut))

    whole = [ids_of(batch) for batch in make()]
    assert len(whole) > 500
    first = make()
    for step in range(500):
        again = make()
        again.load_state_dict(through_file(first.state_dict()))
        place = again.state_dict()["nodes"]["stream"]
        assert place["read"] - place["records"] <= 10_000
        tail = None if step % 50 == 0 else step + 2
        assert [ids_of(batch) for batch in islice(again, None if tail is None else 2)] == whole[step:tail]
        next(first)


@pytest.mark.exhaustive
def test_memory_is_flat(tokenizer_dir):
    """Over 10^6 documents the process grows by less than 5 %, once its buffer is full."""
    line = " ".join(f"w{2 + number}" for number in range(60))

    def texts():
        return (line[: 20 + number * 7 % 200] for number in range(10**6))

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1])

    run, sizes = tdstream.loader(texts, tokenizer=tokenizer_dir, seq_len=64, batch_size=32, shuffle=True), []
    for step, _ in enumerate(run):
        if step % 500 == 499:
            sizes.append(resident())
    assert len(sizes) > 20
    assert max(sizes) < 1.05 * sizes[0]


def shards_of(tmp_path, num_shards=3):
    """Return a function that opens the texts as a streaming dataset of so many files."""
    paths = write_shards(tmp_path, TEXTS, num_shards)
    return lambda: datasets.load_dataset("json", data_files=paths, split="train", streaming=True)


def test_a_dataset_goes_on_by_its_own_state(tokenizer_dir, tmp_path):
    """Cut at every seventh step; the place is the dataset's, not a count of records."""
    open_dataset = shards_of(tmp_path)
    whole = [ids_of(batch) for batch in build(open_dataset(), tokenizer_dir)]
    assert whole == [ids_of(batch) for batch in build(lambda: iter(TEXTS), tokenizer_dir)]
    for steps in range(0, len(whole), 7):
        assert cut_and_go_on(lambda: build(open_dataset(), tokenizer_dir), steps) == whole, steps
    iterator = iter(build(open_dataset(), tokenizer_dir))
    for _ in islice(iterator, len(whole) - 5):
        pass
    assert iterator.state_dict()["nodes"]["stream"]["state"]["examples_iterable"]


def test_at_most_one_buffer_is_read_again(tokenizer_dir):
    """A dataset of 2,000 records, buffer 400: going on from any step takes at most 400 records twice."""
    texts, taken = list(some_texts(2000, longest=9)), []

    def note(record):
        taken.append(record["number"])
        return record

    def make():
        numbered = datasets.Dataset.from_dict({"text": texts, "number": range(2000)})
        return build(numbered.to_iterable_dataset(num_shards=4).map(note), tokenizer_dir, shuffle_buffer=400)

    steps, most = len(list(make())), []
    for step in range(1, steps, 61):
        taken.clear()
        iterator = iter(make())
        for _ in islice(iterator, step):
            pass
        state, known = iterator.state_dict(), set(taken)
        taken.clear()
        again = iter(make())
        again.load_state_dict(state)
        next(again, None)
        most.append(len(known & set(taken)))
    assert 200 < max(most) <= 400


def test_counted_records_are_passed_over_not_tokenized(tokenizer_dir):
    """A function's records are read again from the beginning, but only the buffer's are tokenized."""
    source = Texts(TEXTS)
    pipeline = build(source, tokenizer_dir)
    iterator = iter(pipeline)
    for _ in islice(iterator, 150):
        pass
    state = iterator.state_dict()
    place = state["nodes"]["stream"]
    assert place["read"] - place["records"] <= 80


def test_epochs_count_themselves_and_differ(tokenizer_dir):
    """Two passes hold the same samples in another order; set_epoch gives the first one again."""
    pipeline = build(lambda: iter(TEXTS), tokenizer_dir, batch_size=1)
    first, second = rows_of(pipeline), rows_of(pipeline)
    assert first != second
    assert sorted(first) == sorted(second) == sorted(row[:-1] for row in joined_rows(TEXTS))
    pipeline.set_epoch(0)
    assert rows_of(pipeline) == first


@pytest.mark.parametrize("persistent", [False, True])
def test_epochs_reach_workers(tokenizer_dir, persistent):
    """With two workers: epochs count themselves, set_epoch is heard, also after a resume."""

    def make():
        pipeline = build(lambda: iter(TEXTS[:200]), tokenizer_dir)
        return pipeline, StatefulDataLoader(pipeline, num_workers=2, persistent_workers=persistent)

    pipeline, loader = make()
    epochs = [[ids_of(batch) for batch in loader] for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    pipeline.set_epoch(1)
    assert [ids_of(batch) for batch in loader] == epochs[1]
    pipeline.set_epoch(1)
    for _ in islice(loader, 5):
        pass
    iterator = iter(loader)
    before = [ids_of(batch) for batch in islice(iterator, 5)]
    state = loader.state_dict()
    _, again = make()
    again.load_state_dict(state)
    assert before + [ids_of(batch) for batch in again] == epochs[1]
    assert [ids_of(batch) for batch in again] == epochs[2]


def test_an_ended_stream_stays_ended(tokenizer_dir):
    """A state from behind the last batch serves nothing, without reading; then comes the next epoch."""
    pipeline = build(lambda: iter(TEXTS), tokenizer_dir)
    iterator = iter(pipeline)
    list(iterator)
    state, source = iterator.state_dict(), Texts(TEXTS)
    again = build(source, tokenizer_dir)
    rest = iter(again)
    rest.load_state_dict({**state, "nodes": {**state["nodes"], "source": again.nodes.source.state_dict()}})
    assert list(rest) == []
    assert source.taken == 0
    assert again.epoch == 1


def test_an_error_is_tried_again_and_nothing_is_lost(tokenizer_dir):
    """A record that fails once is there at the next call, in its place."""
    broken = {"left": 1}

    def texts():
        for number, text in enumerate(TEXTS):
            if number == 300 and broken["left"]:
                broken["left"] -= 1
                raise ValueError("a bad day")
            yield text

    iterator, found = iter(build(texts, tokenizer_dir)), []
    with pytest.raises(ValueError, match="a bad day"):
        found.extend(ids_of(batch) for batch in iterator)
    found += [ids_of(batch) for batch in iterator]
    assert found == [ids_of(batch) for batch in build(lambda: iter(TEXTS), tokenizer_dir)]
