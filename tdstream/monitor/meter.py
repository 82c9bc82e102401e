"""Measure who waits for whom: the trainer for data, or the data for the trainer."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from torch import Tensor

from tdstream.monitor.meter_report import Feeding, MeterReport
from tdstream.pipelines.pipeline import Pipeline

_SHORTEST_S = 1e-7
_LONGEST_S = 1e5
_RATIO = 1.02
_LOG_RATIO = math.log(_RATIO)
_BINS = math.ceil(math.log(_LONGEST_S / _SHORTEST_S) / _LOG_RATIO) + 1


class Quantiles:
    """Counts durations in bins of 2 %: a quantile is off by 1 % at most, however many were added.

    What is shorter than 0.1 microseconds counts as nothing, what is longer than 28 hours as 28 hours.
    """

    def __init__(self) -> None:
        self._bins = [0] * _BINS  # bin b: above SHORTEST * RATIO^(b - 1), up to SHORTEST * RATIO^b
        self._count = 0

    def __len__(self) -> int:
        """Durations added."""
        return self._count

    def add(self, seconds: float) -> None:
        """Count a duration."""
        last = _BINS - 1
        place = 0 if seconds <= _SHORTEST_S else math.ceil(math.log(seconds / _SHORTEST_S) / _LOG_RATIO)
        self._bins[min(place, last)] += 1
        self._count += 1

    def at(self, share: float) -> float:
        """Return the shortest duration that at least this share of all does not exceed, in seconds.

        Args:
            share: Above 0, up to 1: 0.5 for the median. Without any duration the answer is 0.
        """
        wanted = math.ceil(share * self._count)
        below = 0
        for place, count in enumerate(self._bins):
            below += count
            if count and below >= wanted:
                return 0.0 if place == 0 else _SHORTEST_S * _RATIO ** (place - 0.5)
        return 0.0


def tokens_in(batch: Any) -> int:
    """Return the tokens of a batch; 0 where nothing in it looks like tokens.

    Args:
        batch: A mapping: the ones in `attention_mask` count, so padding does not; without a mask every
            element of `labels`, else of `input_ids`. Or a tensor of integers, or a sequence that begins with
            one: its elements. A mask on a GPU counts with its padding: to read it would stop the GPU.
    """
    if isinstance(batch, Mapping):
        mask = batch.get("attention_mask")
        if isinstance(mask, Tensor):
            return int(mask.count_nonzero()) if mask.device.type == "cpu" else mask.numel()
        named = (batch.get(name) for name in ("labels", "input_ids"))
        return next((rows.numel() for rows in named if isinstance(rows, Tensor)), 0)
    if isinstance(batch, (list, tuple)) and batch:
        batch = batch[0]
    return batch.numel() if isinstance(batch, Tensor) and not batch.is_floating_point() else 0


def bytes_in(batch: Any) -> int:
    """Return the bytes of all tensors of a batch: a mapping or a sequence of tensors, or a tensor."""
    if isinstance(batch, Tensor):
        return batch.numel() * batch.element_size()
    parts: Iterable[Any] = ()
    if isinstance(batch, Mapping):
        parts = batch.values()
    elif isinstance(batch, (list, tuple)):
        parts = batch
    return sum(bytes_in(part) for part in parts)


_Item = TypeVar("_Item")

_STARVED = 0.05  # of a step's time


class DataMeter:
    """Measures how long each step waits for its batch, in memory that does not grow with the steps.

    Loop over `meter.watch(loader)` instead of `loader`, or hand the meter to `tdstream.progress(loader,
    meter=meter)`; one meter may watch any number of passes, one after another. Then `meter.report()`.

    A step is from asking for a batch to asking for the next one; its wait is the time until the batch is
    there. Time is taken on the host: where a GPU still computes while the loop already asks for the next
    batch, waits are those of the loop, and the GPU lost no more than that.

    Args:
        clock: Returns seconds; it never goes back.
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.tokens = 0
        """Tokens of all batches so far."""
        self.waited_s = 0.0
        """Time spent waiting, first steps and ends of passes included."""
        self._waits = Quantiles()
        self._seconds = self._wait_s = self._start_up_s = 0.0
        self._starved = self._tokens = self._bytes = 0
        self._feeding = Feeding()

    def watch(self, loader: Iterable[_Item]) -> Iterator[_Item]:
        """Yield a loader's batches, and measure: one pass.

        Args:
            loader: Anything that yields batches; `tdstream.monitor.meter` says what tokens and bytes they
                hold.
        """
        self._feeding = _feeding(loader)
        begun = asked = self.clock()
        batches, first = iter(loader), True
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                self._edge(self.clock() - asked, waited=True)
                return
            given = self.clock()
            self.waited_s += given - asked
            tokens, size = tokens_in(batch), bytes_in(batch)  # now: the loop may take the batch apart
            self.tokens += tokens
            try:
                yield batch
            finally:  # a loop that is left has done its last step, too
                over = self.clock()
                if first:
                    self._edge(over - begun, waited=False)
                else:
                    self._step(given - asked, over - begun, tokens, size)
            begun, first = over, False
            asked = self.clock()  # what the meter itself has just done is no wait for data

    def report(self) -> MeterReport:
        """Return what was measured so far."""
        seconds = self._seconds
        return MeterReport(
            steps=len(self._waits),
            seconds=seconds,
            wait_s=self._wait_s,
            start_up_s=self._start_up_s,
            wait_p50_s=self._waits.at(0.5),
            wait_p99_s=self._waits.at(0.99),
            starved=self._starved / len(self._waits) if len(self._waits) else 0.0,
            tokens_per_s=self._tokens / seconds if seconds else 0.0,
            bytes_per_s=self._bytes / seconds if seconds else 0.0,
            feeding=self._feeding,
        )

    def _step(self, wait_s: float, step_s: float, tokens: int, size: int) -> None:
        self._waits.add(wait_s)
        self._wait_s += wait_s
        self._seconds += step_s
        self._starved += wait_s > _STARVED * step_s
        self._tokens += tokens
        self._bytes += size

    def _edge(self, seconds: float, *, waited: bool) -> None:
        """Note the first step of a pass, or the wait for its end."""
        self._start_up_s += seconds
        if waited:
            self.waited_s += seconds


def _feeding(loader: Any) -> Feeding:
    workers = getattr(loader, "num_workers", None)
    return Feeding(
        num_workers=workers if isinstance(workers, int) else None,
        cores=_cores(),
        tokenized=isinstance(getattr(loader, "dataset", loader), Pipeline),
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
