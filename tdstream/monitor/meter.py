"""Measurement of who waits for whom: the trainer for data, or the data for the trainer."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

from tdstream.core.words import count_of
from tdstream.pipelines.pipeline import Pipeline

_Item = TypeVar("_Item")

_STARVED = 0.05  # of a step's time
_UNNOTICED = 0.02  # share of the time; within the noise between two runs
_BOTTLENECK = 0.10
_SHORT_STEP_S = 0.01
_PLENTY = 1e7  # tokens/s that no training of a language model uses on one rank
_BLOCKED = 0.5  # reads wait for storage if the processor is idle for so much of the wait
_BURST = 10  # waits come in bursts if their 99 % quantile exceeds the median this many times


class DataMeter:
    """Measures how long each step waits for its batch, in constant memory.

    Loop over `meter.watch(loader)` instead of `loader`, or pass the meter to `tdstream.progress(loader,
    meter=meter)`; then call `meter.report()`. One meter may watch several passes, one after another.

    A step lasts from one request for a batch to the next; its wait is the time until the batch arrives.
    Time is measured on the host: if a GPU is still computing when the loop requests the next batch, the GPU
    loses at most the wait of the loop.

    Args:
        clock: Returns seconds; never runs backwards.
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.tokens = 0
        """Tokens of all batches so far."""
        self.waited_s = 0.0
        """Time spent waiting, including first steps and ends of passes."""
        self._waits = Quantiles()
        self._seconds = self._wait_s = self._start_up_s = self._idle_s = 0.0
        self._starved = self._tokens = self._bytes = 0
        self._setup = LoaderSetup()

    def watch(self, loader: Iterable[_Item]) -> Iterator[_Item]:
        """Yield the batches of one pass over a loader, measuring each step.

        Args:
            loader: Any iterable of batches; `count_tokens` and `count_bytes` define what is counted.
        """
        workers = getattr(loader, "num_workers", None)
        self._setup = LoaderSetup(
            num_workers=workers if isinstance(workers, int) else None,
            cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            tokenized=isinstance(getattr(loader, "dataset", loader), Pipeline),
        )
        step_start = asked = self.clock()
        worked = time.process_time()
        batches, first = iter(loader), True
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                waited = self.clock() - asked
                self._start_up_s += waited
                self.waited_s += waited
                return
            received, computed = self.clock(), time.process_time() - worked
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
                    self._idle_s += max(received - asked - computed, 0.0)
            step_start, first = end, False
            worked = time.process_time()
            asked = self.clock()  # excludes the meter's own work from the wait

    def _add_step(self, wait_s: float, step_s: float, tokens: int, size: int) -> None:
        self._waits.add(wait_s)
        self._wait_s += wait_s
        self._seconds += step_s
        self._starved += wait_s > _STARVED * step_s
        self._tokens += tokens
        self._bytes += size

    def report(self) -> MeterReport:
        """Return the measurements so far."""
        steps, seconds = len(self._waits), self._seconds
        return MeterReport(
            steps=steps,
            seconds=seconds,
            wait_s=self._wait_s,
            start_up_s=self._start_up_s,
            wait_p50_s=self._waits.quantile(0.5),
            wait_p99_s=self._waits.quantile(0.99),
            starved=self._starved / steps if steps else 0.0,
            tokens_per_s=self._tokens / seconds if seconds else 0.0,
            bytes_per_s=self._bytes / seconds if seconds else 0.0,
            feeding=self._setup,
            idle_s=self._idle_s,
        )


def count_tokens(batch: Any) -> int:
    """Return the number of tokens in a batch; 0 if nothing in it looks like tokens.

    In a mapping: the ones in `attention_mask`, else the elements of `labels` or `input_ids`. In a sequence:
    the tokens of its first item. In an integer tensor: its elements. A mask on a GPU counts with its padding,
    because reading it would stall the GPU.
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
    """Return the bytes of all tensors in a batch: a tensor, or a mapping or sequence of batches."""
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
    """Quantiles of any number of durations, within 1 %: durations are counted in bins 2 % wide.

    Durations below 0.1 microseconds count as 0, those above 28 hours as 28 hours.
    """

    def __init__(self) -> None:
        self._bins = [0] * _BINS  # bin b: above SHORTEST * RATIO^(b - 1), up to SHORTEST * RATIO^b
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, seconds: float) -> None:
        """Count a duration."""
        number = 0 if seconds <= _SHORTEST_S else math.ceil(math.log(seconds / _SHORTEST_S) / _LOG_RATIO)
        self._bins[min(number, _BINS - 1)] += 1
        self._count += 1

    def quantile(self, share: float) -> float:
        """Return the duration that a share (0.5: the median) does not exceed; 0 if there are none."""
        wanted = math.ceil(share * self._count)
        below = 0
        for number, count in enumerate(self._bins):
            below += count
            if count and below >= wanted:
                return 0.0 if number == 0 else _SHORTEST_S * _RATIO ** (number - 0.5)
        return 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class LoaderSetup:
    """The settings of a loader that advice depends on."""

    num_workers: int | None = None
    """Worker processes; None if unknown."""
    cores: int = 1
    """CPU cores that this process may use."""
    tokenized: bool = False
    """Whether the loader reads tokens, not text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeterReport:
    """The measurements of a DataMeter on this rank; the first step of each pass counts as start-up only."""

    steps: int
    """Steps measured."""
    seconds: float
    """Their wall time: waiting for data, and everything the loop did with it."""
    wait_s: float
    """The part of `seconds` spent waiting for data."""
    start_up_s: float
    """Not in `seconds`: first steps (workers start, models compile) and the waits for the end of a pass."""
    wait_p50_s: float
    """The median wait of a step, within 1 %."""
    wait_p99_s: float
    """The wait that 99 % of the steps did not exceed, within 1 %."""
    starved: float
    """The share of steps that waited for more than 5 % of their time."""
    tokens_per_s: float
    """Tokens that this rank received, per second of `seconds`."""
    bytes_per_s: float
    """Bytes of the batches' tensors, per second of `seconds`."""
    feeding: LoaderSetup
    """The loader's settings."""
    idle_s: float | None = None
    """The part of `wait_s` in which this process did not compute; None if that was not measured."""

    @property
    def wait_mean_s(self) -> float:
        """The mean wait of a step."""
        return self.wait_s / self.steps if self.steps else 0.0

    @property
    def wait_share(self) -> float:
        """The share of the wall time spent waiting."""
        return self.wait_s / self.seconds if self.seconds else 0.0

    @property
    def compute_mean_s(self) -> float:
        """The mean time of a step without its wait."""
        return (self.seconds - self.wait_s) / self.steps if self.steps else 0.0

    @property
    def verdict(self) -> str:
        """Whether the loader is the bottleneck, how much time is lost, and what to change."""
        if not self.steps:
            return "Nothing was measured: that needs a pass of at least two steps."
        return _describe_steps(self) + _describe_start_up(self)

    def __str__(self) -> str:
        return (
            f"{self.steps:,} steps: wait {_ms(self.wait_mean_s)} on average, {_ms(self.wait_p50_s)} at p50, "
            f"{_ms(self.wait_p99_s)} at p99; {100 * self.starved:.0f} % of the steps starved; "
            f"{self.tokens_per_s:,.0f} tokens/s, {self.bytes_per_s / 1e6:,.2f} MB/s. {self.verdict}"
        )


