"""The bar shows how much of the epoch is done, and of how much, whatever the loader."""

from __future__ import annotations

import re

import pytest
import torch
from helpers_time import Clock, Screen, slow
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader
from tqdm import tqdm

import tdstream
from tdstream.monitor.progress import Progress
from tdstream.streams.total_hint import TotalHint


@pytest.fixture
def corpus(make_corpus):
    """Return 100 samples of 10 tokens."""
    return make_corpus(1000)


def run(loader, *, stop=None, screen=None, **options):
    """Run a bar over a loader, drawn after every batch; return (batches, what was drawn, the bar)."""
    screen = screen or Screen()
    batches = []
    bar = tdstream.progress(loader, file=screen, mininterval=0, **options)
    for batch in bar:
        batches.append(batch)
        if len(batches) == stop:
            break
    return batches, screen.drawn, bar


def places(drawn):
    """Return what a bar showed as n/total, without repetitions."""
    found = [re.search(r"\| (\S+/~?\S+) \[", line) for line in drawn]
    return list(dict.fromkeys(match[1] for match in found if match))


class Stream:
    """A loader without a length that yields batches and says what it is told to say."""

    def __init__(self, batches, hint=lambda given: None):
        self.batches, self.hint, self.given = batches, hint, 0

    def __iter__(self):
        for number in range(self.batches):
            self.given = number + 1
            yield {"input_ids": torch.zeros(2, 4, dtype=torch.int64)}

    def total_hint(self):
        return self.hint(self.given)


class TestWhatIsShown:
    """The line, to the letter."""

    def test_the_line(self):
        """The format, with the caller's keys in the caller's order and the bar's own behind them."""
        screen = Screen()
        bar = tdstream.progress(range(101), epoch=25, file=screen)
        for _ in bar:
            bar.set_postfix({"loss": "2.4469", "ppl": "11.55", "lr": "2.63e-04"}, refresh=False)
        assert re.fullmatch(
            r"Epoch 25: 100%\|█{10}\| 101/101 \[\d\d:\d\d<00:00, +[\d.]+batch/s, "
            r"loss=2\.4469, ppl=11\.55, lr=2\.63e-04, wait=\d+%\]",
            screen.drawn[-1].replace("##########", "█" * 10),
        )
        assert screen.getvalue().endswith("\n")

    def test_tokens_and_waits(self, monkeypatch):
        """8 tokens in a step of 1 s wait and 3 s work, on one of 5 ranks: 10 tokens/s, a quarter waiting."""
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", "5")
        clock, screen = Clock(), Screen()
        bar = tdstream.progress(
            slow(clock, [1.0] * 100), file=screen, mininterval=0, meter=tdstream.DataMeter(clock=clock)
        )
        for _ in bar:
            clock.sleep(3.0)
        assert screen.drawn[-1].endswith("tok/s=10.0, wait=25%]")
        assert "wait" not in screen.drawn[0]

    def test_the_ranks_are_those_of_the_pipeline(self, corpus, monkeypatch):
        """Four processes of two data-parallel ranks: tokens count twice, not four times."""
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", "4")
        clock, screen = Clock(), Screen()
        loader = tdstream.loader(corpus, seq_len=9, batch_size=10, dp_rank=0, dp_world_size=2)
        bar = tdstream.progress(loader, file=screen, meter=tdstream.DataMeter(clock=clock))
        for _ in bar:
            clock.sleep(1.0)
        assert "tok/s=180," in screen.drawn[-1]

    def test_the_newest_speed_while_it_runs_and_the_whole_at_the_end(self):
        """A loop that becomes ten times slower shows it within 64 steps; the last line is the mean."""
        clock, screen = Clock(), Screen()
        bar = tdstream.progress(
            slow(clock, [0.0] * 200), file=screen, mininterval=0, meter=tdstream.DataMeter(clock=clock)
        )
        for number, _ in enumerate(bar):
            clock.sleep(1.0 if number < 100 else 10.0)
        shown = [re.search(r"tok/s=([\d.]+)", line) for line in screen.drawn]
        speeds = [float(match[1]) for match in shown if match]
        assert (speeds[50], speeds[-2], speeds[-1]) == (8.0, 0.8, 1.45)

    def test_the_callers_own_keys_win(self):
        """Who shows tok/s or wait shows it alone."""
        screen = Screen()
        bar = tdstream.progress(DataLoader(torch.arange(6), batch_size=2), file=screen)
        for _ in bar:
            bar.set_postfix({"tok/s": "7", "wait": "none"})
        assert screen.drawn[-1].endswith("tok/s=7, wait=none]")

    def test_set_postfix_draws_at_once(self, corpus):
        """As usual in tqdm, and without counting the batch in hand."""
        screen = Screen()
        bar = tdstream.progress(tdstream.loader(corpus, seq_len=9, batch_size=4), file=screen, mininterval=99)
        for number, _ in enumerate(bar):
            bar.set_postfix(loss=0.5)
            assert f"| {number}/25 [" in screen.drawn[-1]
            assert "loss=0.5" in screen.drawn[-1]


