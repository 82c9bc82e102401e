"""A stream that gives nothing, or not what it gave before, says so: a loop over it would not."""

from __future__ import annotations

import pickle

import pytest
from helpers_stream import BATCH_SIZE, SEQ_LEN, some_texts

import tdstream
from tdstream.core.errors import SourceError
from tdstream.text.records import IterableRecords, Place

HOW = {"seq_len": SEQ_LEN, "batch_size": BATCH_SIZE, "kind": "stream"}


def list_of_texts():
    """Return the same texts whenever it is called."""
    return ["a"]


ONE_SHORT = [["w2"] * (BATCH_SIZE * (SEQ_LEN + 1) - 2)]
"""A document that, with its end-of-text token, is one token short of a batch."""


@pytest.mark.parametrize("texts", [[], ["", ""], [" ".join(ONE_SHORT[0])]])
@pytest.mark.parametrize("cut", ["stream", "document"])
@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"shuffle": True}])
def test_an_epoch_without_a_batch_is_refused(tokenizer_dir, texts, cut, options):
    """A trainer that counts steps would begin epoch after epoch, for ever."""
    if texts and texts[0] and cut == "document":
        texts = ["w2 w3"] * (BATCH_SIZE - 1)
    loader = tdstream.loader(texts, tokenizer=tokenizer_dir, cut=cut, **HOW, **options)
    with pytest.raises(SourceError, match="without a batch in epoch 0"):
        next(iter(loader))


def test_one_batch_is_enough(tokenizer_dir):
    """With one token more; and at the epoch's end nothing is refused, nor behind a resume."""
    texts = [" ".join([*ONE_SHORT[0], "w3"])]
    loader = tdstream.loader(texts, tokenizer=tokenizer_dir, **HOW)
    assert [len(list(loader)), len(list(loader))] == [1, 1]
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    resumed = tdstream.loader(texts, tokenizer=tokenizer_dir, **HOW)
    resumed.load_state_dict(state)
    assert len(list(resumed)) == 1  # of the next epoch: this one has nothing left


def test_an_epoch_without_a_batch_may_be_meant(tokenizer_dir, caplog):
    """With strict=False it is a warning."""
    loader = tdstream.loader([], tokenizer=tokenizer_dir, strict=False, **HOW)
    assert list(loader) == []
    assert "without a batch" in caplog.text


def test_the_dataset_by_itself_refuses_it_too(tokenizer_dir):
    """Without a loader of our own."""
    with pytest.raises(SourceError, match="without a batch"):
        next(iter(tdstream.build([], tokenizer=tokenizer_dir, **HOW)))


def test_a_function_that_goes_on_with_its_iterator_is_refused(tokenizer_dir):
    """A second pass would have what the first one left, and call it an epoch."""
    for once in (iter(some_texts(60)), (text for text in some_texts(60))):
        loader = tdstream.loader(lambda once=once: once, tokenizer=tokenizer_dir, **HOW)
        next(iter(loader))
        with pytest.raises(SourceError, match="the same iterator once more"):
            next(iter(loader))


def test_a_function_that_returns_one_list_is_fine(tokenizer_dir):
    """It can be read again."""
    texts = list(some_texts(60))
    loader = tdstream.loader(lambda: texts, tokenizer=tokenizer_dir, **HOW)
    assert len(list(loader)) == len(list(loader)) > 0


def test_a_function_that_returns_nothing_is_refused(tokenizer_dir):
    """It has forgotten its yield, or its return."""
    with pytest.raises(SourceError, match="returned a NoneType; expected an iterator"):
        next(iter(tdstream.loader(lambda: None, tokenizer=tokenizer_dir, **HOW)))


@pytest.mark.parametrize("make", [iter, lambda texts: (text for text in texts)])
@pytest.mark.parametrize("first", ["count", "prepare", "loader"])
@pytest.mark.parametrize("then", ["count", "prepare", "cache_dir", "loader"])
def test_whoever_reads_it_next_refuses_it(tokenizer_dir, tmp_path, make, first, then):
    """What one reader of an iterator has left is no text for another one, whichever they are."""
    once = make(some_texts(60))

    def source():
        return once

    read = {
        "count": lambda place: tdstream.count(source, tokenizer_dir, progress=False, cache_dir=place),
        "prepare": lambda place: tdstream.prepare(source, tokenizer_dir, place),
        "cache_dir": lambda place: tdstream.build(
            source, tokenizer=tokenizer_dir, seq_len=8, cache_dir=place
        ),
        "loader": lambda place: next(iter(tdstream.loader(source, tokenizer=tokenizer_dir, **HOW))),
    }
    read[first](tmp_path / "first")
    with pytest.raises(SourceError, match="the same iterator once more"):
        read[then](tmp_path / "then")


def test_a_cache_reads_it_twice_by_itself(tokenizer_dir, tmp_path):
    """Its first records name the corpus; what a second call would read are the others."""
    for once in (iter(some_texts(60)), (text for text in some_texts(60))):
        with pytest.raises(SourceError, match="the same iterator once more"):
            tdstream.build(
                lambda once=once: once, tokenizer=tokenizer_dir, seq_len=8, cache_dir=tmp_path / "cache"
            )


def test_another_function_of_the_same_generator_is_found_out(tokenizer_dir, tmp_path):
    """A lambda at each call is another function each time."""
    once = (text for text in some_texts(60))
    assert tdstream.count(lambda: once, tokenizer_dir, progress=False, cache_dir=tmp_path).documents == 60
    with pytest.raises(SourceError, match="the same iterator once more"):
        next(iter(tdstream.loader(lambda: once, tokenizer=tokenizer_dir, **HOW)))


def test_records_travel_after_a_pass():
    """To spawned workers."""
    records = IterableRecords(list_of_texts, 0, 1)  # a function that is pickled by its name
    assert next(records.open(0, Place(), 5)) == ["a"]
    assert next(pickle.loads(pickle.dumps(records)).open(0, Place(), 5)) == ["a"]
