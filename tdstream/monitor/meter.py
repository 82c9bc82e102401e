"""Measurement of who waits for whom: the trainer for data, or the data for the trainer."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from torch import Tensor

from tdstream.monitor.meter_report import LoaderSetup, MeterReport
from tdstream.pipelines.pipeline import Pipeline

_Item = TypeVar("_Item")

_STARVED = 0.05  # of a step's time


class DataMeter:
    """Measures how long each step waits for its batch, in memory that does not grow with the steps.

    Loop over `meter.watch(loader)` instead of `loader`, or pass the meter to `tdstream.progress(loader,
    meter=meter)`; then call `meter.report()`. One meter may watch several passes, one after another.

    A step lasts from one request for a batch to the next; its wait is the time until the batch arrives.
    Time is measured on the host: if a GPU still computes while the loop requests the next batch, the GPU
    loses no more than the wait of the loop.

    Args:
        clock: Returns seconds and never goes back.
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.tokens = 0
        """Tokens of all batches so far."""
        self.waited_s = 0.0
        """Time spent waiting, including first steps and ends of passes."""
        self._waits = Quantiles()
        self._seconds = self._wait_s = self._start_up_s = 0.0
        self._starved = self._tokens = self._bytes = 0
        self._setup = LoaderSetup()

    def watch(self, loader: Iterable[_Item]) -> Iterator[_Item]:
        """Yield the batches of one pass over a loader, and measure.

        Args:
            loader: Anything that yields batches; see `count_tokens` and `count_bytes` for what is counted.
        """
        self._setup = _inspect(loader)
        step_start = asked = self.clock()
        batches, first = iter(loader), True
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                waited = self.clock() - asked
                self._start_up_s += waited
                self.waited_s += waited
                return
            received = self.clock()
            self.waited_s += received - asked
            tokens, size = count_tokens(batch), count_bytes(batch)  # now: the loop may change the batch
            self.tokens += tokens
            try:
                yield batch
            finally:  # also if the loop breaks in this step
                end = self.clock()
                if first:
                    self._start_up_s += end - step_start
                else:
                    self._add_step(received - asked, end - step_start, tokens, size)
            step_start, first = end, False
            asked = self.clock()  # excludes the meter's own work from the wait

    def _add_step(self, wait_s: float, step_s: float, tokens: int, size: int) -> None:
        self._waits.add(wait_s)
        self._wait_s += wait_s
        self._seconds += step_s
        self._starved += wait_s > _STARVED * step_s
        self._tokens += tokens
        self._bytes += size

    def report(self) -> MeterReport:
        """Return what was measured so far."""
        seconds = self._seconds
        return MeterReport(
            steps=len(self._waits),
            seconds=seconds,
            wait_s=self._wait_s,
            start_up_s=self._start_up_s,
            wait_p50_s=self._waits.quantile(0.5),
            wait_p99_s=self._waits.quantile(0.99),
            starved=self._starved / len(self._waits) if len(self._waits) else 0.0,
            tokens_per_s=self._tokens / seconds if seconds else 0.0,
            bytes_per_s=self._bytes / seconds if seconds else 0.0,
            feeding=self._setup,
        )


def _inspect(loader: Any) -> LoaderSetup:
    workers = getattr(loader, "num_workers", None)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return LoaderSetup(
        num_workers=workers if isinstance(workers, int) else None,
        cores=cores,
        tokenized=isinstance(getattr(loader, "dataset", loader), Pipeline),
    )


def count_tokens(batch: Any) -> int:
    """Return the tokens of a batch; 0 if nothing in it looks like tokens.

    Of a mapping, count the ones in `attention_mask`, so padding does not count, else the elements of `labels`
    or `input_ids`. Of a sequence, count its first item; of an integer tensor, its elements. A mask on a GPU
    counts with its padding, since reading it would stall the GPU.
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


def count_bytes(batch: Any) -> int:
    """Return the bytes of all tensors of a batch: a tensor, or a mapping or sequence of batches."""
    if isinstance(batch, Tensor):
        return batch.numel() * batch.element_size()
    parts: Iterable[Any] = ()
    if isinstance(batch, Mapping):
        parts = batch.values()
    elif isinstance(batch, (list, tuple)):
        parts = batch
    return sum(count_bytes(part) for part in parts)


_SHORTEST_S = 1e-7
_LONGEST_S = 1e5
_RATIO = 1.02
_LOG_RATIO = math.log(_RATIO)
_BINS = math.ceil(math.log(_LONGEST_S / _SHORTEST_S) / _LOG_RATIO) + 1


class Quantiles:
    """Quantiles of durations, within 1 % however many are added: they are counted in bins of 2 %.

    Durations below 0.1 microseconds count as 0, those above 28 hours as 28 hours.
    """

    def __init__(self) -> None:
        self._bins = [0] * _BINS  # bin b: above SHORTEST * RATIO^(b - 1), up to SHORTEST * RATIO^b
        self._count = 0

    def __len__(self) -> int:
        """Durations added."""
        return self._count

    def add(self, seconds: float) -> None:
        """Count a duration."""
        number = 0 if seconds <= _SHORTEST_S else math.ceil(math.log(seconds / _SHORTEST_S) / _LOG_RATIO)
        self._bins[min(number, _BINS - 1)] += 1
        self._count += 1

    def quantile(self, share: float) -> float:
        """Return the shortest duration that this share, 0.5 for the median, does not exceed; 0 of none."""
        wanted = math.ceil(share * self._count)
        below = 0
        for number, count in enumerate(self._bins):
            below += count
            if count and below >= wanted:
                return 0.0 if number == 0 else _SHORTEST_S * _RATIO ** (number - 0.5)
        return 0.0