class TestTotals:
    """n of total, from every kind of loader."""

    @pytest.mark.parametrize("num_workers", [0, 2])
    def test_a_pass_of_our_loader(self, corpus, num_workers):
        """0 of 25 to 25 of 25."""
        loader = tdstream.loader(corpus, seq_len=9, batch_size=4, num_workers=num_workers)
        batches, drawn, _ = run(loader)
        assert len(batches) == 25
        assert places(drawn) == [f"{done}/25" for done in range(26)]
        assert "100%" in drawn[-1]

    def test_a_resumed_pass_begins_where_it_was_left(self, corpus):
        """After 10 of 25 batches of 4: from 10 of 25; with batches of 6: 10 behind and 10 more."""
        loader = tdstream.loader(corpus, seq_len=9, batch_size=4)
        run(loader, stop=10)
        state = loader.state_dict()
        for batch_size, total in ((4, 25), (6, 20)):
            resumed = tdstream.loader(corpus, seq_len=9, batch_size=batch_size)
            resumed.load_state_dict(state)
            batches, drawn, bar = run(resumed)
            assert places(drawn) == [f"{done}/{total}" for done in range(10, total + 1)]
            assert len(batches) == total - 10
            assert (bar.initial, bar.n, bar.total) == (10, total, total)

    def test_a_state_loaded_after_the_bar_was_made(self, corpus):
        """What counts is where the loader stands when the loop begins."""
        loader = tdstream.loader(corpus, seq_len=9, batch_size=4)
        run(loader, stop=10)
        resumed = tdstream.loader(corpus, seq_len=9, batch_size=4)
        bar = tdstream.progress(resumed, file=Screen(), mininterval=0)
        resumed.load_state_dict(loader.state_dict())
        list(bar)
        assert places(bar.fp.drawn) == ["0/25", *(f"{done}/25" for done in range(10, 26))]

    def test_an_epoch_that_is_begun_again_or_anew_begins_at_nothing(self, corpus):
        """After a break, after an epoch's end, after a loaded end, and after set_epoch."""
        loader = tdstream.loader(corpus, seq_len=9, batch_size=4)
        run(loader, stop=10)
        assert places(run(loader)[1])[0] == "0/25"
        ended = loader.state_dict()
        assert places(run(loader)[1])[0] == "0/25"
        loader.load_state_dict(ended)
        assert places(run(loader)[1])[::25] == ["0/25", "25/25"]
        run(loader, stop=10)
        loader.load_state_dict(loader.state_dict())
        loader.set_epoch(9)
        assert places(run(loader)[1])[::25] == ["0/25", "25/25"]

    def test_the_empty_rest_of_an_epoch(self, corpus):
        """set_epoch names the epoch that has ended: nothing comes, and nothing is missing."""
        loader = tdstream.loader(corpus, seq_len=9, batch_size=4)
        list(loader)
        resumed = tdstream.loader(corpus, seq_len=9, batch_size=4)
        resumed.load_state_dict(loader.state_dict())
        resumed.set_epoch(0)
        batches, drawn, _ = run(resumed)
        assert (len(batches), places(drawn)) == (0, ["25/25"])

    def test_batches_that_are_left_out_count(self, corpus):
        """skip() moves the bar on."""
        loader = tdstream.loader(corpus, seq_len=9, batch_size=4)
        bar = tdstream.progress(loader, file=Screen(), mininterval=0)
        for number, _ in enumerate(bar):
            if number == 4:
                loader.skip(10)
        assert places(bar.fp.drawn) == [f"{done}/25" for done in (*range(5), *range(15, 26))]

    @pytest.mark.parametrize("num_workers", [0, 2])
    def test_a_bare_stateful_data_loader(self, corpus, num_workers):
        """Its loaded state says how many batches lie behind."""

        def stateful():
            return StatefulDataLoader(
                tdstream.build(corpus, seq_len=9, batch_size=4), num_workers=num_workers
            )

        loader = stateful()
        iterator = iter(loader)
        for _ in range(10):
            next(iterator)
        resumed = stateful()
        resumed.load_state_dict(loader.state_dict())
        batches, drawn, _ = run(resumed)
        assert places(drawn) == [f"{done}/25" for done in range(10, 26)]
        assert len(batches) == 15
        assert places(run(resumed)[1])[::25] == ["0/25", "25/25"]

    def test_any_loader_with_a_length(self):
        """DataLoader, a list, and what the caller says."""
        assert places(run(DataLoader(torch.arange(6), batch_size=2))[1]) == ["0/3", "1/3", "2/3", "3/3"]
        assert places(run([1, 2])[1]) == ["0/2", "1/2", "2/2"]
        assert places(run(iter([1, 2]), total=2)[1]) == ["0/2", "1/2", "2/2"]
        assert places(run(iter([1, 2]), total=7, initial=5)[1]) == ["5/7", "6/7", "7/7"]

    def test_what_has_ended_is_at_100_percent(self):
        """A length that promised too much is put right at the end, one that promised too little at once."""
        assert places(run(iter([1, 2]), total=3)[1]) == ["0/3", "1/3", "2/3", "2/2"]
        assert places(run(iter([1, 2, 3]), total=2)[1]) == ["0/2", "1/2", "2/2", "3/~3", "3/3"]

    def test_the_second_pass_knows_the_first(self):
        """Without any length: a counter, then an estimate, and the truth at the end."""
        loader = Stream(3)
        first = run(loader)[1]
        assert "| 3/3 [" in first[-1]
        assert not any("/" in line.split("[")[0] for line in first[:-1])
        loader.batches = 4
        assert places(run(loader)[1]) == ["0/~3", "1/~3", "2/~3", "3/~3", "4/~4", "4/4"]
        assert places(run(loader)[1])[0] == "0/~4"


