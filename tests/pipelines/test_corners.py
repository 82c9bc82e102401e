"""Corners of the loader's promises, each found by trying to break them."""

from __future__ import annotations

import json
import logging
import os

import numpy as np
import pytest

import tdstream
from tdstream.core.errors import ConfigError, CorpusError, GeometryError, StateError


@pytest.fixture
def corpus(make_corpus):
    """Return a corpus of 50 samples of 4 tokens."""
    return make_corpus(200)


def make(corpus, batch_size, **options):
    """Return a loader over it."""
    return tdstream.loader(corpus, seq_len=3, batch_size=batch_size, **options)


def samples(batches):
    """Return the samples of each batch, by number."""
    return [(batch["input_ids"][:, 0] // 4).tolist() for batch in batches]


def test_a_wrapped_end_loads_under_smaller_batches(corpus):
    """A state behind an epoch's end, filled from its beginning, loads again under any geometry."""
    first = make(corpus, 12, tail="wrap")
    assert len(list(first)) == 5
    second = make(corpus, 3, tail="wrap")
    second.load_state_dict(first.state_dict())
    third = make(corpus, 3, tail="wrap")
    third.load_state_dict(json.loads(json.dumps(second.state_dict())))
    assert samples(third)[0] == [0, 1, 2]
    assert third.epoch == 1


def test_an_epoch_without_a_batch_has_nothing_to_skip(corpus):
    """With strict=False and too large a batch, skipping goes nowhere, and its state loads."""
    loader = make(corpus, 60, strict=False)
    loader.skip(5)
    assert loader.position == 0
    loader.load_state_dict(loader.state_dict())
    assert list(loader) == []


def test_a_skip_over_the_end_survives_a_loop_over_epochs(corpus):
    """`for e in ...: set_epoch(e)` serves the empty rest of the epoch that was left, then what is behind."""
    first = make(corpus, 4)
    iterator = iter(first)
    for _ in range(10):
        next(iterator)
    loader = make(corpus, 4)
    loader.load_state_dict(first.state_dict())
    loader.skip(5)
    served = []
    for epoch in range(3):
        loader.set_epoch(epoch)
        served.append(samples(loader))
    assert [len(batches) for batches in served] == [0, 9, 12]
    assert served[1][0] == [12, 13, 14, 15]


def test_a_skip_over_several_epochs_leaves_them_all(corpus):
    """Those on the way are empty, also when the skip came in a running loop."""
    loader = make(corpus, 4)
    lengths = []
    for epoch in range(4):
        loader.set_epoch(epoch)
        count = 0
        for _ in loader:
            count += 1
            if epoch == 0 and count == 10:
                loader.skip(16)  # 2 of this epoch, 12 of the next, 2 of the one after that
        lengths.append(count)
    assert lengths == [10, 0, 10, 12]


def test_skipping_nothing_is_nothing(corpus):
    """At an epoch's end its empty rest stays empty; behind a break the epoch begins again."""
    first = make(corpus, 4)
    list(first)
    loader = make(corpus, 4)
    loader.load_state_dict(first.state_dict())
    loader.skip(0)
    loader.set_epoch(0)
    assert list(loader) == []
    for _ in loader:
        break
    loader.skip(0)
    assert samples(loader)[0] == [0, 1, 2, 3]


def test_a_skip_goes_on_in_the_chosen_epoch(corpus):
    """What reaches behind a running loop is left out of the epoch that was chosen to follow."""
    loader = make(corpus, 4)
    iterator = iter(loader)
    next(iterator)
    loader.set_epoch(5)
    loader.skip(14)  # 11 of this epoch, 3 of epoch 5
    assert list(iterator) == []
    assert samples([next(iter(loader))]) == [[12, 13, 14, 15]]
    assert (loader.epoch, loader.position) == (5, 16)


def test_an_ended_iterator_stays_ended(corpus):
    """Whatever is skipped or chosen after its end."""
    loader = make(corpus, 4)
    iterator = iter(loader)
    assert len(list(iterator)) == 12
    loader.skip(3)
    assert next(iterator, None) is None
    assert samples(loader)[0] == [12, 13, 14, 15]


def test_the_datasets_choice_is_heard(corpus):
    """dataset.set_epoch before the first batch counts for skip and for the state."""
    loader = make(corpus, 4)
    loader.dataset.set_epoch(3)
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (3, 0)
    loader.skip(1)
    assert (loader.epoch, loader.position) == (3, 4)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_relative_path_means_one_place(corpus, tmp_path, monkeypatch, num_workers):
    """Changing the directory after building does not change the corpus."""
    monkeypatch.chdir(tmp_path)
    loader = make(corpus.name, 4, num_workers=num_workers)
    (tmp_path / "elsewhere" / corpus.name).mkdir(parents=True)
    np.arange(1000, 1200, dtype="<u4").tofile(tmp_path / "elsewhere" / corpus.name / "chunk_000000.bin")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert samples([next(iter(loader))]) == [[0, 1, 2, 3]]


def test_steps_before_another_tail_cannot_be_located(corpus):
    """Their epochs ended by another rule; later ones are located as they are served."""
    first = make(corpus, 12)
    list(first)
    second = make(corpus, 12, tail="wrap")
    second.load_state_dict(first.state_dict())
    with pytest.raises(ConfigError, match="step 2 is before step 4"):
        second.locate(2)
    rows = [[sample.index for sample in second.locate(step).samples] for step in range(4, 10)]
    assert rows == samples(second) + samples(second)  # the last, wrapped batch of this epoch, and the next


def test_skipped_samples_count_for_strict(corpus):
    """A dataset that leaves out all it has is refused, or warned of."""
    with pytest.raises(GeometryError, match="an epoch has 0 samples"):
        tdstream.DistributedDataset(corpus, seq_len=3, global_skip_batches=50)
    assert list(tdstream.DistributedDataset(corpus, seq_len=3, global_skip_batches=50, strict=False)) == []


def test_empty_streams_are_warned_of(corpus, caplog):
    """Where they are allowed."""
    with caplog.at_level(logging.WARNING):
        tdstream.build(corpus, seq_len=3, strict=False, dp_rank=60, dp_world_size=61)
    assert "an epoch has 50 samples, fewer than the 61" in caplog.text


def test_numbers_beyond_64_bits_are_refused_at_once(corpus):
    """Before anything has moved."""
    loader = make(corpus, 4)
    next(iter(loader))
    for refused in (lambda: loader.set_epoch(2**63), lambda: loader.skip(10**30)):
        with pytest.raises(ConfigError, match=r"must be at most 2\^62"):
            refused()
    with pytest.raises(StateError, match="the state has no valid position"):
        loader.load_state_dict({**loader.state_dict(), "epoch": 2**64})
    assert (loader.epoch, loader.position) == (0, 4)


@pytest.mark.parametrize(
    "changes",
    [
        {"history": [[0, 0, 0, 0, 0]]},
        {"history": [[0, 0, 0, -4, 2]]},
        {"history": [[5, 0, 0, 4, 4]]},
        {"history": [[0, 0]]},
        {"history": [[0, 0, 0, 4, 4], [0, 0, 0, 4, 4]]},
        {"batches_done": float("inf")},
        {"step": -5},
        {"batch_size": "four"},
    ],
)
def test_a_changed_history_is_refused(corpus, changes):
    """And the loader stays where it is."""
    loader = make(corpus, 4)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    state["nodes"]["splitter"].update(changes)
    with pytest.raises(StateError, match="was cut or changed"):
        loader.load_state_dict(state)
    assert samples([next(iterator)]) == [[4, 5, 6, 7]]


@pytest.mark.parametrize(
    "changes",
    [
        {"chunks": [{"file": "chunk_000000.bin", "tokens": float("inf")}]},
        {"chunks": [{"file": "chunk_000000.bin", "tokens": 200.5}]},
        {"chunks": [{"file": "chunk_000000.bin", "tokens": 200}] * 2, "total_tokens": 400},
        {"format_version": "2"},
        {"total_tokens": "200"},
        {"chunk_checksums": [1]},
        {"chunk_checksums": {"chunk_000000.bin": 5}},
    ],
)
def test_a_damaged_meta_is_refused(corpus, changes):
    """With a sentence that names the file."""
    meta = json.loads((corpus / "meta.json").read_text())
    (corpus / "meta.json").write_text(json.dumps({**meta, **changes}))
    with pytest.raises(CorpusError, match=r"meta\.json"):
        make(corpus, 4)


def test_a_meta_that_is_a_directory_is_refused(corpus):
    """As any other that cannot be read."""
    os.unlink(corpus / "meta.json")
    (corpus / "meta.json").mkdir()
    with pytest.raises(CorpusError, match=r"meta\.json cannot be read"):
        make(corpus, 4)
