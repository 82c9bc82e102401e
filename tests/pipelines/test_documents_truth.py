"""What all three cuts say of documents, against a walk from token to token."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tdstream
from helpers_documents import Place, Row, expected_fields, listed, stream_of, write_indexed

Corpus = tuple[list[int], int, list[int]]
"""Where documents end, the number of tokens, and where shards end."""

THREE_ROWS_TWO_SHARDS = ([2, 11, 12, 16], 20, [5])
"""In rows of three: a document over three rows and two shards, one of one token, one that ends with a row."""


@st.composite
def corpora(draw: Any) -> Corpus:
    """Return any corpus, also with empty shards, and with tokens behind the last end."""
    total = draw(st.integers(4, 70))
    ends = sorted(draw(st.sets(st.integers(1, total), max_size=total)))
    return ends, total, sorted(draw(st.lists(st.integers(0, total), max_size=4)))


def batches_of(corpus: Corpus, **options: Any) -> list[dict[str, Any]]:
    """Return all batches of a corpus, as lists."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # where nothing waits for a disk
    with tempfile.TemporaryDirectory(dir=memory) as name:
        directory = write_indexed(Path(name) / "corpus", *corpus)
        return [listed(batch) for batch in tdstream.build(directory, strict=False, **options)]


def check(batch: dict[str, Any], rows: list[Row], shift: int = 1, padding: int = 0) -> None:
    """A batch must hold these rows, and say of them what the walk says."""
    width = len(rows[0]) - 1
    tokens = [[padding if place is None else place.token for place in row[:width]] for row in rows]
    assert batch["input_ids"] == tokens
    expected = expected_fields(rows, shift)
    assert {name: batch[name] for name in expected} == expected
    if "attention_mask" in batch:
        assert batch["attention_mask"] == [[int(place is not None) for place in row[:width]] for row in rows]


@settings(max_examples=50, deadline=None)
@given(corpora(), st.integers(1, 9), st.integers(1, 3), st.sampled_from(["next", "same"]), st.integers(1, 10))
@example(THREE_ROWS_TWO_SHARDS, 3, 2, "next", 3)
@example(THREE_ROWS_TWO_SHARDS, 3, 1, "same", 4)
def test_the_plain_cut_says_where_documents_are(corpus, seq_len, batch_size, labels, stride):
    """Documents over many rows and shards, those of one token, and those that end with their row."""
    ends, total, _ = corpus
    seq_len = min(seq_len, total - 1)
    stride, stream = min(stride, seq_len + 1), stream_of(ends, total)
    options = {"seq_len": seq_len, "stride": stride, "batch_size": batch_size, "labels": labels}
    for number, batch in enumerate(batches_of(corpus, documents=True, **options)):
        firsts = [(number * batch_size + row) * stride for row in range(batch_size)]
        check(batch, [list(stream[first : first + seq_len + 1]) for first in firsts], labels == "next")


@settings(max_examples=50, deadline=None)
@given(corpora(), st.integers(1, 9), st.integers(1, 3), st.data())
def test_windows_of_documents_say_where_they_end(corpus, seq_len, batch_size, data):
    """Each row is a stretch of one document, in order, with padding behind it."""
    min_tail = data.draw(st.integers(0, seq_len))
    windows = list(walked(corpus, seq_len, min_tail))
    options = {"cut": "document", "documents": True, "seq_len": seq_len, "min_tail_len": min_tail}
    if not windows:
        with pytest.raises(tdstream.CorpusError, match="none of the"):
            batches_of(corpus, batch_size=1, **options)
        return
    batches = batches_of(corpus, batch_size=batch_size, **options)
    assert len(batches) == len(windows) // batch_size
    for number, batch in enumerate(batches):
        check(batch, windows[number * batch_size : (number + 1) * batch_size])


def walked(corpus: Corpus, seq_len: int, min_tail: int) -> Iterator[Row]:
    """Yield the windows of a corpus, document by document."""
    ends, total, _ = corpus
    for number, group in itertools.groupby(stream_of(ends, total), lambda place: place.document):
        document = list(group)
        text = len(document) - (number < len(ends))  # the last document may lack its end-of-text token
        if text < max(min_tail, 1):
            continue
        for first in range(0, len(document), seq_len):
            window = document[first : first + seq_len]
            if first and len(window) < max(min_tail, 1):
                continue
            follows = len(document) - first - seq_len >= max(min_tail, 1)
            padding: Row = [None] * (seq_len + 1 - len(window))
            yield [*window, document[first + seq_len]] if follows else [*window, *padding]


