"""A live stream gives the samples that the two cuts promise, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from helpers_stream import (
    BATCH_SIZE,
    EOS,
    SEQ_LEN,
    document_rows,
    joined_rows,
    marked_rows_of,
    rows_of,
    some_texts,
)

import tdstream
from tdstream.streams.cut import RecordBlock, StreamCut
from tdstream.text.records import Place
from tdstream.text.tokenize import TokenizedDocuments


def stream(texts, tokenizer, **options):
    """Return a live stream of texts."""
    settings = {
        "seq_len": SEQ_LEN,
        "batch_size": BATCH_SIZE,
        "tokenizer": tokenizer,
        "kind": "stream",
    } | options
    return tdstream.build(lambda: iter(texts), **settings)


def test_documents_are_joined_and_cut_anywhere(tokenizer_dir):
    """Three short texts: eos behind each, and rows of five tokens whatever is in them."""
    texts = ["w2 w3 w4", "", "w5 w6 w7 w8"]  # 2 3 4 0 0 5 6 7 8 0
    batches = list(stream(texts, tokenizer_dir, seq_len=4, batch_size=2))
    assert [batch["input_ids"].tolist() for batch in batches] == [[[2, 3, 4, EOS], [5, 6, 7, 8]]]
    assert batches[0]["labels"].tolist() == [[3, 4, EOS, EOS], [6, 7, 8, EOS]]


@pytest.mark.parametrize("stride", [None, SEQ_LEN, 3])
def test_joined_documents_of_any_length(tokenizer_dir, stride):
    """300 texts, over blocks of 64 records: rows are those of all tokens in one line."""
    texts = some_texts(300)
    found = rows_of(stream(texts, tokenizer_dir, stride=stride, batch_size=1))
    assert found == [row[:-1] for row in joined_rows(texts, stride=stride)]


def test_a_sample_longer_than_many_blocks(tokenizer_dir):
    """Samples of 2,000 tokens from texts of one word reach over dozens of blocks."""
    texts = [f"w{2 + number % 2000}" for number in range(3000)]
    found = rows_of(stream(texts, tokenizer_dir, seq_len=1999, batch_size=1))
    assert found == [row[:-1] for row in joined_rows(texts, seq_len=1999)]


def test_windows_of_documents_by_hand(tokenizer_dir):
    """seq_len 4, min_tail_len 1: what is full, padded, left out, and which labels count; pad is eos."""
    texts = ["  w2 w3 w4 w5 w6  ", "w7", "   ", "w8 w9 w10"]
    found = marked_rows_of(stream(texts, tokenizer_dir, seq_len=4, cut="document", batch_size=1))
    assert found == [
        ([2, 3, 4, 5], [3, 4, 5, 6], 4, False),  # goes on behind, so its last label is there
        ([6, EOS, EOS, EOS], [EOS, -100, -100, -100], 2, True),  # a real eos keeps its label, padding none
        ([7, EOS, EOS, EOS], [EOS, -100, -100, -100], 2, True),
        ([8, 9, 10, EOS], [9, 10, EOS, -100], 4, True),  # full, and the document's end
    ]


def test_a_tail_that_is_too_short_is_left_out(tokenizer_dir):
    """Two tokens behind a window, with min_tail_len 3, are left out, and the window is the stop."""
    pipeline = stream(
        ["w2 w3 w4 w5 w6"], tokenizer_dir, seq_len=4, cut="document", min_tail_len=3, batch_size=1
    )
    iterator = iter(pipeline)
    assert marked_rows_of([next(iterator)]) == [([2, 3, 4, 5], [3, 4, 5, -100], 4, True)]
    assert next(iterator, None) is None
    assert iterator.state_dict()["nodes"]["stream"]["left_out"] == 1


def test_overlapping_windows_train_no_token_twice(tokenizer_dir):
    """Stride 2: the first two labels of a later window belong to the one before."""
    texts = ["w2 w3 w4 w5 w6 w7"]  # 2 3 4 5 6 7 0
    found = marked_rows_of(stream(texts, tokenizer_dir, seq_len=4, stride=2, cut="document", batch_size=1))
    assert found == [
        ([2, 3, 4, 5], [3, 4, 5, 6], 4, False),
        ([4, 5, 6, 7], [-100, -100, 7, EOS], 4, False),
        ([EOS, EOS, EOS, EOS], [-100, -100, -100, -100], 1, True),
    ]


@pytest.mark.parametrize(("stride", "min_tail_len"), [(None, None), (8, 0), (3, 2), (1, 5)])
def test_windows_of_many_documents(tokenizer_dir, stride, min_tail_len):
    """300 texts against the rule written as loops."""
    texts = some_texts(300)
    options = {"cut": "document", "stride": stride, "min_tail_len": min_tail_len, "batch_size": 1}
    expected = document_rows(texts, stride=stride, min_tail=2 if min_tail_len is None else min_tail_len)
    assert marked_rows_of(stream(texts, tokenizer_dir, **options)) == expected


def test_labels_that_are_the_inputs(tokenizer_dir):
    """labels="same": every token that is no padding is its own label."""
    batch = next(
        iter(stream(["w2 w3"], tokenizer_dir, cut="document", labels="same", batch_size=1, seq_len=4))
    )
    assert batch["labels"].tolist() == [[2, 3, EOS, -100]]


def test_single_samples(tokenizer_dir):
    """Without batch_size a sample is a plain dict of rows."""
    samples = list(stream(["w2 w3 w4 w5"], tokenizer_dir, batch_size=None, seq_len=4))
    assert [sample["input_ids"].tolist() for sample in samples] == [[2, 3, 4, 5]]


def test_a_sample_belongs_to_the_record_in_which_it_ends():
    """Its time in the shuffle buffer hangs on it: rows of 5 of documents of 2 tokens, in two blocks."""
    chunk = StreamCut(seq_len=4, dtype=np.dtype(np.uint16))
    first, second = RecordBlock(Place(), 0, 0), RecordBlock(Place(7), 14, 2)
    chunking, found = chunk.begin(first), []
    for block, documents in ((first, 7), (second, 8)):
        ends = np.arange(2, 2 * documents + 2, 2)
        found += chunking.feed(block, TokenizedDocuments(np.zeros(2 * documents, np.uint16), ends))
    last_tokens = range(4, 30, 5)  # 4, 9, 14, ... of 30; token t is in document t // 2
    assert [sample.record for sample in found] == [token // 2 for token in last_tokens]