class Counting(Stream):
    """A loader without a length that counts its batches, and is always resumed behind two of five."""

    batches_done = 2

    def __iter__(self):
        for batch in super().__iter__():
            self.batches_done = 2 + self.given
            yield batch


class TestStreams:
    """Loaders without a length that have a hint."""

    def test_a_loader_that_counts_for_itself(self):
        """What lies behind a resume is known with the first batch; the next pass knows all five."""
        loader = Counting(3)
        assert "| 5/5 [" in run(loader)[1][-1]
        assert places(run(loader)[1]) == ["0/~5", "3/~5", "4/~5", "5/~5", "5/5"]

    def test_counted_batches(self):
        """As good as a length, resumed in the middle, too."""
        counted = Stream(3, lambda given: TotalHint(kind="counted", total=5, done=2 + given))
        assert places(run(counted)[1]) == ["2/5", "3/5", "4/5", "5/5"]

    def test_documents(self):
        """Percent, numbers, and speed by documents; 25 of 100 were done before."""
        stream = Stream(
            3, lambda given: TotalHint(kind="documents", total=100, done=25 + 25 * given, unit="doc")
        )
        drawn = run(stream)[1]
        assert places(drawn) == ["25/100", "50/100", "75/100", "100/100"]
        assert re.search(r"75%\|.*doc/s", drawn[2])

    def test_an_estimate_is_marked_and_may_change(self):
        """The mark goes when the truth is known."""
        guesses = {0: 9, 1: 8, 2: 4, 3: 4}
        stream = Stream(3, lambda given: TotalHint(kind="estimate", total=guesses[given], done=given))
        assert places(run(stream)[1]) == ["0/~9", "1/~8", "2/~4", "3/~4", "3/3"]

    def test_a_hint_that_comes_late(self):
        """Nothing before the first batch, an estimate then."""
        late = Stream(2, lambda given: TotalHint(kind="estimate", total=2, done=given) if given else None)
        assert places(run(late)[1]) == ["1/~2", "2/~2", "2/2"]

    def test_what_lies_behind_a_late_hint_is_no_speed(self):
        """500 of 560 documents were done before; 10 in each second since the first batch."""
        clock, screen = Clock(), Screen()
        late = Stream(
            6,
            lambda given: (
                TotalHint(kind="estimate", total=560, done=500 + 10 * given, unit="doc") if given else None
            ),
        )
        for _ in tdstream.progress(late, file=screen, mininterval=0, meter=tdstream.DataMeter(clock=clock)):
            clock.sleep(1.0)
        speeds = [float(found[1]) for line in screen.drawn if (found := re.search(r"([\d.]+)doc/s", line))]
        assert 8 < max(speeds) <= 10

    def test_a_length_is_better_than_an_estimate(self):
        """A loader that has both."""

        class Both(Stream):
            def __len__(self):
                return 2

        both = Both(2, lambda given: TotalHint(kind="estimate", total=9, done=given))
        assert places(run(both)[1]) == ["0/2", "1/2", "2/2"]