@settings(max_examples=50, deadline=None)
@given(corpora(), st.integers(1, 9), st.sampled_from(["next", "same"]))
@example(THREE_ROWS_TWO_SHARDS, 3, "next")
def test_packed_rows_hold_whole_documents(corpus, seq_len, labels):
    """Every token is an input once; a document is in one row, or, if longer, in full rows and one more."""
    ends, total, _ = corpus
    stream, served, pieces = stream_of(ends, total), Counter[Place](), Counter[tuple[int, int]]()
    for batch in batches_of(corpus, cut="pack", seq_len=seq_len, batch_size=1, labels=labels):
        row = row_of(batch["input_ids"][0], batch["attention_mask"][0], stream)
        check(batch, [row], labels == "next")
        held = [place for place in row[:seq_len] if place is not None]
        served.update(held)
        for document, places in itertools.groupby(held, lambda place: place.document):
            pieces[document, len(list(places))] += 1
    assert served == Counter(stream)
    for document, tokens in Counter(place.document for place in stream).items():
        full, rest = divmod(tokens, seq_len)
        found = {length: count for (number, length), count in pieces.items() if number == document}
        assert found == {**({seq_len: full} if full else {}), **({rest: 1} if rest else {})}


def row_of(tokens: list[int], mask: list[int], stream: list[Place]) -> Row:
    """Return the places of a row by its tokens, and what stands behind the last, if its document goes on."""
    row: Row = [stream[token - 1] if is_token else None for token, is_token in zip(tokens, mask, strict=True)]
    last = row[-1]
    following = stream[last.token] if last is not None and last.token < len(stream) else None
    goes_on = following is not None and last is not None and following.document == last.document
    return [*row, following if goes_on else None]


@pytest.mark.parametrize(
    ("cut", "labels", "kept", "left"),
    [
        ("stream", "next", [2, 3, 4, 5, 6, 7], [2, -100, 4, 5, -100, 7]),
        ("stream", "same", [1, 2, 3, 4, 5, 6], [1, 2, -100, 4, 5, -100]),
        ("pack", "next", [2, 3, 4, 5, -100, -100], [2, -100, 4, 5, -100, -100]),
        ("pack", "same", [1, 2, 3, 4, 5, -100], [1, 2, -100, 4, 5, -100]),
    ],
)
def test_labels_across_documents_are_kept_if_asked_for(cut, labels, kept, left):
    """Only where there is a next token in the row; left out are those that the next document begins with."""
    options = {"cut": cut, "documents": True, "seq_len": 6, "batch_size": 1, "labels": labels}
    for cross, expected in ((True, kept), (False, left)):
        batch = batches_of(([2, 5], 7, []), cross_document_labels=cross, **options)[0]
        assert batch["labels"] == [expected]


def test_a_capacity_makes_all_borders_as_long():
    """Padded with the last value, and max_seqlen is the row's length."""
    corpus = ([2, 5], 14, [])
    options = {"documents": True, "seq_len": 6, "batch_size": 2}
    assert batches_of(corpus, **options)[0]["cu_seqlens"] == [0, 2, 5, 6, 12]
    batch = batches_of(corpus, cu_seqlens_capacity=8, **options)[0]
    assert batch["cu_seqlens"] == [0, 2, 5, 6, 12, 12, 12, 12]
    assert batch["max_seqlen"] == 6
    assert batch["document_ids"] == [[0, 0, 1, 1, 1, 2], [0] * 6]
    assert batches_of(corpus, cu_seqlens_capacity=5, **options)[0]["cu_seqlens"] == [0, 2, 5, 6, 12]
    with pytest.raises(tdstream.ConfigError, match=r"take 5 places, more than cu_seqlens_capacity=4"):
        batches_of(corpus, cu_seqlens_capacity=4, **options)


def test_single_samples_leave_out_what_cannot_be_stacked():
    """Their ids and places are [T]; borders, of which each sample has another number, are left out."""
    samples = batches_of(([2, 5], 14, []), documents=True, seq_len=6)
    assert samples[0]["document_ids"] == [0, 0, 1, 1, 1, 2]
    assert samples[0]["position_ids"] == [0, 1, 0, 1, 2, 0]
    assert sorted(samples[0]) == ["document_ids", "input_ids", "labels", "position_ids"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cut": "words"}, '"stream", "document" or "pack", got \'words\''),
        ({"cut": "pack", "stride": 3}, "stride has no meaning"),
        ({"min_tail_len": 3}, 'belongs to cut="document"'),
        ({"cross_document_labels": True}, "cross_document_labels needs documents=True"),
        ({"cu_seqlens_capacity": 9}, "cu_seqlens_capacity needs documents=True"),
        ({"cu_seqlens_capacity": 9, "documents": True}, "cu_seqlens_capacity needs batch_size"),
        ({"cu_seqlens_capacity": 1, "documents": True, "batch_size": 1}, "at least 2, got 1"),
        ({"cut": "document", "stride": 7}, "stride must be 1 to seq_len"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, words):
    """Each with a sentence."""
    with pytest.raises(tdstream.ConfigError, match=words):
        batches_of(([2], 20, []), **{"seq_len": 6, **options})
