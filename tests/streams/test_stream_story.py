"""A large stream begins at once, its bar has a percentage, and the meter says who waits: on one stream."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

import pytest
from helpers_stream import SEQ_LEN
from helpers_time import Clock, Screen

import tdstream

DOCUMENTS = 200_000
TOKENS = 5  # of a document: four words and the end of text
HOW = {"seq_len": 99, "batch_size": 50}  # 5,000 tokens a batch: 1,000 documents of 200,000 are half a percent
BATCHES = 200


class Crawl(Sequence[str]):
    """200,000 documents that are made up as they are asked for, each after so many seconds on a clock."""

    def __init__(self, clock: Clock | None = None, seconds: float = 0.0) -> None:
        self.clock, self.seconds, self.taken = clock, seconds, 0

    def __len__(self) -> int:
        return DOCUMENTS

    def __getitem__(self, number: int) -> str:
        if self.clock is not None:
            self.clock.sleep(self.seconds)
        self.taken += 1
        return f"w{2 + number % 2000} w3 w4 w5"


class Unsized:
    """The same documents from something that does not know how many it has."""

    def __init__(self, crawl: Crawl) -> None:
        self.crawl = crawl

    def __iter__(self) -> Iterator[str]:
        return iter(map(self.crawl.__getitem__, range(DOCUMENTS)))


@pytest.fixture(autouse=True)
def counts(tmp_path, monkeypatch):
    """Keep counts in a directory of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def train(loader, steps, *, meter=None, work=lambda: None):
    """Train for some steps under a bar; return what the bar showed behind each, as (percent, n/total)."""
    screen, shown = Screen(), []
    bar = tdstream.progress(loader, file=screen, mininterval=0, meter=meter)
    for _ in islice(bar, steps):
        work()
    for line in screen.drawn:
        found = re.search(r"(\d+)%\|.*\| (\S+/\S+) \[", line)
        shown.append((int(found[1]), found[2]) if found else (None, line))
    return shown


@pytest.mark.parametrize(("shuffle_buffer", "most"), [(0, 64), (1000, 1000)])
def test_the_first_batch_needs_only_what_is_in_it(tokenizer_dir, shuffle_buffer, most):
    """Of 200,000 documents one block is read for the first batch, and one buffer if they are shuffled."""
    source, options = Crawl(), {"seq_len": SEQ_LEN, "batch_size": 4}
    next(iter(tdstream.loader(source, tokenizer=tokenizer_dir, shuffle_buffer=shuffle_buffer, **options)))
    assert 0 < source.taken <= most


@pytest.mark.parametrize(
    ("seconds", "work", "verdict"),
    [
        (0.001, 0.25, r"^The loader is the bottleneck: the trainer waited for data 80 % of the time"),
        (
            0.00001,
            2.0,
            r"^The trainer is the bottleneck, not the loader: it waited for data 0\.5 % of the time",
        ),
    ],
)
def test_it_trains_at_once_with_a_percentage_and_a_verdict(tokenizer_dir, seconds, work, verdict):
    """One stream: 1,000 documents a batch at 1 ms each and 250 ms of work, or at 10 us and 2 s."""
    clock = Clock()
    source, meter = Crawl(clock, seconds), tdstream.DataMeter(clock=clock)
    loader = tdstream.loader(source, tokenizer=tokenizer_dir, **HOW)
    read = []

    def step():
        read.append(source.taken)
        clock.sleep(work)

    shown = train(loader, 31, meter=meter, work=step)
    assert 1000 <= read[0] <= 1000 + 64
    assert [percent for percent, _ in shown[:31:10]] == [0, 5, 10, 15]
    assert all(total.endswith(("/200k", "/200000")) for _, total in shown)
    assert re.match(verdict, meter.report().verdict)


def test_a_text_that_was_counted_has_batches_of_batches(tokenizer_dir):
    """Counted once: 1,000,000 tokens, so 200 batches; half a percent each, and exact with one stream."""
    source = Unsized(Crawl())
    counted = tdstream.count(source, tokenizer_dir, progress=False, **HOW)
    assert (counted.documents, counted.tokens, counted.batches) == (DOCUMENTS, DOCUMENTS * TOKENS, BATCHES)
    loader = tdstream.loader(source, tokenizer=tokenizer_dir, **HOW)
    assert train(loader, 21)[:21:10] == [(0, "0/200"), (5, "10/200"), (10, "20/200")]
    several = tdstream.loader(source, tokenizer=tokenizer_dir, num_workers=2, **HOW)
    assert train(several, 3)[:3] == [(0, "0/~200"), (0, "1/~200"), (1, "2/~200")]