class TestWhereItIsShown:
    """Rank 0, terminals, files."""

    def test_other_ranks_show_nothing_and_measure(self, monkeypatch, corpus):
        """Batches come, set_postfix does nothing, and the meter runs."""
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        screen = Screen()
        bar = tdstream.progress(tdstream.loader(corpus, seq_len=9, batch_size=4), epoch=0, file=screen)
        for number, _ in enumerate(bar):
            bar.set_postfix(loss=number)
        assert number == 11
        assert screen.getvalue() == ""
        assert bar.meter.tokens == 12 * 36

    def test_a_file_gets_a_line_per_interval(self, monkeypatch):
        """4 batches a minute for 47.5 minutes: a line at the start, each 10 minutes, and at the end."""
        clock, file = Clock(), Screen(terminal=False)
        monkeypatch.setattr("time.monotonic", clock)
        bar = tdstream.progress(range(190), desc="e", file=file, mininterval=600)
        for number, _ in enumerate(bar):
            clock.sleep(15)
            bar.set_postfix(loss=number)
        lines = file.getvalue().split("\n")
        assert "\r" not in file.getvalue()
        shown = [line.split("|")[0].strip() for line in lines]
        assert shown == ["e:   0%", "e:  21%", "e:  42%", "e:  63%", "e:  84%", "e: 100%", ""]
        assert "190/190" in lines[-2]
        assert "loss=189" in lines[-2]

    def test_a_notebook_gets_a_bar(self):
        """Its stream is no terminal, and draws over a line all the same."""
        cell = type("OutStream", (Screen,), {"__module__": "ipykernel.iostream"})(terminal=False)
        list(tdstream.progress(range(5), file=cell, mininterval=0))
        assert [place.split("/")[0] for place in places(cell.drawn)] == list("012345")

    def test_a_short_pass_into_a_file(self, corpus):
        """Its interval is 30 s by default: it has its first line and its last one, from where it resumes."""
        file = Screen(terminal=False)
        left, loader = (tdstream.loader(corpus, seq_len=9, batch_size=4) for _ in range(2))
        run(left, stop=10)
        bar = tdstream.progress(loader, file=file)
        loader.load_state_dict(left.state_dict())
        assert len(list(bar)) == 15
        assert [line.split("[")[0] for line in file.getvalue().splitlines()] == [
            " 40%|####      | 10/25 ",
            "100%|##########| 25/25 ",
        ]

    def test_an_epoch_that_is_left_early(self):
        """Its last line says how far it came."""
        file = Screen(terminal=False)
        for number in tdstream.progress(range(300), file=file):
            if number == 200:
                break
        assert "200/300" in file.getvalue().splitlines()[-1]

    def test_an_epoch_of_nothing(self):
        """One line says so."""
        file = Screen(terminal=False)
        assert list(tdstream.progress([], file=file)) == []
        assert len(file.getvalue().splitlines()) == 1

    def test_leaving_the_loop_ends_the_line(self, corpus):
        """After break and after an error the cursor stands on a fresh line, and the loader goes on."""
        loader = tdstream.loader(corpus, seq_len=9, batch_size=4)
        screen = Screen()
        run(loader, stop=3, screen=screen)
        assert screen.getvalue().endswith("\n")
        screen = Screen()

        def fail():
            for _ in tdstream.progress(loader, file=screen):
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        assert screen.getvalue().endswith("\n")
        assert len(list(loader)) == 25

    def test_no_thread_is_started(self):
        """Tqdm's monitor would be alive in a process that forks workers."""
        list(tdstream.progress(range(3), file=Screen()))
        assert Progress.monitor is tqdm.monitor  # none of its own

    def test_a_pass_does_not_need_the_bar_to_be_shown(self):
        """disable=True passes batches on."""
        assert list(tdstream.progress([1, 2, 3], disable=True)) == [1, 2, 3]


def test_the_epoch_is_a_label(corpus):
    """A bar called Epoch 7 does not send a loader that was resumed in epoch 0 to epoch 7."""
    loader = tdstream.loader(corpus, seq_len=9, batch_size=4)
    run(loader, stop=10)
    resumed = tdstream.loader(corpus, seq_len=9, batch_size=4)
    resumed.load_state_dict(loader.state_dict())
    batches, drawn, _ = run(resumed, epoch=7)
    assert (len(batches), resumed.epoch) == (15, 0)
    assert drawn[0].startswith("Epoch 7:  40%")


def test_one_meter_over_several_bars():
    """It goes on where the last pass ended."""
    meter = tdstream.DataMeter()
    for _ in range(2):
        list(tdstream.progress([torch.arange(4)] * 3, file=Screen(), meter=meter))
    assert (meter.tokens, meter.report().steps) == (24, 4)
