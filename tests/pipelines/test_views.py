"""Parts of a corpus: disjoint, together the whole, and not to be mistaken for each other."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tdstream
from helpers_documents import write_indexed
from tdstream.core.errors import ConfigError, CorpusError, StateError
from tdstream.pipelines.views import select_samples

ENDS = np.cumsum(np.random.default_rng(5).integers(1, 12, 60)).tolist()
TOTAL = ENDS[-1]


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Return a corpus of the tokens 1, 2, 3, ... in sixty documents."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return write_indexed(tmp_path / "corpus", ENDS, TOTAL, [100, 250])


def samples_of(source, **options):
    """Return the inputs of all samples."""
    return [tuple(item["input_ids"].tolist()) for item in tdstream.build(source, seq_len=4, **options)]


CUTS = [{}, {"documents": True}, {"cut": "document"}, {"cut": "pack"}]


@pytest.mark.parametrize("options", CUTS, ids=str)
def test_parts_by_samples_are_the_whole(corpus, options):
    """In order, each sample in one part."""
    parts = [samples_of(part, **options) for part in tdstream.split(corpus, [0.5, 0.25, 0.25])]
    assert list(itertools.chain(*parts)) == samples_of(corpus, **options)
    assert all(parts)


@pytest.mark.parametrize("options", CUTS, ids=str)
def test_parts_by_documents_share_none(corpus, options):
    """The first part's tokens are those of its documents, the second's those of the others."""
    first, second = tdstream.split(corpus, [0.7, 0.3], by="documents")
    border = ENDS[41]  # 42 of 60
    low = {token for sample in samples_of(first, **options) for token in sample} - {0}
    high = {token for sample in samples_of(second, **options) for token in sample} - {0}
    assert max(low) <= border < min(high)
    if options.get("cut") == "pack":
        assert low | high == set(range(1, TOTAL + 1))
    else:
        assert len(low | high) > TOTAL / 2


def test_shares_need_not_be_the_whole(corpus):
    """What is in no part is left out."""
    (part,) = tdstream.split(corpus, [0.1])
    assert samples_of(part) == samples_of(corpus)[: len(samples_of(part))]
    assert len(samples_of(part)) == round(len(samples_of(corpus)) * 0.1)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(0, 500))
def test_neighbours_meet(weights, number):
    """Whatever the shares and the number: no gap, no overlap, from the beginning to the end."""
    parts = tdstream.split("corpus", [Fraction(weight, sum(weights)) for weight in weights])
    ranges = [part.range_of(number) for part in parts]
    assert [first for first, _ in ranges] == [0, *(last for _, last in ranges[:-1])]
    assert ranges[-1][1] == number


def test_ten_tenths_are_the_whole():
    """A share is what was written, not its nearest binary number."""
    assert tdstream.split("corpus", [0.1] * 10)[-1].end == 1


def test_a_state_of_one_part_is_refused_by_another(corpus):
    """And by the whole, and the whole's by a part."""
    whole = corpus
    train, held = tdstream.split(corpus, [0.5, 0.5])
    others = [whole, train, held, *tdstream.split(corpus, [0.5, 0.5], by="documents")]
    options = {"seq_len": 4, "batch_size": 2}
    for saved, loaded in itertools.permutations(others, 2):
        state = tdstream.loader(saved, **options).state_dict()
        with pytest.raises(StateError, match=r"reader\.(first_|tokens|samples)"):
            tdstream.loader(loaded, **options).load_state_dict(state)
        tdstream.loader(saved, **options).load_state_dict(state)


@pytest.mark.parametrize("options", CUTS, ids=str)
def test_parts_of_one_length_are_told_apart(corpus, options):
    """By where they begin."""
    options = {"seq_len": 4, "batch_size": 2, **options}
    state = tdstream.loader(corpus, samples=slice(0, 10), **options).state_dict()
    with pytest.raises(StateError, match=r"reader\.first_sample was 0, is 10"):
        tdstream.loader(corpus, samples=slice(10, 20), **options).load_state_dict(state)


