"""Read plans: what is worked out for many items at once is what each item alone would give."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from helpers_documents import write_indexed
from tdstream.distributed.topology import resolve_topology
from tdstream.nodes.base import PlanByReading, ReadByPlanning, TokenArray
from tdstream.nodes.epoch_permutation import EpochPermutation
from tdstream.nodes.rows import EndsPlan, RowEnds
from tdstream.nodes.splitter import Splitter
from tdstream.pipelines.compose import compose_corpus
from tdstream.schedule.windows import SampleSpec

COUNTS, PLACES = np.array([1, 1, 0, 2, 1]), np.array([2, 4, 1, 3, 4])


class Squares(PlanByReading):
    """A node that defines `read` alone."""

    def read(self, indices):
        """Return squares."""
        return indices**2


class PlannedSquares(ReadByPlanning):
    """A node that defines `plan` alone."""

    def plan(self, indices, bounds):
        """Return the plan of another node."""
        return Squares().plan(indices, bounds)


@pytest.mark.parametrize("node", [Squares(), PlannedSquares()])
def test_a_node_defines_read_or_plan(node):
    """The other one is made of it; items need not be of one size."""
    assert node.read(np.array([3, 1])).tolist() == [9, 1]
    plan = node.plan(np.array([3, 1, 2]), [0, 1, 3])
    assert [plan.read(item).tolist() for item in (1, 0, 0)] == [[1, 4], [9], [9]]


def test_items_of_ends_have_their_segments():
    """As if each item of rows of 4 tokens had been looked at alone; the last one is smaller."""
    plan = EndsPlan(RowEnds(COUNTS, PLACES), 4, [0, 2, 4, 5])
    parts = [plan.read(item) for item in range(3)]
    assert [(part.counts.tolist(), part.places.tolist()) for part in parts] == [
        ([1, 1], [2, 4]),
        ([0, 2], [1, 3]),
        ([1], [4]),
    ]
    assert all(part.known is not None for part in parts)
    found = [part.segments(4) for part in parts]
    assert [segments.borders.tolist() for segments in found] == [[0, 2, 4, 8], [0, 4, 5, 7, 8], [0, 4]]
    assert [segments.starts.tolist() for segments in found] == [[0, 2, 4], [0, 4, 5, 7], [0]]
    assert [segments.lengths.tolist() for segments in found] == [[2, 2, 4], [4, 1, 2, 1], [4]]
    assert [segments.numbers.tolist() for segments in found] == [[0, 1, 0], [0, 0, 1, 2], [0]]
    assert [segments.lasts.tolist() for segments in found] == [[1, 7], [4, 6], [3]]
    assert [segments.longest for segments in found] == [4, 4, 4]


@pytest.mark.parametrize("bounds", [[0, 5], [0, 1, 5], [0, 3, 4, 5], [0, 2, 5]])
def test_segments_do_not_depend_on_how_rows_are_grouped(bounds):
    """Each item's, worked out with the others, are those of its rows alone."""
    plan = EndsPlan(RowEnds(COUNTS, PLACES), 4, bounds)
    for item in range(len(bounds) - 1):
        part = plan.read(item)
        alone = RowEnds(part.counts, part.places).segments(4)
        for found, expected in zip(part.segments(4), alone, strict=True):
            assert np.asarray(found).tolist() == np.asarray(expected).tolist()
        rows = np.repeat(np.arange(len(part.counts)), part.counts)
        inside = {*range(0, 4 * len(part.counts) + 1, 4), *(rows * 4 + part.places).tolist()}
        assert part.segments(4).borders.tolist() == sorted(inside)


def test_rows_without_an_end_are_a_segment_each():
    """Where no document ends at all."""
    segments = RowEnds(np.zeros(2, np.int64), np.empty(0, np.int64)).segments(4)
    assert (segments.borders.tolist(), segments.lasts.tolist()) == ([0, 4, 8], [])


def test_tokens_in_memory_are_a_stream():
    """Read in rows of one length, and in slices of their own."""
    stream = TokenArray(np.arange(10, dtype="<u2"))
    assert stream.rows(np.array([7, 0]), 3).tolist() == [[7, 8, 9], [0, 1, 2]]
    assert [part.tolist() for part in stream.slices([8, 1], [2, 1])] == [[8, 9], [1]]


def test_a_plan_stays_where_it_is(tmp_path, monkeypatch):
    """A splitter that has planned far ahead is pickled without its plan, and continues all the same."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    corpus = write_indexed(tmp_path / "corpus", list(range(3, 3000, 3)), 3000)
    *_, ordered = compose_corpus(corpus, SampleSpec(seq_len=4, cut="pack", documents=True))
    assert isinstance(ordered, EpochPermutation)
    splitter = Splitter(ordered, topology=resolve_topology(0, 1), batch_size=2)
    splitter.read()
    splitter.advance()
    sent = pickle.dumps(splitter)
    assert len(sent) < 4_000
    assert pickle.loads(sent).read().tokens.tolist() == splitter.read().tokens.tolist()
