"""skip, the numbers that a loader tells, and where any step was: all agree with what was handed out."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loader_cluster import Cluster, cluster, make_loader, through_file
from loader_truth import NUM_SAMPLES, SEQ_LEN, Geometry, Ids, ids_of, loop, rest, take

import tdstream

B = 12
LENGTH = NUM_SAMPLES // B
SETUPS = [Geometry(1, 0, B), Geometry(1, 1, B), Geometry(1, 2, B), Geometry(1, 2, B, True)]
every_setup = pytest.mark.parametrize("setup", SETUPS, ids=str)


def truth(epoch: int) -> list[Ids]:
    """Return an epoch's batches."""
    return rest(B, epoch)


@every_setup
def test_a_running_loop_goes_on_behind_what_was_skipped(setup: Geometry, counting: Path) -> None:
    """skip(3) after the fifth batch must give the ninth next, and nothing else be lost or repeated."""
    loader = make_loader(counting, setup)
    iterator = iter(loader)
    assert take(iterator, 5) == truth(0)[:5]
    loader.skip(3)
    assert (loader.position, loader.batches_done, loader.step) == (8 * B, 8, 5)
    assert take(iterator, 4) == truth(0)[8:12]
    loader.skip(1)
    loader.skip(2)
    assert loop(iterator) == truth(0)[15:]
    assert [loop(loader), loop(loader)] == [truth(1), truth(2)]


@every_setup
@pytest.mark.parametrize("count", [1, 7, LENGTH, 2 * LENGTH + 3])
def test_batches_can_be_skipped_before_the_first_loop(setup: Geometry, count: int, counting: Path) -> None:
    """What is skipped at first must not come, be it more than two epochs."""
    loader = make_loader(counting, setup)
    loader.skip(count)
    epoch, done = divmod(count, LENGTH)
    assert (loader.epoch, loader.position, loader.batches_done) == (epoch, done * B, done)
    loader.set_epoch(epoch)  # the epoch that the run stands in: trainers say so
    assert [loop(loader), loop(loader)] == [truth(epoch)[done:], truth(epoch + 1)]


@every_setup
@pytest.mark.parametrize("taken", [1, LENGTH - 2, LENGTH])
def test_a_skip_over_the_end_ends_the_loop(setup: Geometry, taken: int, counting: Path) -> None:
    """Where the skipped batches reach into the next epoch, the loop is over, and the next goes on there."""
    loader = make_loader(counting, setup)
    iterator = iter(loader)
    assert take(iterator, taken) == truth(0)[:taken]
    count = LENGTH - taken + 4
    loader.skip(count)
    assert (loader.epoch, loader.position) == (1, 4 * B)
    assert loop(iterator) == []
    assert loop(iterator) == []
    assert [loop(loader), loop(loader)] == [truth(1)[4:], truth(2)]


@every_setup
def test_a_skip_to_the_very_end_ends_the_epoch(setup: Geometry, counting: Path) -> None:
    """Where exactly the rest is skipped, the loop is over, and the next epoch is whole."""
    loader = make_loader(counting, setup)
    iterator = iter(loader)
    take(iterator, 5)
    loader.skip(LENGTH - 5)
    assert loop(iterator) == []
    assert [loop(loader), loop(loader)] == [truth(1), truth(2)]


@every_setup
@pytest.mark.parametrize("count", [3, LENGTH - 5, LENGTH])
def test_a_skip_is_in_the_state(setup: Geometry, count: int, counting: Path) -> None:
    """After a reload, at once and some batches later, the run must go on behind what was skipped."""
    loader = make_loader(counting, setup)
    iterator = iter(loader)
    take(iterator, 5)
    loader.skip(count)
    epoch, done = divmod(5 + count, LENGTH)
    resumed = make_loader(counting, setup)
    resumed.load_state_dict(through_file(loader.state_dict()))
    assert (resumed.epoch, resumed.position, resumed.step) == (epoch, done * B, 5)
    assert take(iter(resumed), 2) == truth(epoch)[done : done + 2]
    again = make_loader(counting, SETUPS[0])
    again.load_state_dict(through_file(resumed.state_dict()))
    assert [loop(again), loop(again)] == [truth(epoch)[done + 2 :], truth(epoch + 1)]


