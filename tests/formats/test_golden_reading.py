"""What the real writers wrote is read as golden_truth.py says, or refused."""

from __future__ import annotations

from itertools import pairwise

import pytest
from golden_truth import READABLE, REFUSED

import tdstream
from tdstream.core.errors import ConfigError, CorpusError, CorpusNotFoundError
from tdstream.formats.description import FormatOptions
from tdstream.formats.ends import open_ends
from tdstream.formats.recognize import describe


def named(one):
    """Return the id of a test."""
    return one.name


def read_rows(one):
    """Return rows of 5 tokens, in order."""
    pipeline = tdstream.build(one.place, seq_len=4, batch_size=1, **one.options())
    return [[*batch["input_ids"][0].tolist(), batch["labels"][0, -1].item()] for batch in pipeline]


@pytest.mark.parametrize("one", READABLE, ids=named)
def test_the_format_is_recognized(one):
    """By name and type, with the pieces where they lie."""
    found = describe(one.place, FormatOptions(**one.options()))
    assert (found.format, found.stored_dtype) == (one.format, one.dtype)
    pieces = zip(one.files(), one.pieces, strict=True)
    expected = [(str(file), piece.offset, piece.tokens) for file, piece in pieces]
    assert [(piece.path, piece.offset, piece.tokens) for piece in found.pieces] == expected


@pytest.mark.parametrize("one", READABLE, ids=named)
def test_tokens_are_served(one):
    """Every token of the stream, in order; the last incomplete row aside."""
    borders = range(0, len(one.tokens) + 1, 5)
    assert read_rows(one) == [one.tokens[start:end] for start, end in pairwise(borders)]


@pytest.mark.parametrize("one", [one for one in READABLE if one.ends is not None], ids=named)
def test_documents_are_the_writers(one):
    """Their ends, by the index or the token; an end that is repeated is one."""
    found = open_ends(describe(one.place, FormatOptions(**one.options())))
    assert found.between(0, found.num_documents).tolist() == sorted(set(one.ends))


@pytest.mark.parametrize("one", REFUSED, ids=lambda one: one.name)
def test_what_cannot_be_read_is_refused(one):
    """When it is opened, or at the first row that shows it; nothing is unpickled."""
    with pytest.raises((ConfigError, CorpusError, CorpusNotFoundError)):
        read_rows(one)
