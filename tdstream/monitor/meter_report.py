"""Say in words what a meter's figures mean: does the trainer wait for data, how much, and what to change."""

from __future__ import annotations

import math
from dataclasses import dataclass

_UNNOTICED = 0.02  # of the time: less than what two runs differ by
_BOTTLENECK = 0.10
_SHORT_STEP_S = 0.01
_BURST = 10  # times the median: waits that come in bursts


@dataclass(frozen=True, kw_only=True, slots=True)
class Feeding:
    """How a loader is fed, as far as it can be seen from outside."""

    num_workers: int | None = None
    """Worker processes; None where that is unknown."""
    cores: int = 1
    """Processors that this process may use."""
    tokenized: bool = False
    """Whether tokens are read from shards, so that preparing them first is no advice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeterReport:
    """What a DataMeter measured on this rank. The first step of each pass counts in `start_up_s` alone."""

    steps: int
    """Steps measured."""
    seconds: float
    """Their wall time: waiting for data, and all that the loop did with it."""
    wait_s: float
    """The part of it spent waiting for data."""
    start_up_s: float
    """Besides: first steps of passes (workers start, models compile), and the wait for the passes' ends."""
    wait_p50_s: float
    """Half of the steps waited no longer; off by 1 % at most."""
    wait_p99_s: float
    """99 in 100 steps waited no longer; off by 1 % at most."""
    starved: float
    """The share of steps that spent more than 5 % of their time waiting."""
    tokens_per_s: float
    """Tokens that this rank was given, per second of `seconds`."""
    bytes_per_s: float
    """Bytes of the batches' tensors, per second of `seconds`."""
    feeding: Feeding
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
        """One or more sentences: whether the loader is the bottleneck, by how much, and what to change."""
        if not self.steps:
            return "Nothing was measured: that needs a pass of at least two steps."
        return self._on_steps() + self._on_start_up()

    def _on_start_up(self) -> str:
        """Say how long passes take to begin, where that is worth a word."""
        whole = self.seconds + self.start_up_s
        if self.start_up_s < _BOTTLENECK * whole:
            return ""
        return (
            f" Besides, the first steps of passes took {_ms(self.start_up_s)} of {_ms(whole)} in all: "
            f"workers start (persistent_workers=True keeps them), a shuffle buffer fills, a model compiles."
        )

    def _on_steps(self) -> str:
        waited = f"{100 * self.wait_share:.{0 if self.wait_share >= 0.0995 else 1}f} % of the time"
        if self.wait_share < _UNNOTICED:
            return f"The trainer is the bottleneck, not the loader: it waited for data {waited}."
        role = "the bottleneck" if self.wait_share >= _BOTTLENECK else "no bottleneck, but costs a little"
        step = f"{_ms(self.wait_mean_s)} of a step of {_ms(self.seconds / self.steps)}"
        return (
            f"The loader is {role}: the trainer waited for data {waited} ({step}), and {_gain(self)}. "
            f"To change that: {'; '.join(_advice(self))}."
        )

    def __str__(self) -> str:
        """Return the figures in one line, and the verdict."""
        return (
            f"{self.steps:,} steps: wait {_ms(self.wait_mean_s)} on average, {_ms(self.wait_p50_s)} at p50, "
            f"{_ms(self.wait_p99_s)} at p99; {100 * self.starved:.0f} % of the steps starved; "
            f"{self.tokens_per_s:,.0f} tokens/s, {self.bytes_per_s / 1e6:,.2f} MB/s. {self.verdict}"
        )


def _gain(report: MeterReport) -> str:
    if report.compute_mean_s < report.wait_mean_s / 100:
        return "does next to nothing else"
    return f"would be {report.seconds / (report.seconds - report.wait_s):.2f} times as fast without waiting"


def _advice(report: MeterReport) -> list[str]:
    """Return what to change, the most useful first."""
    advice = (
        []
        if report.feeding.tokenized
        else ["prepare the text first, once (cache_dir=..., or tdstream prepare)"]
    )
    workers = report.feeding.num_workers
    if workers is not None:
        advice.append(_about_workers(report, workers))
    if report.seconds / report.steps < _SHORT_STEP_S:
        advice.append("take larger batches, since the steps are short")
    return advice or ["let other processes or threads make the batches ahead of the trainer"]


def _about_workers(report: MeterReport, workers: int) -> str:
    """Say how many workers would hide the wait: a batch takes one of W workers W * (wait + compute)."""
    if workers and report.wait_p99_s > _BURST * max(report.wait_p50_s, 1e-3):
        return "raise prefetch_factor, since most steps wait little and a few long"
    cores = report.feeding.cores
    busy = report.wait_mean_s + report.compute_mean_s if workers else report.wait_mean_s
    needed = math.ceil(max(workers, 1) * busy / max(report.compute_mean_s, 1e-9))
    if needed <= cores:
        return f"num_workers={max(needed, workers + 1)} instead of {workers}"
    room = f"this process has {cores} core{'s' * (cores > 1)}"
    if workers >= cores:
        return f"faster storage or more cores, since {room} for {workers} workers"
    return f"num_workers={cores} instead of {workers}, which will not hide all of it, since {room}"


def _ms(seconds: float) -> str:
    """Return a duration with three digits: 0.0123 -> 12.3 ms."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