def test_all_ranks_skip_alike(counting: Path) -> None:
    """A skip counts global batches: ranks must stay together, and the next global batch be the right one."""
    with cluster(counting, Geometry(3, 2, 4), busy=1) as ranks:
        ranks.open()
        found = ranks.take(2)
        for loader in ranks.loaders:
            loader.skip(6)
        ranks.state()
        found += ranks.take(3)
    assert found == truth(0)[:2] + truth(0)[8:11]


@every_setup
def test_a_skip_of_nothing_moves_nothing(setup: Geometry, counting: Path) -> None:
    """skip(0) in a running loop must leave it as it was."""
    loader = make_loader(counting, setup)
    iterator = iter(loader)
    take(iterator, 5)
    loader.skip(0)
    assert (loader.position, loader.step) == (5 * B, 5)
    assert loop(iterator) == truth(0)[5:]
    assert loop(loader) == truth(1)


@pytest.mark.parametrize("count", [-1, 1.0, True, None, "2"])
def test_a_skip_is_a_whole_number(count: Any, counting: Path) -> None:
    """Anything but an integer of at least 0 must be refused, and change nothing."""
    loader = make_loader(counting, SETUPS[0])
    with pytest.raises(tdstream.ConfigError, match="num_batches must be an integer of at least 0"):
        loader.skip(count)
    assert loop(loader) == truth(0)


def test_a_skip_in_a_chosen_epoch(counting: Path) -> None:
    """Between loops, batches must be left out of the epoch that was chosen."""
    loader = make_loader(counting, SETUPS[0])
    loop(loader)
    loader.set_epoch(3)
    loader.skip(2)
    assert (loader.epoch, loader.position) == (3, 2 * B)
    assert [loop(loader), loop(loader)] == [truth(3)[2:], truth(4)]


@every_setup
def test_the_numbers_are_right_at_each_step(setup: Geometry, counting: Path) -> None:
    """epoch, position, batches_done, tokens_done, step and len() must be right in a loop and behind it."""
    loader = make_loader(counting, setup)
    step = 0
    for epoch in range(2):
        for done, _ in enumerate(loader, 1):
            step += 1
            assert (loader.epoch, loader.position, loader.batches_done) == (epoch, done * B, done)
            assert (loader.tokens_done, loader.step, len(loader)) == (done * B * SEQ_LEN, step, LENGTH)
        assert (loader.epoch, loader.position) == (epoch, LENGTH * B)
        assert (loader.batches_done, loader.step, len(loader)) == (LENGTH, step, LENGTH)


@pytest.mark.parametrize("workers", [0, 2])
def test_len_counts_the_batches_of_this_epoch(workers: int, counting: Path) -> None:
    """In an epoch that goes on under another geometry, len() must be what was done and what is left."""
    with cluster(counting, Geometry(1, 0, 8)) as ranks:
        ranks.open()
        ranks.take(10)
        state = ranks.state()
    with cluster(counting, Geometry(3, workers, 10), state, busy=2) as ranks:
        left = (NUM_SAMPLES - 80) // 30
        assert ranks.each("len") == 10 + left
        ranks.open()
        for done in range(11, 11 + left):
            assert ranks.each("len") == 10 + left
            ranks.take(1)
            assert (ranks.each("len"), ranks.each("batches_done")) == (10 + left, done)
        halfway = ranks.state()
        assert ranks.step() is None
        assert ranks.each("len") == NUM_SAMPLES // 30
        assert len(ranks.loop()) == NUM_SAMPLES // 30
    with cluster(counting, Geometry(1, 0, 8), halfway) as ranks:
        assert ranks.each("len") == NUM_SAMPLES // 8  # of the next epoch: this one is over
        assert len(ranks.loop()) == NUM_SAMPLES // 8


def test_len_counts_what_was_skipped(counting: Path) -> None:
    """Batches that were left out belong to their epoch's length."""
    loader = make_loader(counting, SETUPS[0])
    iterator = iter(loader)
    take(iterator, 2)
    loader.skip(5)
    assert len(loader) == LENGTH
    assert len(loop(iterator)) == LENGTH - 7
    loader.skip(LENGTH + 4)
    assert (loader.epoch, len(loader)) == (2, LENGTH)


