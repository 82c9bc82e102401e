"""Quantiles are within 1 % of the true ones, in memory that does not grow."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from tdstream.monitor.meter import Quantiles


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("scale", [3e-6, 0.02, 40.0])
def test_quantiles_are_within_one_percent(share, scale):
    """Of durations over three orders of magnitude, against the sorted list."""
    durations = scale * np.exp(np.random.default_rng(7).normal(0, 1.2, 5001))
    counted = Quantiles()
    for duration in durations:
        counted.add(duration)
    true = np.sort(durations)[math.ceil(share * 5001) - 1]
    assert counted.quantile(share) == pytest.approx(true, rel=0.0101)
    assert len(counted) == 5001


def test_the_edges():
    """Nothing added, no duration at all, and durations out of range."""
    counted = Quantiles()
    assert counted.quantile(0.5) == 0
    counted.add(0.0)
    assert counted.quantile(1.0) == 0
    counted.add(1e9)
    assert counted.quantile(1.0) == pytest.approx(1e5, rel=0.03)


def test_memory_does_not_grow():
    """The bins are all there is, from the first duration on."""
    counted = Quantiles()
    counted.add(1.0)
    before = sys.getsizeof(counted._bins)
    for number in range(20_000):
        counted.add(number * 1e-4)
    assert sys.getsizeof(counted._bins) == before
    assert set(vars(counted)) == {"_bins", "_count"}