@pytest.mark.parametrize("options", [{"documents": True}, {"cut": "document"}, {"cut": "pack"}], ids=str)
def test_parts_of_as_many_documents_are_told_apart(corpus, options):
    """By their first one, though they may be of one length."""
    parts = tdstream.split(corpus, [0.25] * 4, by="documents")
    options = {"seq_len": 4, "batch_size": 2, **options}
    for saved, loaded in itertools.permutations(parts, 2):
        state = tdstream.loader(saved, **options).state_dict()
        with pytest.raises(StateError, match=r"reader\.first_(token|document) was"):
            tdstream.loader(loaded, **options).load_state_dict(state)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (slice(0, 3), [0, 1, 2]),
        (slice(-2, None), [8, 9]),
        (slice(7, 100), [7, 8, 9]),
        (slice(None), list(range(10))),
        (slice(5, 2), []),
    ],
)
def test_a_slice_is_that_of_a_list(samples, expected):
    """Counted from the part's first sample."""
    first, last = select_samples(samples, 20, 30)
    assert [number - 20 for number in range(first, last)] == expected


def test_samples_choose_from_a_part(corpus):
    """A slice of a part is one of its own samples."""
    held = tdstream.split(corpus, [0.5, 0.5])[1]
    assert samples_of(held, samples=slice(1, 4)) == samples_of(held)[1:4]
    assert samples_of(corpus, samples=slice(-5, None)) == samples_of(corpus)[-5:]
    by_documents = tdstream.split(corpus, [0.5, 0.5], by="documents")[1]
    packed = samples_of(by_documents, cut="pack")
    assert samples_of(by_documents, samples=slice(2, 5), cut="pack") == packed[2:5]


@pytest.mark.parametrize("shuffle", [True, "block"])
def test_a_part_is_shuffled_in_itself(corpus, shuffle):
    """Another order of the same samples."""
    part = tdstream.split(corpus, [0.5, 0.5])[1]
    assert sorted(samples_of(part, shuffle=shuffle)) == samples_of(part) != samples_of(part, shuffle=shuffle)


@pytest.mark.parametrize(
    ("fractions", "words"),
    [
        ([0.5, 0.6], "add up to at most 1"),
        ([], "add up to at most 1"),
        ([0.0, 1.0], "more than 0 and at most 1, got 0.0"),
        ([-0.5], "got -0.5"),
        ([float("nan")], "got nan"),
        (["half"], "got 'half'"),
        ([True], "got True"),
        ([2], "got 2"),
        (0.5, "add up to at most 1, got 0.5"),
    ],
)
def test_shares_out_of_range_are_refused(fractions, words):
    """With the share."""
    with pytest.raises(ConfigError, match=words):
        tdstream.split("corpus", fractions)


@pytest.mark.parametrize("samples", [slice(0, 9, 2), slice(0, 2.5), 7, (0, 9)])
def test_other_slices_are_refused(corpus, samples):
    """Samples have a beginning and an end."""
    with pytest.raises(ConfigError, match="samples must be a slice"):
        tdstream.build(corpus, seq_len=4, samples=samples)


def test_an_empty_part_is_refused(corpus):
    """Whatever it is empty of."""
    with pytest.raises(ConfigError, match="samples 3 to 3 of 69"):
        tdstream.build(corpus, seq_len=4, samples=slice(3, 3))
    part = tdstream.split(corpus, [0.001, 0.5], by="documents")[0]
    with pytest.raises(ConfigError, match="none of its 60 documents"):
        tdstream.build(part, seq_len=4)
    with pytest.raises(ConfigError, match='"samples" or "documents", got \'tokens\''):
        tdstream.split(corpus, [0.5], by="tokens")
    part = tdstream.split(corpus, [0.02, 0.5], by="documents")[0]
    with pytest.raises(CorpusError, match="this part of it, holds"):
        tdstream.build(part, seq_len=100)
