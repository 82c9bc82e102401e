"""What is no source is refused with what it is and what to pass instead."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import tdstream

HOW = {"seq_len": 4, "batch_size": 2}


def corpora(make_corpus):
    """Return two names of one corpus."""
    return [str(make_corpus(100))] * 2


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda _: torch.arange(9), "a Tensor of numbers, not texts.*numpy.save"),
        (lambda _: np.arange(9), "a ndarray of numbers"),
        (lambda _: [1, 2, 3], "a list of numbers"),
        (lambda _: [[1, 2], [3]], "a list of numbers"),
        (lambda _: [torch.arange(3)], "a list of numbers"),
        (lambda _: (np.int64(1),), "a tuple of numbers"),
        (corpora, "a list of paths, not of texts.*directories and weights"),
        (lambda _: [Path("a"), Path("b")], "a list of paths"),
        (lambda make: tdstream.loader(make(100), **HOW), "a Loader, which loads batches already"),
        (lambda _: DataLoader(["a"]), "a DataLoader, which loads batches already"),
    ],
)
@pytest.mark.parametrize("tokenizer", [None, "no/tokenizer"])
def test_what_holds_no_text_is_refused_before_a_tokenizer_is_asked_for(made, said, tokenizer, make_corpus):
    """Numbers, lists of corpora and loaders; with and without tokenizer=."""
    with pytest.raises(tdstream.ConfigError, match=said):
        tdstream.loader(made(make_corpus), tokenizer=tokenizer, **HOW)


@pytest.mark.parametrize("call", [
    lambda url: tdstream.loader(url, **HOW),
    lambda url: tdstream.build({"one": (url, 1.0)}, **HOW),
    lambda url: tdstream.build(tdstream.split(url, [0.5, 0.5])[0], **HOW),
    tdstream.DistributedDataset,
])  # fmt: skip
def test_an_address_is_no_local_path(call):
    """The address comes back as it was given, with the way out."""
    with pytest.raises(
        tdstream.CorpusNotFoundError, match=r"s3://bucket/corpus is an address.*Copy the files"
    ):
        call("s3://bucket/corpus")


def test_an_address_is_no_cache():
    """Nothing is made in a local directory s3:."""
    with pytest.raises(
        tdstream.ConfigError, match="cache_dir must be a local or mounted directory, got s3://b"
    ):
        tdstream.loader(["a"], tokenizer="no/tokenizer", cache_dir="s3://b", **HOW)


@pytest.mark.parametrize(
    ("kind", "what"), [("tokens", "a token source"), ("mixture", "a mixture of corpora")]
)
def test_kinds_that_are_recognized_are_not_asked_for(kind, what, make_corpus):
    """The log names them in words, since kind= does not take them."""
    with pytest.raises(tdstream.ConfigError, match=f"For {what}, leave kind out"):
        tdstream.loader(make_corpus(100), kind=kind, **HOW)


def test_the_log_advises_no_kind_that_is_refused(make_corpus, caplog):
    """An option for other sources: those that kind= takes by name, the others in words."""
    from tdstream.pipelines.source_kind import _join_kinds

    words = _join_kinds(frozenset({"corpus", "mixture", "tokens"}))
    assert words == 'kind="corpus" or a mixture of corpora or a token source'


def test_a_misspelled_argument_is_one_of_the_function_called(make_corpus):
    """Not of `build`, which the caller has not called; the nearest name is offered."""
    with pytest.raises(
        TypeError, match=r"loader\(\) got an unexpected .* 'seqlen'\. Did you mean 'seq_len'\?"
    ):
        tdstream.loader(make_corpus(100), batch_size=2, seqlen=4)


def test_shares_that_are_too_many_are_added_up(make_corpus):
    """The sum, not only the shares."""
    with pytest.raises(tdstream.ConfigError, match=r"\[0.9, 0.2\], which add up to 1.1"):
        tdstream.split(make_corpus(100), [0.9, 0.2])


def test_a_mixture_without_weights_names_the_ways_to_give_them():
    """In the words of the arguments."""
    with pytest.raises(
        tdstream.ConfigError, match=r"no weights are given\. .*weights=.*temperature=.*stages="
    ):
        tdstream.Mixture({"a": "a", "b": "b"})
