"""A bar over a loader that is not ours sees how far its workers' streams are."""

from __future__ import annotations

import re
from itertools import islice

import pytest
from helpers_stream import BATCH_SIZE, SEQ_LEN
from helpers_time import Screen
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream

DOCUMENTS = 600
TEXTS = ["w2 w3 w4 w5 w6 w7 w8 w9"] * DOCUMENTS  # nine tokens each, so a document is a sample
IN_FLIGHT = 2 * 2  # batches that two workers have made ahead, two each


def stateful(tokenizer_dir, **options):
    """Return a bare StatefulDataLoader with two workers over a live stream."""
    how = {"tokenizer": tokenizer_dir, "seq_len": SEQ_LEN, "batch_size": BATCH_SIZE, "kind": "stream"}
    return StatefulDataLoader(tdstream.build(TEXTS, **how), num_workers=2, **options)


def shown(loader, steps=None):
    """Return (percent, n, total) behind each batch, the total with its mark."""
    screen = Screen()
    for _ in islice(tdstream.progress(loader, file=screen, mininterval=0), steps):
        pass
    found = [re.search(r"(\d+)%\|.*\| (\d+)/(~?\d+) \[", line) for line in screen.drawn]
    return [(int(match[1]), int(match[2]), match[3]) for match in found if match]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"persistent_workers": True},
        pytest.param({"multiprocessing_context": "spawn"}, marks=pytest.mark.exhaustive),
    ],
)
def test_the_first_pass_has_an_estimate_by_documents(tokenizer_dir, options):
    """Two streams of 300 documents, four in a batch: 150 batches, each about 4 of ~600; then 100 %."""
    loader = stateful(tokenizer_dir, **options)
    for _ in range(1 if "multiprocessing_context" in options else 2):
        drawn = shown(loader)
        assert drawn[-1] == (100, DOCUMENTS, str(DOCUMENTS))
        guesses = [(done, total) for _, done, total in drawn[:-1]]
        assert len(guesses) >= 149
        assert {total for _, total in guesses} == {f"~{DOCUMENTS}"}
        for batches, (done, _) in enumerate(guesses[:149], start=150 - len(guesses[:149])):
            assert abs(done - BATCH_SIZE * batches) <= BATCH_SIZE * (IN_FLIGHT + 1)


def test_after_a_break_and_after_a_resume_it_begins_where_it_is(tokenizer_dir):
    """A pass that was left is over; one that is gone on with has half of it behind."""
    loader = stateful(tokenizer_dir)
    iterator = iter(loader)
    for _ in islice(iterator, 75):
        pass
    state = loader.state_dict()
    del iterator
    assert shown(loader, steps=3)[0][1] <= BATCH_SIZE * (IN_FLIGHT + 1)
    resumed = stateful(tokenizer_dir)
    resumed.load_state_dict(state)
    assert abs(shown(resumed, steps=3)[0][1] - 300) <= BATCH_SIZE * (IN_FLIGHT + 1)


def test_what_was_counted_is_better(tokenizer_dir, tmp_path, monkeypatch):
    """Batches of ~150, since two streams leave out a rest each; of 150 where there is one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tdstream.count(TEXTS, tokenizer_dir, progress=False, encoder="hf")
    assert {total for _, _, total in shown(stateful(tokenizer_dir), steps=5)} == {"~150"}
    alone = StatefulDataLoader(stateful(tokenizer_dir).dataset)
    assert shown(alone, steps=3)[-1] == (1, 2, "150")


def test_workers_that_are_gone_are_not_asked(tokenizer_dir):
    """Four workers were half through; one begins again: what the others have written is forgotten."""
    loader = stateful(tokenizer_dir)
    for _ in islice(StatefulDataLoader(loader.dataset, num_workers=4), 75):
        pass
    assert shown(StatefulDataLoader(loader.dataset, num_workers=1), steps=4)[-1][1] <= BATCH_SIZE * (4 + 2)
