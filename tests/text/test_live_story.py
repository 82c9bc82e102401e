"""A large stream begins at once, its bar has a percentage, and the meter says who waits."""

from __future__ import annotations

import datasets
from helpers_stream import BATCH_SIZE, SEQ_LEN, Texts

import tdstream


def large(count=200_000):
    """Return texts that are made up as they are asked for."""
    return Texts(tuple(f"w{2 + number % 2000} w3 w4 w5" for number in range(count)))


def test_the_first_batch_needs_only_what_is_in_it(tokenizer_dir):
    """Of 200,000 documents one block is read for the first batch, and one buffer if they are shuffled."""
    for buffer, most in ((0, 64), (1000, 1000)):
        source = large()
        options = {"tokenizer": tokenizer_dir, "seq_len": SEQ_LEN, "batch_size": BATCH_SIZE}
        next(iter(tdstream.loader(source, shuffle_buffer=buffer, **options)))
        assert source.taken <= most


def test_its_bar_has_a_percentage_and_its_meter_a_verdict(tokenizer_dir, capfd, monkeypatch):
    """A dataset that knows its rows: documents of documents, to 100 %; and a sentence about the loader."""
    rows = datasets.Dataset.from_dict({"text": list(large(3000).texts)}).to_iterable_dataset(num_shards=3)
    options = {"tokenizer": tokenizer_dir, "seq_len": SEQ_LEN, "batch_size": BATCH_SIZE}
    run, meter = tdstream.loader(rows, **options), tdstream.DataMeter()
    for _ in tdstream.progress(run, meter=meter, mininterval=0):
        pass
    shown = capfd.readouterr().err
    assert "100%" in shown
    assert "3.00k/3.00k" in shown or "3000/3000" in shown
    assert str(meter)
