"""A stream whose text was counted before knows how many batches it has."""

from __future__ import annotations

import copy
import re

import pytest
from helpers_stream import BATCH_SIZE, SEQ_LEN, document_rows, joined_rows, some_texts
from helpers_time import Screen

import tdstream
from tdstream.preparation import count_cache as counting
from tdstream.streams.total_hint import find_hint

TEXTS = some_texts(120)
BATCHES = len(joined_rows(TEXTS)) // BATCH_SIZE


class Source:
    """Texts from a function, which notes how many it has given."""

    def __init__(self):
        self.given = 0

    def __call__(self):
        for text in TEXTS:
            self.given += 1
            yield {"text": text, "other": "w7"}


@pytest.fixture(autouse=True)
def counts(tmp_path, monkeypatch):
    """Keep counts in a directory of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def loader(tokenizer_dir, source, **options):
    """Return the loader of a stream."""
    options = {"seq_len": SEQ_LEN, "batch_size": BATCH_SIZE, "tokenizer": tokenizer_dir, **options}
    return tdstream.loader(source, **options)


def count(tokenizer_dir, source, **options):
    """Count a source."""
    return tdstream.count(source, tokenizer_dir, progress=False, encoder="hf", **options)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_counted_stream_has_a_total(tokenizer_dir, num_workers):
    """The batches that come are those that were counted: in the bar, for a schedule, after a resume."""
    counted = count(tokenizer_dir, Source(), seq_len=SEQ_LEN, batch_size=BATCH_SIZE)
    assert counted.batches == BATCHES
    run = loader(tokenizer_dir, Source(), num_workers=num_workers)
    assert tdstream.steps(run, 2).total == 2 * BATCHES
    screen = Screen()
    bar = tdstream.progress(run, file=screen, mininterval=0)
    assert len([bar.set_postfix(a=1) for _ in bar]) == BATCHES
    shown = [re.search(r"\| (\d+)/(\S+) \[", line).groups() for line in screen.drawn]
    assert {total for _, total in shown} == {str(BATCHES)}
    assert sorted({int(done) for done, _ in shown}) == list(range(BATCHES + 1))
    for _ in zip(range(10), run, strict=False):
        pass
    again = loader(tokenizer_dir, Source(), num_workers=num_workers)
    again.load_state_dict(run.state_dict())
    assert find_hint(again).done == 10
    assert len(again) == BATCHES


@pytest.mark.parametrize("options", [{}, {"stride": 3, "min_tail_len": 5}])
def test_a_stream_of_single_documents_has_a_total_too(tokenizer_dir, options):
    """The windows of all documents, by the rule; other windows were not counted."""
    cut = {"cut": "document", "seq_len": SEQ_LEN, "batch_size": BATCH_SIZE, **options}
    windows = document_rows(TEXTS, stride=options.get("stride"), min_tail=options.get("min_tail_len", 2))
    assert count(tokenizer_dir, Source(), **cut).samples == len(windows)
    run = loader(tokenizer_dir, Source(), **cut)
    hint = find_hint(run)
    assert (hint.kind, hint.total) == ("counted", len(windows) // BATCH_SIZE)
    assert len(list(run)) == hint.total
    assert find_hint(loader(tokenizer_dir, Source(), **cut | {"min_tail_len": 7})) is None
    assert find_hint(loader(tokenizer_dir, Source())) is None


def test_several_streams_give_an_estimate(tokenizer_dir):
    """Two workers leave out a rest each."""
    count(tokenizer_dir, Source())
    hint = find_hint(loader(tokenizer_dir, Source(), num_workers=2))
    assert (hint.kind, hint.total, hint.unit) == ("estimate", BATCHES, "batch")
    ranked = loader(tokenizer_dir, Source(), dp_rank=0, dp_world_size=2)
    assert (find_hint(ranked).kind, find_hint(ranked).total) == ("estimate", BATCHES // 2)
    for several in (ranked, loader(tokenizer_dir, Source(), num_workers=2)):
        with pytest.raises(TypeError, match="no exact length: several ranks or workers"):
            len(several)


def test_what_was_not_counted_is_not_known(tokenizer_dir):
    """Nothing is looked at before there is any count, and then no more than the beginning."""
    source = Source()
    assert find_hint(loader(tokenizer_dir, source)) is None
    assert source.given == 0
    count(tokenizer_dir, Source(), text_field="other")
    assert find_hint(loader(tokenizer_dir, source)) is None
    assert source.given <= 17
    other = loader(tokenizer_dir, source, text_field="other")  # 120 times one word and an end: 26 samples
    assert (find_hint(other).kind, find_hint(other).total) == ("counted", 26 // BATCH_SIZE)
    assert find_hint(loader(tokenizer_dir, source, text_field="other", cut="document")) is None
    with pytest.raises(TypeError, match="no length"):
        tdstream.steps(loader(tokenizer_dir, source), 1)


def test_a_count_is_looked_up_once_and_not_by_build(tokenizer_dir, monkeypatch):
    """A bar asks ten times a second: only the first hint, the loader's or its dataset's, looks it up."""
    count(tokenizer_dir, Source())
    looked, known = [], counting.known_samples
    monkeypatch.setattr(counting, "known_samples", lambda *a, **k: looked.append(a) or known(*a, **k))
    run = loader(tokenizer_dir, Source())
    assert looked == []
    for _ in range(3):
        assert find_hint(run).total == BATCHES
    assert find_hint(run.dataset).total == BATCHES
    assert len(looked) == 1
    assert find_hint(copy.deepcopy(loader(tokenizer_dir, Source()).dataset)).total == BATCHES
