"""A loader says how long its epoch is, or its dataset does."""

from __future__ import annotations

from types import SimpleNamespace

from tdstream.streams.total_hint import HasTotal, TotalHint, find_hint


class Says:
    """Something with a hint, and perhaps a dataset."""

    def __init__(self, hint, dataset=None):
        self.hint, self.dataset = hint, dataset

    def total_hint(self):
        return self.hint


FIRST = TotalHint(kind="documents", total=100, done=7, unit="doc")
SECOND = TotalHint(kind="estimate", total=50)


def test_the_loader_is_asked_before_its_dataset():
    """What the loader says wins; its dataset is asked when it says nothing, or cannot be asked."""
    assert find_hint(Says(FIRST, dataset=Says(SECOND))) == FIRST
    assert find_hint(Says(None, dataset=Says(SECOND))) == SECOND
    assert find_hint(SimpleNamespace(dataset=Says(SECOND))) == SECOND


def test_what_cannot_be_asked_has_no_hint():
    """A plain iterable, and a dataset that has no answer yet."""
    assert find_hint([1, 2, 3]) is None
    assert find_hint(Says(None, dataset=Says(None))) is None


def test_only_an_estimate_is_not_exact():
    """Counted batches and known records are; the protocol is met by the method alone."""
    assert FIRST.is_exact
    assert TotalHint(kind="counted", total=1).is_exact
    assert not SECOND.is_exact
    assert isinstance(Says(None), HasTotal)
