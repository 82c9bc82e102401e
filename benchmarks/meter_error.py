"""The error of DataMeter on a known delay, and the cost of the meter and the progress bar per step.

    python benchmarks/meter_error.py [--quick]

A loader waits before each batch and records how long it really waited; the loop then works for a given time.
The meter's report is compared with the records. Target: an error below 2 %.
"""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch
from measuring import options

import tdstream

BATCH = {name: torch.zeros(8, 2048, dtype=torch.int64) for name in ("input_ids", "labels")}


class Slow:
    """A loader whose batches take a known time."""

    def __init__(self, delay_s: float, steps: int) -> None:
        self.delay_s, self.steps = delay_s, steps
        self.took_s: list[float] = []

    def __len__(self) -> int:
        """Return the number of batches."""
        return self.steps

    def __iter__(self) -> Iterator[Any]:
        """Wait, and yield."""
        for _ in range(self.steps):
            begun = time.perf_counter()
            time.sleep(self.delay_s)
            self.took_s.append(time.perf_counter() - begun)
            yield BATCH


def error(delay_s: float, work_s: float, steps: int) -> None:
    """Print the errors of a meter's mean, median and 99th percentile."""
    loader, meter = Slow(delay_s, steps), tdstream.DataMeter()
    for _ in meter.watch(loader):
        time.sleep(work_s)
    report, true = meter.report(), loader.took_s[1:]
    off = [
        report.wait_mean_s / statistics.mean(true) - 1,
        report.wait_p50_s / statistics.median(true) - 1,
        report.wait_p99_s / sorted(true)[-(-99 * len(true) // 100) - 1] - 1,
    ]
    errors = "  ".join(f"{name} {100 * value:+5.2f} %" for name, value in zip(("mean", "p50", "p99"), off))  # noqa: B905
    print(f"{1000 * delay_s:6.1f} ms before, {1000 * work_s:5.1f} ms of work, {steps} steps: {errors}")


def cost(steps: int) -> None:
    """Print the time that the meter and the bar add to a step of an empty loop."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def seconds(batches: Any) -> float:
        begun = time.process_time()
        for _ in batches:
            pass
        return (time.process_time() - begun) / steps

    bare = seconds([BATCH] * steps)
    watched = seconds(tdstream.DataMeter().watch([BATCH] * steps))
    shown = seconds(tdstream.progress([BATCH] * steps, file=Terminal()))
    print(f"per step: meter {1e6 * (watched - bare):.1f} us, bar and meter {1e6 * (shown - bare):.1f} us")


def main() -> None:
    """Measure both."""
    quick = options(__doc__).quick
    for delay_s, work_s in ((0.0005, 0.002), (0.002, 0.01), (0.01, 0.01), (0.05, 0.02)):
        error(delay_s, work_s, int((2 if quick else 10) / (delay_s + work_s)))
    cost(20_000 if quick else 100_000)


if __name__ == "__main__":
    main()
