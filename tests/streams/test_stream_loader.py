"""tdstream.loader over a live stream promises what it does over a corpus, but for another geometry."""

from __future__ import annotations

import multiprocessing
from itertools import islice

import datasets
import pytest
from helpers_stream import BATCH_SIZE, SEQ_LEN, ids_of, joined_rows, some_texts, through_file
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream
from helpers_processes import kill_worker
from tdstream.core.errors import StaleIteratorError, StateError
from tdstream.streams.stream_pipeline import StreamPipeline
from tdstream.streams.total_hint import find_hint

TEXTS = some_texts(200)


def loader(tokenizer, source=None, **options):
    """Return a loader over a live stream."""
    settings = {"seq_len": SEQ_LEN, "batch_size": BATCH_SIZE, "shuffle_buffer": 40} | options
    return tdstream.loader(source or (lambda: iter(TEXTS)), tokenizer=tokenizer, **settings)


def batches(iterable, count=None):
    """Return the inputs of the next batches."""
    return [ids_of(batch) for batch in islice(iterable, count)]


@pytest.fixture(scope="module")
def epochs(tokenizer_dir):
    """Return the batches of epochs 0, 1, 2."""
    whole = loader(tokenizer_dir)
    return [batches(whole) for _ in range(3)]


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}])
def test_epochs(tokenizer_dir, epochs, options):
    """They count themselves, set_epoch chooses, a loop that was left is begun again."""
    run = loader(tokenizer_dir, **options)
    assert [batches(run) for _ in range(2)] == epochs[:2]
    assert run.epoch == 1
    run.set_epoch(0)
    assert (run.epoch, batches(run, 5)) == (0, epochs[0][:5])
    assert batches(run) == epochs[0]
    run.dataset.set_epoch(2)
    assert batches(run) == epochs[2]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_state_from_the_last_batch_begins_the_next_epoch(tokenizer_dir, epochs, workers):
    """Whether or not the loop was seen to end; but set_epoch(0) gets the empty rest it asks for."""
    run = loader(tokenizer_dir, num_workers=workers)
    iterator = iter(run)
    batches(iterator, len(epochs[0]))
    unseen = through_file(run.state_dict())
    assert next(iterator, None) is None
    for state in (unseen, through_file(run.state_dict())):
        again = loader(tokenizer_dir, num_workers=workers)
        again.load_state_dict(state)
        assert batches(again) == epochs[1]
        assert again.epoch == 1
        again.load_state_dict(state)
        again.set_epoch(0)
        assert batches(again) == []
        assert batches(again) == epochs[1]


def test_set_epoch_after_a_load(tokenizer_dir, epochs):
    """The state's epoch keeps the position; another one begins at its start."""
    run = loader(tokenizer_dir)
    run.set_epoch(1)
    batches(run, 7)
    state = run.state_dict()
    for chosen, expected in ((1, epochs[1][7:]), (2, epochs[2])):
        run.load_state_dict(state)
        run.set_epoch(chosen)
        assert batches(run) == expected


def test_counts(tokenizer_dir, epochs):
    """Batches, steps and tokens are counted over a resume, and over epochs."""
    run = loader(tokenizer_dir)
    batches(run, 7)
    again = loader(tokenizer_dir)
    again.load_state_dict(run.state_dict())
    assert (again.epoch, again.batches_done, again.step) == (0, 7, 7)
    assert again.tokens_done == 7 * BATCH_SIZE * SEQ_LEN
    batches(again)
    assert (again.batches_done, again.step) == (len(epochs[0]),) * 2
    batches(again, 2)
    assert (again.epoch, again.batches_done, again.step) == (1, 2, len(epochs[0]) + 2)


def test_saving_without_a_step_between(tokenizer_dir, epochs):
    """A state that was loaded is the state; before anything, the state is the beginning."""
    run = loader(tokenizer_dir, num_workers=1)
    begin = through_file(run.state_dict())
    batches(run, 7)
    state = through_file(run.state_dict())
    again = loader(tokenizer_dir, num_workers=1)
    again.load_state_dict(state)
    assert again.state_dict() == state
    again.load_state_dict(begin)
    assert batches(again) == epochs[0]


@pytest.mark.parametrize(
    "cut",
    [
        {"epoch": None},
        {"epoch": -1},
        {"batches_done": None},
        {"step": "3"},
        {"stands": "nowhere"},
        {"loader": {}},
        {"loader": {"_num_yielded": 3}},
        {"num_workers": None},
    ],
)
def test_a_state_that_was_cut_changes_nothing(tokenizer_dir, epochs, cut):
    """It is refused before anything is loaded: the loop that runs goes on."""
    run = loader(tokenizer_dir)
    iterator = iter(run)
    begun = batches(iterator, 3)
    state = run.state_dict()
    place = {**state["nodes"]["stream"], **{name: value for name, value in cut.items() if name != "epoch"}}
    changed = {**state, **{name: cut[name] for name in cut if name == "epoch"}}
    with pytest.raises(StateError, match="was cut"):
        run.load_state_dict({**changed, "nodes": {**state["nodes"], "stream": place}})
    assert begun + batches(iterator) == epochs[0]


