"""Steps, worked out by hand."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import tdstream
from tdstream.streams.total_hint import TotalHint


class Endless(IterableDataset):
    """A stream without a length that can say what it is told to say."""

    def __init__(self, hint=None):
        self.hint = hint

    def __iter__(self):
        raise AssertionError("nothing is to be read")

    def total_hint(self):
        return self.hint


@pytest.mark.parametrize(
    ("batches", "epochs", "grad_accum", "per_epoch", "total"),
    [(10, 1, 1, 10, 10), (10, 3, 4, 3, 9), (10, 3, 5, 2, 6), (1, 2, 8, 1, 2), (101, 25, 2, 51, 1275)],
)
def test_the_last_partial_accumulation_counts(batches, epochs, grad_accum, per_epoch, total):
    """An epoch of 10 batches, 4 to a step, takes 3 steps: 4 + 4 + 2."""
    counted = tdstream.steps(range(batches), epochs, grad_accum)
    assert (counted.batches_per_epoch, counted.per_epoch, counted.total) == (batches, per_epoch, total)
    assert tdstream.steps(batches, epochs, grad_accum) == counted


@pytest.mark.parametrize(("ratio", "steps"), [(0, 0), (0.07, 7), (0.1, 10), (0.101, 11), (1, 100), (1e-9, 1)])
def test_warm_up_is_a_share_of_all_steps_rounded_up(ratio, steps):
    """0.07 of 100 steps are 7, though 100 * 0.07 is a little more in floating point."""
    assert tdstream.steps(50, 2).warmup_steps(ratio) == steps


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan"), "0.1", None, True])
def test_a_ratio_is_0_to_1(ratio):
    """Anything else is refused."""
    with pytest.raises(tdstream.ConfigError, match="from 0 to 1"):
        tdstream.steps(50, 2).warmup_steps(ratio)


def test_loaders(make_corpus):
    """Ours, resumed in the middle too, and torch's; no worker is started."""
    corpus = make_corpus(1000)
    loader = tdstream.loader(corpus, seq_len=9, batch_size=4, num_workers=2, multiprocessing_context="spawn")
    assert tdstream.steps(loader, 2, 4).total == 14
    other = tdstream.loader(corpus, seq_len=9, batch_size=4)
    for batch, _ in zip(other, range(10), strict=False):
        assert batch
    loader.load_state_dict(other.state_dict())
    assert tdstream.steps(loader, 2, 4).total == 14
    assert loader._iterator is None
    assert tdstream.steps(DataLoader(torch.arange(9), batch_size=2), 1).total == 5


def test_a_stream_whose_text_was_counted():
    """Its hint stands for the length; of documents or guesses nothing follows."""
    counted = DataLoader(Endless(TotalHint(kind="counted", total=7)), batch_size=None)
    assert tdstream.steps(counted, 2).total == 14
    for hint in (None, TotalHint(kind="estimate", total=7), TotalHint(kind="documents", total=7, unit="doc")):
        with pytest.raises(TypeError, match=r"DataLoader has no length.*tdstream\.count.*cache_dir="):
            tdstream.steps(DataLoader(Endless(hint), batch_size=None), 2)


@pytest.mark.parametrize("bad", [{"epochs": 0}, {"grad_accum": 0}, {"epochs": 1.5}, {"loader": 0}])
def test_numbers_that_make_no_sense(bad):
    """At least one of each."""
    with pytest.raises(tdstream.ConfigError, match="at least 1"):
        tdstream.steps(**{"loader": 10, "epochs": 1, **bad})
