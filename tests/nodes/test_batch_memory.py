"""The memory of a batch is used again for the next."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROBE = """
import resource, sys
import numpy as np
if sys.argv[1] == "kept":
    from tdstream.nodes.batch import keep_freed_memory
    keep_freed_memory()
def batches(number):
    for _ in range(number):
        batch = [np.ones(1 << 16, np.int64) for _ in range(5)]
        del batch
batches(5)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
batches(100)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another malloc")
def test_pages_are_not_asked_for_with_each_batch():
    """Batches of five arrays of 512 KiB: 640 pages each, which without it are given back every time."""
    faults = {
        how: int(subprocess.run([sys.executable, "-c", PROBE, how], capture_output=True, check=True).stdout)
        for how in ("kept", "plain")
    }
    assert faults["kept"] < 1000 < faults["plain"]