def test_elsewhere_a_live_state_is_called_by_its_name(tokenizer_dir):
    """A loader of another kind, and position_of, say that it is of a live stream."""
    run = loader(tokenizer_dir)
    batches(iter(run), 3)
    bare = StatefulDataLoader(loader(tokenizer_dir).dataset)
    batches(iter(bare), 3)
    memory = tdstream.loader(list(TEXTS), tokenizer=tokenizer_dir, seq_len=SEQ_LEN, batch_size=BATCH_SIZE)
    for refuses, state in (
        (memory.load_state_dict, run.state_dict()),
        (tdstream.position_of, {"loader": run.state_dict()}),
        (tdstream.position_of, bare.state_dict()),
    ):
        with pytest.raises(StateError, match=r"state of a live stream.*cache_dir="):
            refuses(state)


def test_overtaken_iterators_are_stale(tokenizer_dir):
    """A newer loop, or a load, ends the older one."""
    run = loader(tokenizer_dir)
    first = iter(run)
    next(first)
    second = iter(run)
    with pytest.raises(StaleIteratorError):
        next(first)
    next(second)
    run.load_state_dict(run.state_dict())
    with pytest.raises(StaleIteratorError):
        next(second)


@pytest.mark.parametrize("workers", [0, 1])
def test_after_an_error_a_new_loop_goes_on(tokenizer_dir, epochs, workers):
    """What failed is tried again."""

    def texts():
        for number, text in enumerate(TEXTS):
            yield None if number == 150 and broken else text

    broken = [True]
    run = loader(tokenizer_dir, texts, num_workers=workers)
    found = []
    with pytest.raises(ValueError, match=r"Record 150"):
        found.extend(ids_of(batch) for batch in run)
    broken.clear()
    assert found + batches(run) == epochs[0]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_resume_that_cannot_be_opened_is_tried_again(tokenizer_dir, epochs, workers, monkeypatch):
    """Memory may run out while the pass is opened: the next loop still resumes at its place."""
    run = loader(tokenizer_dir, num_workers=workers)
    begun = batches(iter(run), 7)
    again = loader(tokenizer_dir, num_workers=workers)
    again.load_state_dict(run.state_dict())
    with monkeypatch.context() as patch:
        patch.setattr(StreamPipeline, "__iter__", lambda _: (_ for _ in ()).throw(MemoryError))
        for _ in range(2):
            iterator = iter(again)
            with pytest.raises(MemoryError):
                next(iterator)
            with pytest.raises(StaleIteratorError):
                next(iterator)
    assert again.batches_done == 7
    assert begun + batches(again) == epochs[0]


def test_a_killed_worker_is_named(tokenizer_dir, epochs):
    """The trainer reads which part died, and a new loop resumes where it was."""
    others = set(multiprocessing.active_children())
    run = loader(tokenizer_dir, num_workers=1)
    iterator = iter(run)
    found = batches(iterator, 3)
    for child in set(multiprocessing.active_children()) - others:
        kill_worker(child.pid)
    with pytest.raises(RuntimeError, match="worker"):
        found += [ids_of(batch) for batch in iterator]
    with pytest.raises(StaleIteratorError):
        next(iterator)
    assert run.batches_done < len(epochs[0])
    done = run.batches_done
    assert batches(run) == epochs[0][done:]


@pytest.mark.parametrize("workers", [0, 2])
def test_progress_by_documents(tokenizer_dir, workers):
    """A source that knows its rows says how many have gone by: some in the middle, all at the end."""
    dataset = datasets.Dataset.from_dict({"text": list(TEXTS)}).to_iterable_dataset(num_shards=2)
    run = loader(tokenizer_dir, dataset, num_workers=workers)
    assert (find_hint(run).total, find_hint(run).done) == (200, 0)
    iterator = iter(run)
    batches(iterator, 20)
    middle = find_hint(run)
    assert (middle.kind, middle.unit, middle.total) == ("documents", "doc", 200)
    assert 30 < middle.done < 170
    state = run.state_dict()
    again = loader(tokenizer_dir, dataset, num_workers=workers)
    again.load_state_dict(state)
    assert find_hint(again) == middle
    batches(iterator, len(joined_rows(TEXTS)) // BATCH_SIZE - 20 - workers)
    assert 185 < find_hint(run).done <= 200


def test_there_is_no_length(tokenizer_dir):
    """len() names the ways to a total, for the loader and for its dataset."""
    run = loader(tokenizer_dir)
    for one in (run, run.dataset):
        with pytest.raises(TypeError, match=r"tdstream\.count.*tdstream\.progress.*cache_dir"):
            len(one)
        assert one  # it asks nobody


def test_spawned_workers(tokenizer_dir, epochs):
    """A source that can be pickled works under spawn as well."""
    run = loader(tokenizer_dir, Plain(), num_workers=1, multiprocessing_context="spawn")
    assert batches(run, 5) == epochs[0][:5]


class Plain:
    """Texts, for another process."""

    def __iter__(self):
        return iter(TEXTS)
