"""Splitter: hands out one stream's share, and its place can be saved and found again."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tdstream.core.errors import ConfigError, GeometryError, StateError
from tdstream.distributed.topology import Topology, Worker
from tdstream.nodes.base import PlanByReading
from tdstream.nodes.splitter import Splitter


class Shifted(PlanByReading):
    """Stands for an ordered node of n samples: in epoch e, position p is index p + 100 e."""

    name = "shifted"

    def __init__(self, count):
        self.count = count
        self.reads = []
        self.fail = False

    def __len__(self):
        return self.count

    def num_samples(self, epoch):
        return self.count

    def fills_from(self, epoch):
        return 0

    def next_change(self, epoch):
        return None

    def indices(self, positions, epoch):
        return positions + 100 * epoch

    def read(self, indices):
        if self.fail:
            raise OSError("the disk has a bad day")
        self.reads.append(indices.tolist())
        return indices[:, None].astype(np.uint32)


def make(count=20, *, rank=0, world=1, **options):
    """Return a splitter over `count` samples."""
    return Splitter(Shifted(count), topology=Topology(rank, world), **options)


def take(splitter):
    """Return the indices of the next item, and go on."""
    indices = splitter.read()[:, 0].tolist()
    splitter.advance()
    return indices


def drain(splitter):
    """Return the indices of all remaining items."""
    items = []
    while not splitter.exhausted:
        items.append(take(splitter))
    return items


def worker(number, count):
    """Return a loader's worker."""
    return Worker(number, count, True)


def test_a_worker_builds_every_other_batch():
    """Of rank 0 of 2 with batches of 2: global batches are 4 wide, and workers take turns."""
    splitter = make(20, world=2, batch_size=2)
    assert len(splitter) == 5
    assert drain(splitter.begin(0, worker(0, 2))) == [[0, 1], [8, 9], [16, 17]]
    assert drain(splitter.begin(0, worker(1, 2))) == [[4, 5], [12, 13]]


def test_the_second_rank_has_the_second_part():
    """Of each global batch."""
    assert drain(make(12, rank=1, world=2, batch_size=3).begin(0, worker(0, 1))) == [[3, 4, 5], [9, 10, 11]]


def test_the_incomplete_global_batch_is_left_out():
    """By default; with wrap it is filled from the epoch's beginning."""
    assert drain(make(7, batch_size=3).begin(0, worker(0, 1))) == [[0, 1, 2], [3, 4, 5]]
    assert drain(make(7, batch_size=3, tail="wrap").begin(0, worker(0, 1)))[-1] == [6, 0, 1]
    assert len(make(7, batch_size=3, tail="wrap")) == 3


def test_samples_are_dealt_in_turn():
    """Stream s of S takes s, s + S, ...; the last incomplete round is left out, so ranks stay equal."""
    splitter = make(10, rank=1, world=2)
    assert drain(splitter.begin(0, worker(0, 2))) == [[2], [6]]
    assert drain(splitter.begin(0, worker(1, 2))) == [[3], [7]]


def test_one_rank_leaves_no_sample_out():
    """There is nobody to stay equal with."""
    assert [drain(make(7).begin(0, worker(w, 3))) for w in range(3)] == [
        [[0], [3], [6]],
        [[1], [4]],
        [[2], [5]],
    ]


def test_keep_deals_everything():
    """The reference loader's rule: ranks may differ by a sample."""
    assert drain(make(5, rank=0, world=2, tail="keep").begin(0, worker(0, 1))) == [[0], [2], [4]]


def test_skipped_samples_are_left_out_of_every_epoch():
    """And dealing begins behind them."""
    splitter = make(9, skip=4, tail="keep")
    assert drain(splitter.begin(1, worker(0, 2))) == [[104], [106], [108]]


def test_only_what_is_handed_out_is_read():
    """Nothing is read and thrown away, and each batch is one call."""
    splitter = make(20, world=2, batch_size=2).begin(0, worker(1, 2))
    drain(splitter)
    assert splitter.upstream.reads == [[4, 5], [12, 13]]


def test_planning_ahead_is_invisible(monkeypatch):
    """However many positions are computed at once, the items are the same."""
    expected = drain(make(1000, batch_size=3).begin(0, worker(0, 2)))
    monkeypatch.setattr("tdstream.nodes.splitter._PLANNED_SAMPLES", 7)
    assert drain(make(1000, batch_size=3).begin(0, worker(0, 2))) == expected


