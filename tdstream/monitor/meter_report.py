"""The report of a `DataMeter`: whether the trainer waits for data, how long, and what to change."""

from __future__ import annotations

import math
from dataclasses import dataclass

_UNNOTICED = 0.02  # share of the time; two runs differ by as much
_BOTTLENECK = 0.10
_SHORT_STEP_S = 0.01
_BURST = 10  # 99 % waits above so many medians come in bursts


@dataclass(frozen=True, kw_only=True, slots=True)
class LoaderSetup:
    """What is known of a loader from outside."""

    num_workers: int | None = None
    """Worker processes; None if unknown."""
    cores: int = 1
    """Processors that this process may use."""
    tokenized: bool = False
    """Whether tokens are read from shards, so that the text need not be prepared first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeterReport:
    """The measurements of a DataMeter on this rank. The first step of each pass is in `start_up_s` alone."""

    steps: int
    """Steps measured."""
    seconds: float
    """Their wall time: waiting for data, and everything that the loop did with it."""
    wait_s: float
    """The part of `seconds` spent waiting for data."""
    start_up_s: float
    """Not in `seconds`: first steps of passes (workers start, models compile) and waits for their ends."""
    wait_p50_s: float
    """The median wait of a step; within 1 %."""
    wait_p99_s: float
    """The wait that 99 % of the steps did not exceed; within 1 %."""
    starved: float
    """The share of steps that spent more than 5 % of their time waiting."""
    tokens_per_s: float
    """Tokens that this rank received, per second of `seconds`."""
    bytes_per_s: float
    """Bytes of the batches' tensors, per second of `seconds`."""
    feeding: LoaderSetup
    """What is known of the loader."""

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
        """In words: whether the loader is the bottleneck, how much is lost, and what to change."""
        if not self.steps:
            return "Nothing was measured: that needs a pass of at least two steps."
        return _describe_steps(self) + _describe_start_up(self)

    def __str__(self) -> str:
        """Return the figures in one line, and the verdict."""
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
    role = "the bottleneck" if share >= _BOTTLENECK else "no bottleneck, but costs a little"
    step = f"{_ms(report.wait_mean_s)} of a step of {_ms(report.seconds / report.steps)}"
    if report.compute_mean_s < report.wait_mean_s / 100:
        gain = "does next to nothing else"
    else:
        ratio = report.seconds / (report.seconds - report.wait_s)
        gain = f"would be {ratio:.2f} times as fast without waiting"
    return (
        f"The loader is {role}: the trainer waited for data {waited} ({step}), and {gain}. "
        f"To change that: {'; '.join(_advice(report))}."
    )


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
    advice = []
    if not report.feeding.tokenized:
        advice.append("prepare the text first, once (cache_dir=..., or tdstream prepare)")
    if report.feeding.num_workers is not None:
        advice.append(_advise_workers(report, report.feeding.num_workers))
    if report.seconds / report.steps < _SHORT_STEP_S:
        advice.append("use larger batches, since the steps are short")
    return advice or ["let other processes or threads make the batches ahead of the trainer"]


def _advise_workers(report: MeterReport, workers: int) -> str:
    """Return how many workers would hide the wait.

    With W workers, one batch takes a worker W * (wait + compute). At 2 workers, 100 ms of wait and 100 ms of
    compute it takes 400 ms; 4 workers then deliver one batch every 100 ms.
    """
    if workers and report.wait_p99_s > _BURST * max(report.wait_p50_s, 1e-3):
        return "raise prefetch_factor, since most steps wait little and a few wait long"
    cores = report.feeding.cores
    busy = report.wait_mean_s + report.compute_mean_s if workers else report.wait_mean_s
    needed = math.ceil(max(workers, 1) * busy / max(report.compute_mean_s, 1e-9))
    if needed <= cores:
        return f"num_workers={max(needed, workers + 1)} instead of {workers}"
    limit = f"this process has {cores} core{'s' * (cores > 1)}"
    if workers >= cores:
        return f"faster storage or more cores, since {limit} for {workers} workers"
    return f"num_workers={cores} instead of {workers}, which will not hide all of it, since {limit}"


def _ms(seconds: float) -> str:
    """Return a duration with three digits: 0.0123 -> 12.3 ms."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
