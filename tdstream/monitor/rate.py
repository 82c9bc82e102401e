"""The recent or overall speed of a loop: tokens per second, and the share of waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tdstream.monitor.meter import DataMeter

_APART_S = 0.5
_KEPT = 64  # about half a minute, or so many long steps


class _Snapshot(NamedTuple):
    """The counters at the end of a step."""

    at_s: float
    tokens: int
    waited_s: float
    done: int


class Rate:
    """Follows a meter from step to step; `done` is the number of units done at the start."""

    def __init__(self, meter: DataMeter, done: int = 0) -> None:
        self._meter = meter
        self._first = self._last = self._take(done)
        self._kept = deque([self._first], maxlen=_KEPT)

    def _take(self, done: int) -> _Snapshot:
        meter = self._meter
        return _Snapshot(meter.clock(), meter.tokens, meter.waited_s, done)

    def step(self, done: Callable[[], int]) -> None:
        """Note the end of a step; `done` returns the units done by now and is called twice a second."""
        self._last = self._take(self._last.done)
        if self._last.at_s - self._kept[-1].at_s >= _APART_S:
            self._last = self._last._replace(done=done())
            self._kept.append(self._last)

    def finish(self, done: int) -> None:
        """From now on, report the whole time up to the last step, with so many units done."""
        self._last = self._last._replace(done=done)
        self._kept = deque([self._first])

    def rebase(self, done: int) -> None:
        """Set the units that were done at the start, which was unknown then."""
        self._first, self._last = self._first._replace(done=done), self._last._replace(done=done)
        self._kept = deque((snapshot._replace(done=done) for snapshot in self._kept), maxlen=_KEPT)

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second."""
        return self._per_second(self._last.tokens - self._kept[0].tokens)

    @property
    def units_per_s(self) -> float:
        """Units per second, up to the last time that `done` was called."""
        oldest = self._kept[0]
        newest = self._last if len(self._kept) == 1 else self._kept[-1]
        seconds = newest.at_s - oldest.at_s
        return (newest.done - oldest.done) / seconds if seconds > 0 else 0.0

    @property
    def wait_share(self) -> float | None:
        """The share of the time spent waiting for data, 0 to 1; None before the first step."""
        steps = self._last is not self._first
        return self._per_second(self._last.waited_s - self._kept[0].waited_s) if steps else None

    def _per_second(self, amount: float) -> float:
        seconds = self._last.at_s - self._kept[0].at_s
        return amount / seconds if seconds > 0 else 0.0