def test_the_end_stays_the_end():
    """Asking again raises again."""
    splitter = make(4, batch_size=2).begin(0, worker(0, 1))
    drain(splitter)
    for _ in range(2):
        with pytest.raises(StopIteration):
            splitter.read()


@pytest.mark.parametrize("options", [{"batch_size": 2}, {}])
def test_a_saved_place_is_found_again(options):
    """Cut at every step: what was handed out before and after is the whole, once."""
    whole = drain(make(20, **options).begin(3, worker(1, 2)))
    for cut in range(len(whole) + 1):
        first = make(20, **options).begin(3, worker(1, 2))
        before = [take(first) for _ in range(cut)]
        state = json.loads(json.dumps(first.state_dict()))
        second = make(20, **options).begin(0, worker(1, 2))
        second.load_state_dict(state)
        assert second.epoch == 3
        assert before + drain(second) == whole


def test_a_failed_read_is_tried_again():
    """The cursor moves when an item has been read, not before."""
    splitter = make(8, batch_size=2).begin(0, worker(0, 1))
    take(splitter)
    splitter.upstream.fail = True
    with pytest.raises(OSError, match="bad day"):
        take(splitter)
    splitter.upstream.fail = False
    assert take(splitter) == [2, 3]


def test_the_node_itself_stays_at_the_start():
    """Each pass has its own cursor."""
    splitter = make(8, batch_size=2)
    drain(splitter.begin(0, worker(0, 1)))
    assert splitter.state_dict()["step"] == 0


@pytest.mark.parametrize(
    ("saved", "field"),
    [
        ({"batch_size": 4}, "batch_size was 4, is 2"),
        ({"dp_world_size": 3}, "dp_world_size was 3, is 1"),
        ({"num_workers": 5}, "num_workers was 5, is 2"),
        ({"tail": "wrap"}, "tail was 'wrap', is 'drop'"),
    ],
)
def test_another_geometry_is_refused(saved, field):
    """With both numbers; the cursor stays."""
    splitter = make(20, batch_size=2).begin(1, worker(0, 2))
    with pytest.raises(GeometryError, match=f"splitter.{field}"):
        splitter.load_state_dict({**splitter.state_dict(), "epoch": 7, "step": 2, **saved})
    assert (splitter.state_dict()["epoch"], splitter.state_dict()["step"]) == (1, 0)


@pytest.mark.parametrize("place", [{"step": -1}, {"epoch": None}, {"start": "3"}])
def test_a_place_that_is_none_is_refused(place):
    """A damaged state does not become a wrong position."""
    splitter = make(20, batch_size=2).begin(0, worker(0, 1))
    with pytest.raises(StateError, match="it was cut or changed"):
        splitter.load_state_dict({**splitter.state_dict(), **place})


def test_bad_settings_are_refused():
    """Each with what was given."""
    with pytest.raises(ConfigError, match="batch_size must be an integer of at least 1, got 0"):
        make(batch_size=0)
    with pytest.raises(ConfigError, match=r"tail must be one of .*'wrap'.* got 'fill'"):
        make(batch_size=2, tail="fill")
    with pytest.raises(ConfigError, match=r"tail must be one of .*'keep'.* got 'wrap'"):
        make(tail="wrap")
    with pytest.raises(ConfigError, match="skip must be an integer of at least 0, got -3"):
        make(tail="keep", skip=-3)


def test_too_few_samples_are_refused():
    """For one global batch, for the ranks, and, where workers are known, for all streams."""
    with pytest.raises(GeometryError, match="an epoch has 5 samples, fewer than the 6 of one global batch"):
        make(5, world=2, batch_size=3)
    with pytest.raises(
        GeometryError, match="an epoch has 2 samples, fewer than the 3 of one for each stream"
    ):
        make(2, world=3)
    with pytest.raises(
        GeometryError, match="an epoch has 3 samples, fewer than the 4 of one for each stream"
    ):
        make(3, world=2).begin(0, worker(0, 2))


def test_without_strict_streams_may_be_empty():
    """Those that have something hand it out."""
    splitters = [make(3, rank=rank, world=2, strict=False) for rank in range(2)]
    streams = [drain(splitter.begin(0, worker(w, 2))) for splitter in splitters for w in range(2)]
    assert streams == [[[0]], [[1]], [[2]], []]
    assert drain(make(3, batch_size=4, strict=False).begin(0, worker(0, 1))) == []
