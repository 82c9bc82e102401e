"""A source's stream is opened once in each process that reads, and never shared with another."""

from __future__ import annotations

import multiprocessing
import os
import pickle

import numpy as np
import pytest

from tdstream.nodes import MemmapReader, TokenStream
from tdstream.nodes.base import LazyStream


class ProcessStream(TokenStream):
    """A stream whose tokens are the process that opened it and the number of the stream in the source."""

    def __init__(self, number):
        self.tokens = np.array([os.getpid(), number], np.uint32)

    def slices(self, starts, lengths):
        """Return the two, whatever was asked for."""
        return [self.tokens for _ in starts]

    def __reduce__(self):
        raise TypeError("a connection cannot be pickled")


class Source:
    """A source that counts its streams."""

    name, what, dtype, total_tokens = "source", "it", np.dtype(np.uint32), 2

    def __init__(self):
        self.opened = 0

    def open(self):
        """Return another stream."""
        self.opened += 1
        return ProcessStream(self.opened)


def in_child(reader, connection):
    """Send what a forked process reads."""
    connection.send([reader.read(np.array([0])).tolist() for _ in range(2)])


@pytest.mark.parametrize("opened_before", [True, False])
def test_each_process_opens_its_own(opened_before):
    """The parent keeps its stream; the child opens one at its first read."""
    source = Source()
    reader = MemmapReader(source, seq_len=1)
    assert source.opened == 0
    if opened_before:
        assert [reader.read(np.array([0])).tolist() for _ in range(2)] == [[[os.getpid(), 1]]] * 2
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=in_child, args=(reader, there))
    child.start()
    assert here.recv() == [[[child.pid, 1 + opened_before]]] * 2
    child.join()
    assert reader.read(np.array([0])).tolist() == [[os.getpid(), 1]]
    assert source.opened == 1


def test_an_open_stream_is_not_pickled():
    """Its copy opens another."""
    stream = LazyStream(Source())
    assert stream.slices([0], [2])[0].tolist() == [os.getpid(), 1]
    assert pickle.loads(pickle.dumps(stream)).slices([0], [2])[0].tolist() == [os.getpid(), 2]


def test_rows_are_stacked_slices():
    """Where a stream defines slices alone; the rows are a copy."""
    stream = ProcessStream(5)
    rows = stream.rows(np.array([0, 0, 0]), 2)
    assert rows.tolist() == [[os.getpid(), 5]] * 3
    rows[:] = 0
    assert stream.rows(np.array([0]), 2).tolist() == [[os.getpid(), 5]]