class Story:
    """A run over several geometries that notes which samples each step had, rank by rank."""

    def __init__(self, corpus: Path) -> None:
        self.corpus, self.state = corpus, None
        self.consumed: list[tuple[int, Ids]] = []
        """(B, global batch) of each step."""

    def leg(self, geometry: Geometry, count: int, skip: int = 0) -> Cluster:
        """Load, run some batches over epochs' ends, perhaps skip, save; return the cluster."""
        ranks = Cluster(self.corpus, geometry, self.state)
        ranks.open()
        self.run(ranks, count)
        if skip:
            for loader in ranks.loaders:
                loader.skip(skip)
        self.state = ranks.state()
        return ranks

    def run(self, ranks: Cluster, count: int) -> None:
        """Take batches of the running loop, and of the next ones."""
        for _ in range(count):
            batch = ranks.step()
            if batch is None:
                ranks.open()
                batch = ranks.step()
            assert batch is not None
            self.consumed.append((ranks.geometry.batch_size, batch))


def located(loader: tdstream.Loader, step: int, rank: int | None = None) -> Ids:
    """Return the samples that a loader says a step has."""
    found = loader.locate(step, rank)
    assert found.step == step
    return tuple(sample.index for sample in found.samples)


@pytest.mark.parametrize("workers", [0, 1])
def test_locate_tells_what_each_step_consumed(workers: int, counting: Path) -> None:
    """Across two changes of G, two skips and epochs' ends, locate must name the samples of each step."""
    story = Story(counting)
    story.leg(Geometry(2, 0, 6), 30, skip=3).close()
    story.leg(Geometry(3, workers, 10), 9).close()
    story.leg(Geometry(2, workers, 15), 4).close()  # the same G, dealt out to others
    story.leg(Geometry(1, workers, 7), 5, skip=2).close()
    last = story.leg(Geometry(1, workers, 7), 40)
    loader = last.loaders[0]
    ahead = [located(loader, loader.step + further) for further in range(50)]
    assert loader.step == len(story.consumed) == 88
    for step, (batch_size, consumed) in enumerate(story.consumed):
        assert located(loader, step) == consumed
        parts = [consumed[first : first + batch_size] for first in range(0, len(consumed), batch_size)]
        assert [located(loader, step, rank) for rank in range(len(parts))] == parts
    assert len({loader.locate(step).epoch for step in range(88)}) >= 3
    story.run(last, 50)
    last.close()
    assert ahead == [batch for _, batch in story.consumed[88:]]


def test_locate_tells_where_the_tokens_lie(counting: Path) -> None:
    """A sample's pieces must be the very tokens that its row had, also where it crosses a shard's border."""
    loader = make_loader(counting, SETUPS[0], shuffle=False)
    shards = {file.name: np.fromfile(file, "<u4") for file in counting.glob("*.bin")}
    crossing = 0
    for step, batch in enumerate(loader):
        rows = torch.cat([batch["input_ids"], batch["labels"][:, -1:]], dim=1)
        for row, sample in zip(rows.tolist(), loader.locate(step).samples, strict=True):
            assert sample.first_token == row[0]
            pieces = [shards[piece.shard][piece.first :][: piece.tokens] for piece in sample.pieces]
            assert np.concatenate(pieces).tolist() == row
            crossing += len(pieces) > 1
    assert crossing >= 2


def test_locate_after_a_load_and_a_choice(counting: Path) -> None:
    """Before the first batch, the steps to come must be those of the new G, and of the chosen epoch."""
    story = Story(counting)
    story.leg(Geometry(2, 0, 6), 5).close()
    loader = make_loader(counting, Geometry(1, 0, 20))
    loader.load_state_dict(story.state)
    assert located(loader, 5) == rest(20, 0, 60)[0]
    assert located(loader, 4) == rest(12, 0, 48)[0]
    loader.set_epoch(3)
    assert [located(loader, step) for step in (5, 6)] == rest(20, 3)[:2]
    assert [ids_of(batch) for batch in itertools.islice(loader, 2)] == rest(20, 3)[:2]


def test_skips_and_states_of_all_lengths_agree(counting: Path) -> None:
    """Any of (taken, skipped, taken) must end where as many single batches do."""
    for taken, skipped, more in itertools.product((0, 1, 11), (1, 12, 30), (0, 2)):
        loader = make_loader(counting, SETUPS[0])
        take(iter(loader), taken)
        loader.skip(skipped)
        take(iter(loader), more)
        epoch, done = divmod(taken + skipped + more, LENGTH)
        if more == 0 or done:
            assert (loader.epoch, loader.position) == (epoch, done * B)
        assert loader.step == taken + more
