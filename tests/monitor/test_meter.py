"""The meter says who waits, to the percent, on a clock that the test moves."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch
from helpers_time import Clock, slow
from torch.utils.data import DataLoader

import tdstream
from tdstream.monitor.meter import LoaderSetup, MeterReport


def run(delays, compute_s, *, tokens=8, passes=1):
    """Run passes with these delays before each batch and so much work after it; return the report."""
    clock = Clock()
    meter = tdstream.DataMeter(clock=clock)
    for _ in range(passes):
        for _ in meter.watch(slow(clock, delays, tokens=tokens)):
            clock.sleep(compute_s)
    return meter.report()


def test_an_injected_delay_is_found():
    """30 ms before every batch, 90 ms of work: 25 %, and no error worth a name."""
    report = run([5.0] + [0.030] * 200, 0.090)
    assert report.steps == 200
    assert report.wait_mean_s == pytest.approx(0.030)
    assert report.wait_share == pytest.approx(0.25)
    assert report.wait_p50_s == pytest.approx(0.030, rel=0.01)
    assert report.wait_p99_s == pytest.approx(0.030, rel=0.01)
    assert report.starved == 1
    assert report.tokens_per_s == pytest.approx(8 / 0.120)
    assert report.bytes_per_s == pytest.approx(64 / 0.120)


def test_what_the_meter_does_is_no_wait(monkeypatch):
    """It takes a second itself for each step: that is in the step, and not in the wait for the next batch."""
    clock = Clock()
    meter = tdstream.DataMeter(clock=clock)
    monkeypatch.setattr(
        meter, "_add_step", lambda *measured, add=meter._add_step: (clock.sleep(1.0), add(*measured))
    )
    for _ in meter.watch(slow(clock, [0.25] * 11)):
        clock.sleep(2.0)
    report = meter.report()
    assert report.wait_mean_s == pytest.approx(0.25)
    assert report.seconds == pytest.approx(2.25 + 9 * 3.25)


def test_the_first_step_of_each_pass_stands_apart():
    """Workers that take 5 s to start are no wait of a step, in every pass."""
    report = run([5.0, 0.01, 0.01], 1.0, passes=3)
    assert report.steps == 6
    assert report.start_up_s == pytest.approx(3 * 6.0)
    assert report.wait_s == pytest.approx(0.06)


def test_the_end_of_a_pass_is_no_step():
    """What a loader takes to say that it is over counts as start-up."""
    clock = Clock()
    meter = tdstream.DataMeter(clock=clock)

    def batches():
        yield from slow(clock, [0.0, 0.0])
        clock.sleep(7.0)

    for _ in meter.watch(batches()):
        clock.sleep(1.0)
    report = meter.report()
    assert (report.steps, report.seconds, report.start_up_s) == (1, pytest.approx(1.0), pytest.approx(8.0))
    assert meter.waited_s == pytest.approx(7.0)


def test_a_loop_that_is_left_has_done_its_last_step():
    """Three steps and a break in the fourth: four steps, less the first."""
    clock = Clock()
    meter = tdstream.DataMeter(clock=clock)
    for number, _ in enumerate(meter.watch(slow(clock, [0.5] * 9))):
        clock.sleep(1.5)
        if number == 3:
            break
    report = meter.report()
    assert (report.steps, report.seconds) == (3, pytest.approx(6.0))


def test_rare_long_waits_show_in_p99_and_in_starved():
    """2 in 100 steps wait a second, the others a millisecond; work takes 100 ms."""
    report = run([0.001] + [1.0 if number % 50 == 0 else 0.001 for number in range(1000)], 0.1)
    assert report.wait_p50_s == pytest.approx(0.001, rel=0.01)
    assert report.wait_p99_s == pytest.approx(1.0, rel=0.01)
    assert report.starved == pytest.approx(0.02)


def test_a_batch_that_the_loop_takes_apart_was_counted_before():
    """A trainer may pop from the batch that it was given."""
    clock = Clock()
    meter = tdstream.DataMeter(clock=clock)
    for batch in meter.watch(slow(clock, [0.0] * 3)):
        batch.pop("input_ids")
        clock.sleep(1.0)
    assert meter.tokens == 24


def test_nothing_measured_says_so():
    """No step, no figure, no division by nothing."""
    report = run([1.0], 1.0)
    assert report.steps == 0
    assert (report.wait_share, report.wait_mean_s, report.tokens_per_s) == (0, 0, 0)
    assert "Nothing was measured" in report.verdict


def test_the_loader_tells_how_it_is_fed(make_corpus):
    """Workers, and whether tokens are read from shards."""
    meter = tdstream.DataMeter()
    list(meter.watch(tdstream.loader(make_corpus(200), seq_len=9, batch_size=2)))
    assert (meter.report().feeding.num_workers, meter.report().feeding.tokenized) == (0, True)
    list(meter.watch(DataLoader(torch.arange(8), batch_size=2)))
    assert (meter.report().feeding.num_workers, meter.report().feeding.tokenized) == (0, False)
    list(meter.watch([1, 2]))
    assert (meter.report().feeding.num_workers, meter.report().feeding.tokenized) == (None, False)


@pytest.mark.parametrize("computes", [False, True])
def test_waits_without_computation_are_told_from_those_with_it(computes):
    """Three batches after the first: each costs 20 ms of sleep, or 20 ms of the processor."""

    def batches():
        for _ in range(4):
            begin = time.process_time()
            while computes and time.process_time() - begin < 0.02:
                pass
            time.sleep(0.0 if computes else 0.02)
            yield torch.zeros(1)

    meter = tdstream.DataMeter()
    list(meter.watch(batches()))
    measured = meter.report()
    assert measured.wait_s - measured.idle_s == pytest.approx(0.06 if computes else 0.0, abs=0.02)


def report(wait_s, compute_s, *, p50=None, p99=None, idle=None, tokens_per_s=1, **feeding):
    """Return the report of 100 steps like this one; `idle` is the share of the wait without computation."""
    return MeterReport(
        steps=100,
        seconds=100 * (wait_s + compute_s),
        wait_s=100 * wait_s,
        start_up_s=0,
        wait_p50_s=wait_s if p50 is None else p50,
        wait_p99_s=wait_s if p99 is None else p99,
        starved=1,
        tokens_per_s=tokens_per_s,
        bytes_per_s=1,
        feeding=LoaderSetup(**feeding),
        idle_s=None if idle is None else 100 * wait_s * idle,
    )


class TestVerdict:
    """In words: whether, how much, what to change."""

    def test_no_bottleneck(self):
        """One percent is nothing, and needs no advice."""
        words = report(0.001, 0.099).verdict
        assert words == "The trainer is the bottleneck, not the loader: it waited for data 1.0 % of the time."

    def test_a_little(self):
        """5 % is worth a word: 100 / 95 = 1.05."""
        words = report(0.005, 0.095).verdict
        assert "no bottleneck, but costs a little" in words
        assert "5.0 % of the time" in words
        assert "1.05 times as fast" in words

    def test_the_workers_that_would_hide_it(self):
        """A batch takes 300 ms, a step 100 ms of work: three workers; two have 150 ms each, six have 50."""
        assert "num_workers=3 instead of 0" in report(0.3, 0.1, num_workers=0, cores=8).verdict
        assert "num_workers=4 instead of 2" in report(0.1, 0.1, num_workers=2, cores=8).verdict
        words = report(0.3, 0.1, num_workers=0, cores=8).verdict
        assert "is the bottleneck" in words
        assert "75 % of the time (300 ms of a step of 400 ms)" in words
        assert "4.00 times as fast" in words

    def test_more_workers_than_cores_are_no_advice(self):
        """With two cores: two workers, and where there are two, neither more."""
        assert (
            "num_workers=2 instead of 0, which will not" in report(0.9, 0.1, num_workers=0, cores=2).verdict
        )
        assert "faster storage or more cores" in report(0.9, 0.1, num_workers=2, cores=2).verdict

    def test_text_that_is_tokenized_on_the_fly(self):
        """Prepare it first; a corpus has been prepared."""
        assert "prepare the text first" in report(0.3, 0.1, num_workers=0, cores=8).verdict
        assert "prepare" not in report(0.3, 0.1, num_workers=0, cores=8, tokenized=True).verdict

    def test_a_corpus_that_is_read_from_memory_needs_no_workers(self):
        """The processor copies rows all the time, as workers would have to; only reads that wait gain."""
        corpus = {"num_workers": 0, "cores": 8, "tokenized": True}
        for idle in (None, 0.1):
            words = report(0.03, 0.1, idle=idle, **corpus).verdict
            assert words.endswith("Workers would not help; nothing need change.")
            assert "num_workers" not in words
        words = report(0.3, 0.1, idle=0.9, **corpus).verdict
        assert "num_workers=3 instead of 0" in words
        assert "since reads wait for storage" in words
        workers = report(0.3, 0.1, **{**corpus, "num_workers": 2}).verdict
        assert "compare with num_workers=0" in workers

    def test_a_hundred_million_tokens_a_second_are_enough(self):
        """A loop that only reads waits all the time, and is told to change nothing."""
        words = report(
            0.0001, 0.0, tokens_per_s=1e8, idle=0.0, num_workers=0, cores=8, tokenized=True
        ).verdict
        assert words == (
            "The loader is no bottleneck: the loop received 100,000,000 tokens/s, more than training uses. "
            "Nothing need change."
        )

    def test_bursts_short_steps_and_strangers(self):
        """Few long waits want prefetching, short steps larger batches; of an iterator little is known."""
        bursts = report(0.02, 0.1, p50=0.0001, p99=1.0, num_workers=2, cores=8)
        assert "prefetch_factor" in bursts.verdict
        assert "larger batches" in report(0.003, 0.001, num_workers=0, cores=8).verdict
        assert "larger batches" not in report(0.03, 0.01, num_workers=0, cores=8).verdict
        assert "threads make the batches ahead" in report(0.3, 0.1, tokenized=True).verdict

    def test_passes_that_begin_slowly(self):
        """A tenth of the whole time is worth a word, less is not."""
        slow_start = replace(report(0.001, 0.099), start_up_s=30.0)
        assert "first steps of passes took 30 s of 40 s in all" in slow_start.verdict
        assert "first steps" not in replace(slow_start, start_up_s=1.0).verdict

    def test_a_loop_that_only_reads(self):
        """Without any work there is no speed-up to speak of."""
        assert "does next to nothing else" in report(0.3, 0.0, num_workers=0, cores=4).verdict

    def test_the_line_has_all_figures(self):
        """str(report) is what a trainer prints at its end."""
        line = str(report(0.001, 0.099))
        for part in ("100 steps", "1 ms on average", "at p50", "at p99", "starved", "tokens/s", "MB/s"):
            assert part in line
        assert line.endswith(report(0.001, 0.099).verdict)