def _describe_steps(report: MeterReport) -> str:
    share = report.wait_share
    waited = f"{100 * share:.{0 if share >= 0.0995 else 1}f} % of the time"
    if share < _UNNOTICED:
        return f"The trainer is the bottleneck, not the loader: it waited for data {waited}."
    if report.tokens_per_s >= _PLENTY:
        return (
            f"The loader is no bottleneck: the loop received {report.tokens_per_s:,.0f} tokens/s, more than "
            f"training uses. Nothing need change."
        )
    role = "the bottleneck" if share >= _BOTTLENECK else "no bottleneck, but costs a little"
    step = f"{_ms(report.wait_mean_s)} of a step of {_ms(report.seconds / report.steps)}"
    if report.compute_mean_s < report.wait_mean_s / 100:
        gain = "does next to nothing else"
    else:
        ratio = report.seconds / (report.seconds - report.wait_s)
        gain = f"would be {ratio:.2f} times as fast without waiting"
    advice = _advice(report)
    todo = (
        f"To change that: {'; '.join(advice)}." if advice else "Workers would not help; nothing need change."
    )
    return f"The loader is {role}: the trainer waited for data {waited} ({step}), and {gain}. {todo}"


def _describe_start_up(report: MeterReport) -> str:
    total = report.seconds + report.start_up_s
    if report.start_up_s < _BOTTLENECK * total:
        return ""
    return (
        f" In addition, the first steps of passes took {_ms(report.start_up_s)} of {_ms(total)} in all: "
        f"workers start (persistent_workers=True keeps them), a shuffle buffer fills, a model compiles."
    )


def _advice(report: MeterReport) -> list[str]:
    """Return what to change, the most useful first."""
    workers, advice = report.feeding.num_workers, []
    if report.feeding.tokenized:
        advice += [] if workers is None else _advise_reading(report, workers)
    else:
        advice.append("prepare the text first, once (cache_dir=..., or tdstream prepare)")
        advice += [] if workers is None else [_advise_workers(report, workers)]
    if report.seconds / report.steps < _SHORT_STEP_S and report.compute_mean_s >= report.wait_mean_s / 100:
        advice.append("use larger batches, since the steps are short")
    if workers is None:
        return advice or ["let other processes or threads make the batches ahead of the trainer"]
    return advice


def _advise_reading(report: MeterReport, workers: int) -> list[str]:
    """Return what to change for a corpus, which one process reads from memory faster than workers send it."""
    if workers:
        if _waits_in_bursts(report):
            return [_advise_workers(report, workers)]
        return ["compare with num_workers=0, which is faster unless reads wait for storage (tdstream bench)"]
    if report.idle_s is None or report.idle_s < _BLOCKED * report.wait_s:
        return []  # it copies rows all the time
    return [f'{_advise_workers(report, workers)}, or shuffle="block", since reads wait for storage']


def _waits_in_bursts(report: MeterReport) -> bool:
    return report.wait_p99_s > _BURST * max(report.wait_p50_s, 1e-3)


def _advise_workers(report: MeterReport, workers: int) -> str:
    """Return how many workers would hide the wait.

    With W workers, one worker takes W * (wait + compute) for a batch. With 2 workers, 100 ms of wait and
    100 ms of compute, that is 400 ms, so 4 workers deliver a batch every 100 ms.
    """
    if workers and _waits_in_bursts(report):
        return "raise prefetch_factor, since most steps wait little and a few wait long"
    cores = report.feeding.cores
    busy = report.wait_mean_s + report.compute_mean_s if workers else report.wait_mean_s
    needed = math.ceil(max(workers, 1) * busy / max(report.compute_mean_s, 1e-9))
    if needed <= cores:
        return f"num_workers={max(needed, workers + 1)} instead of {workers}"
    limit = f"this process has {count_of(cores, 'core')}"
    if workers >= cores:
        return f"faster storage or more cores, since {limit} for {workers} workers"
    return f"num_workers={cores} instead of {workers}, which will not hide all of it, since {limit}"


def _ms(seconds: float) -> str:
    """Return a duration with three digits: 0.0123 -> 12.3 ms."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
