"""A thread reads ahead, in order, and never takes what nobody asked it to."""

from __future__ import annotations

import gc
import itertools
import threading
import time
import weakref

import pytest

from tdstream.core.read_ahead import ReadAhead


class Counter:
    """A source of 0, 1, 2, ... that knows how much was taken, and by whom."""

    def __init__(self, count):
        self.count, self.taken, self.threads = count, 0, set()

    def __iter__(self):
        return self

    def __next__(self):
        self.threads.add(threading.current_thread().name)
        if self.taken == self.count:
            raise StopIteration
        self.taken += 1
        return self.taken - 1


def wait_until(condition) -> None:
    """Wait, up to five seconds, for another thread."""
    deadline = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def test_items_arrive_in_order():
    """Read in the thread, received in the caller's."""
    source = Counter(5)
    assert list(ReadAhead(source, 2)) == list(range(5))
    assert source.threads == {"tdstream-ahead"}


def test_the_end_stays_the_end():
    """Asking again raises again."""
    ahead = ReadAhead(Counter(0), 1)
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(ahead)
    ahead.close()
    assert list(ahead) == []


def test_it_runs_ahead_but_not_away():
    """As many as asked for lie ready, one more is in the thread's hands, and no more are taken."""
    source = Counter(100)
    ahead = ReadAhead(source, 3)
    wait_until(lambda: source.taken == 4)
    time.sleep(0.1)
    assert source.taken == 4
    ahead.close()


def test_an_error_reaches_the_caller():
    """After the items before it, as the same exception."""

    def failing():
        yield 1
        raise OSError("the disk has a bad day")

    ahead = ReadAhead(failing(), 4)
    assert next(ahead) == 1
    for _ in range(2):
        with pytest.raises(OSError, match="bad day"):
            next(ahead)


def test_closing_ends_the_thread():
    """At once, also where it waits for room; afterwards nothing is taken any more."""
    source = Counter(100)
    ahead = ReadAhead(source, 1)
    wait_until(lambda: source.taken == 2)
    ahead.close()
    taken = source.taken
    time.sleep(0.1)
    assert source.taken == taken
    assert not any(thread.name == "tdstream-ahead" for thread in threading.enumerate())


def test_a_forgotten_iterator_ends_its_thread():
    """A loop that was left leaves no thread behind."""
    ahead = ReadAhead(Counter(100), 1)
    next(ahead)
    del ahead
    gc.collect()
    wait_until(lambda: not any(thread.name == "tdstream-ahead" for thread in threading.enumerate()))


def test_it_keeps_nothing():
    """What was taken is not held any more, behind a stage either, while the next one is made."""

    class Large:
        """Something that one can refer to weakly."""

    made = []
    wanted = threading.Event()

    def make(number):
        if number == 2:
            assert wanted.wait(60)
        large = Large()
        made.append(weakref.ref(large))
        return large

    ahead = ReadAhead(map(id, ReadAhead(map(make, range(3)))))
    next(ahead), next(ahead)
    deadline = time.monotonic() + 60
    while any(large() is not None for large in made) and time.monotonic() < deadline:
        time.sleep(0.01)
    kept = [large() for large in made]
    wanted.set()
    ahead.close()
    assert kept == [None, None]


def test_closing_reaches_the_source():
    """Closing stops the thread and closes what it reads, wherever they are."""
    closed = threading.Event()

    def endless():
        try:
            yield from itertools.count()
        finally:
            closed.set()

    before = threading.active_count()
    inner = ReadAhead(endless())
    outer = ReadAhead(iter(inner))
    next(outer)
    inner.close()
    outer.close()
    assert closed.is_set()
    assert threading.active_count() == before
