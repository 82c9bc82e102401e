"""How fast a loop goes, of late or from its beginning: tokens per second, and the share of waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tdstream.monitor.meter import DataMeter

_APART_S = 0.5
_MARKS = 64


class _Mark(NamedTuple):
    """The counters at the end of a step."""

    at_s: float
    tokens: int
    waited_s: float
    done: int


class Pace:
    """Follows a meter from step to step.

    Args:
        meter: What is followed.
        done: Units done at the beginning.
    """

    def __init__(self, meter: DataMeter, done: int = 0) -> None:
        self._meter = meter
        self._first = self._last = self._mark(done)
        self._marks = deque([self._first], maxlen=_MARKS)  # so many steps, or half a minute if they are short

    def step(self, done: Callable[[], int]) -> None:
        """Note the end of a step.

        Args:
            done: Returns the units that are done by now; called about twice a second.
        """
        self._last = self._mark(self._last.done)
        if self._last.at_s - self._marks[-1].at_s >= _APART_S:
            self._last = self._last._replace(done=done())
            self._marks.append(self._last)

    def finish(self, done: int) -> None:
        """From now on, say what was from the beginning to the last step's end, with so many units done."""
        self._last = self._last._replace(done=done)
        self._marks = deque([self._first])

    def rebase(self, done: int) -> None:
        """Take so many units for what was done at the beginning, which was not known then."""
        self._first, self._last = self._first._replace(done=done), self._last._replace(done=done)
        self._marks = deque((mark._replace(done=done) for mark in self._marks), maxlen=_MARKS)

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second."""
        return self._per_second(self._last.tokens - self._since.tokens)

    @property
    def units_per_s(self) -> float:
        """Units per second, up to the newest time that they were asked for."""
        newest = self._last if len(self._marks) == 1 else self._marks[-1]
        seconds = newest.at_s - self._since.at_s
        return (newest.done - self._since.done) / seconds if seconds > 0 else 0.0

    @property
    def wait_share(self) -> float | None:
        """The share of the time spent waiting for data, 0 to 1; None before the first step."""
        steps = self._last is not self._first
        return self._per_second(self._last.waited_s - self._since.waited_s) if steps else None

    @property
    def _since(self) -> _Mark:
        """The oldest mark."""
        return self._marks[0]

    def _per_second(self, amount: float) -> float:
        seconds = self._last.at_s - self._since.at_s
        return amount / seconds if seconds > 0 else 0.0

    def _mark(self, done: int) -> _Mark:
        meter = self._meter
        return _Mark(meter.clock(), meter.tokens, meter.waited_s, done)
