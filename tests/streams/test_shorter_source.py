"""A live source that became shorter than the place of a state is refused, not taken for the epoch's end."""

from __future__ import annotations

import logging
from itertools import islice

import datasets
import pytest
from helpers_stream import BATCH_SIZE, SEQ_LEN, ids_of, through_file
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream
from tdstream.core.errors import StateError

# Every document is one sample, so that no token waits at the end of a block.
TEXTS = [" ".join(f"w{2 + number}" for _ in range(SEQ_LEN)) for number in range(900)]


def stream_of(texts):
    """Return a dataset stream whose state is exact."""
    return datasets.Dataset.from_dict({"text": texts}).to_iterable_dataset(num_shards=2)


def generated(texts):
    """Return a dataset stream whose state is exact, and that does not know its length."""

    def records():
        yield from ({"text": text} for text in texts)

    return datasets.IterableDataset.from_generator(records)


def shuffled(texts):
    """Return a dataset stream whose records are counted."""
    return stream_of(texts).shuffle(seed=0, buffer_size=10)


class Iterable:
    """Texts that can be read again and again, without a length."""

    def __init__(self, texts):
        self.texts = texts

    def __iter__(self):
        return iter(self.texts)


def as_function(texts):
    """Return a function of one name over any texts."""

    def texts_of():
        return iter(texts)

    return texts_of


KINDS = {
    "function": as_function,
    "iterable": Iterable,
    "stream": stream_of,
    "generated": generated,
    "shuffled": shuffled,
}


def make(kind, texts, tokenizer, *, workers=0, **options):
    """Return a loader over texts given in some kind."""
    settings = {"seq_len": SEQ_LEN, "batch_size": BATCH_SIZE, "cut": "document", "shuffle_buffer": 0}
    return tdstream.loader(
        KINDS[kind](texts), tokenizer=str(tokenizer), num_workers=workers, **settings | options
    )


def saved_at(loader, batches):
    """Return the state after so many batches."""
    for _ in islice(loader, batches):
        pass
    return through_file(loader.state_dict())


@pytest.mark.parametrize("left", [3, 64, 90, 127])
@pytest.mark.parametrize("kind", KINDS)
def test_refused(tokenizer_dir, kind, left):
    """After 120 samples, of blocks of 64 records, 128 were read: fewer cannot be resumed."""
    state = saved_at(make(kind, TEXTS, tokenizer_dir), 30)
    shorter = make(kind, TEXTS[:left], tokenizer_dir)
    shorter.load_state_dict(state)
    iterator = iter(shorter)
    with pytest.raises(StateError, match=r"ends after .* records, but 128 of them had been read") as caught:
        list(iterator)
    assert str(caught.value).count("\n") == 0
    with pytest.raises(StateError, match="become shorter"):  # and again, never the next epoch
        next(iter(shorter))


@pytest.mark.parametrize("kind", KINDS)
def test_equal_or_longer_sources_resume(tokenizer_dir, kind, caplog):
    """Exactly the records that were read, or more, are enough; the rows are those of the whole run."""
    state = saved_at(make(kind, TEXTS[:128], tokenizer_dir), 30)
    resumed = make(kind, TEXTS[:128], tokenizer_dir)
    whole = [ids_of(batch) for batch in resumed]
    resumed.load_state_dict(state)
    with caplog.at_level(logging.WARNING):
        assert [ids_of(batch) for batch in resumed] == whole[30:]
    assert not caplog.records
    assert resumed.epoch == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_place_between_two_blocks(tokenizer_dir, kind, caplog):
    """After 64 samples none waits: counted records are missed, a dataset that cannot count gets a warning."""
    state = saved_at(make(kind, TEXTS[:256], tokenizer_dir), 16)
    shorter = make(kind, TEXTS[:60], tokenizer_dir)
    shorter.load_state_dict(state)
    if kind == "generated":
        with caplog.at_level(logging.WARNING):
            list(islice(shorter, 1))
        assert "the dataset has become shorter" in caplog.text
    else:
        with pytest.raises(StateError, match="ends after 60 records, but 64"):
            list(islice(shorter, 1))


def test_strict_false_warns(tokenizer_dir, caplog):
    """The epoch then ends, in one line of the log."""
    state = saved_at(make("function", TEXTS, tokenizer_dir), 30)
    shorter = make("function", TEXTS[:90], tokenizer_dir, strict=False)
    shorter.load_state_dict(state)
    with caplog.at_level(logging.WARNING):
        next(iter(shorter))
    assert "ends after 90 records" in caplog.text


def test_in_workers_and_under_a_stateful_dataloader(tokenizer_dir):
    """The share of each worker is compared; both kinds of loader refuse."""
    state = saved_at(make("function", TEXTS, tokenizer_dir, workers=2), 40)
    shorter = make("function", TEXTS[:100], tokenizer_dir, workers=2)
    shorter.load_state_dict(state)
    with pytest.raises(StateError, match="become shorter"):
        list(shorter)

    def stateful(texts):
        return StatefulDataLoader(
            tdstream.build(
                as_function(texts), tokenizer=str(tokenizer_dir), seq_len=SEQ_LEN, batch_size=BATCH_SIZE,
                cut="document",
            )
        )  # fmt: skip

    whole = stateful(TEXTS)
    for _ in islice(whole, 30):
        pass
    state, shorter = whole.state_dict(), stateful(TEXTS[:90])
    shorter.load_state_dict(state)
    with pytest.raises(StateError, match="become shorter"):
        list(shorter)
