"""Comparison of what a job on changing machines received with the corpus, read without the library."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from elastic_logs import Row, Runs


def hash_samples(corpus: Path, seq_len: int) -> list[str]:
    """Return a hash of every sample: the shards read as one stream, cut into blocks of seq_len + 1 tokens."""
    meta = json.loads((corpus / "meta.json").read_text())
    shards = [np.fromfile(corpus / chunk["file"], dtype=meta["dtype"]) for chunk in meta["chunks"]]
    stream = np.concatenate(shards).astype(np.int64)
    blocks = stream[: len(stream) // (seq_len + 1) * (seq_len + 1)].reshape(-1, seq_len + 1)
    return [
        hashlib.blake2b(block[:-1].tobytes() + block[1:].tobytes(), digest_size=8).hexdigest()
        for block in blocks
    ]


def first_fault(rows: Sequence[Row], samples: Sequence[str], epochs: int) -> str | None:
    """Return which sample was not served exactly once in an epoch, except for the tail; None if all were.

    Samples with equal contents may be served as often as they occur.
    """
    by_epoch: dict[int, list[Row]] = {epoch: [] for epoch in range(epochs)}
    for row in rows:
        by_epoch.setdefault(row.epoch, []).append(row)
    for epoch, served in sorted(by_epoch.items()):
        fault = _epoch_fault(served, samples) if epoch < epochs else f"{served[0]}: not asked for"
        if fault:
            return f"epoch {epoch}, {fault}"
    return None


def _epoch_fault(rows: list[Row], samples: Sequence[str]) -> str | None:
    """Find a foreign or repeated sample, or else a missing one."""
    places: dict[str, list[int]] = defaultdict(list)
    for number, sample in enumerate(samples):
        places[sample].append(number)
    seen: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.sample not in places:
            return f"{row}: a row that is no sample of the corpus (hash {row.sample})"
        seen[row.sample].append(row)
        if len(seen[row.sample]) > len(places[row.sample]):
            return f"sample {places[row.sample][0]}: served at {row} again, after {seen[row.sample][-2]}"
    return _tail_fault(rows, [n for sample, numbers in places.items() for n in numbers[len(seen[sample]) :]])


def _tail_fault(rows: list[Row], missing: list[int]) -> str | None:
    """Return a fault if more samples are missing than a last incomplete global batch can hold."""
    last_batch = sum(row.step == rows[-1].step for row in rows) if rows else 1
    if len(missing) < last_batch:
        return None
    return (
        f"sample {min(missing)}: never served, one of {len(missing)} such; only the last incomplete global "
        f"batch may be left out, with fewer than {last_batch}"
    )


def order_fault(rows: Sequence[Row], samples: Sequence[str], orders: Sequence[Sequence[str]]) -> str | None:
    """Return where an epoch's order differs from that of an uninterrupted process; it may end earlier."""
    for epoch, order in enumerate(orders):
        served = [row for row in rows if row.epoch == epoch]
        for row, sample in zip(served, order, strict=False):
            if row.sample != sample:
                here, there = samples.index(row.sample), samples.index(sample)
                return f"epoch {epoch}, sample {here}: served at {row}, uninterrupted it is sample {there}"
    return None


def start_fault(runs: Runs, rows: Sequence[Row], save_every: int) -> str | None:
    """Return which run did not resume at the newest checkpoint, or not at the position saved in it."""
    for number, (before, run) in enumerate(pairwise(runs), start=2):
        start = run[0]
        given = before[0].served[-1].step if before[0].served else before[0].start_step
        saved = max((given - 1) // save_every * save_every, before[0].start_step)
        if start.start_step < saved:
            return f"run {number} started at step {start.start_step}, though step {saved} had been saved"
        done = sum(row.epoch == start.epoch and row.step <= start.start_step for row in rows)
        if start.position != done:
            return (
                f"run {number} started in epoch {start.epoch} at position {start.position}, though {done} "
                f"samples of it had been served by step {start.start_step}"
            )
    return None


def state_fault(runs: Runs) -> str | None:
    """Return where the loader's state was not the same on all ranks."""
    for number, run in enumerate(runs, start=1):
        states: dict[int, str] = {}
        for rank, log in enumerate(run):
            for step, state in [(log.start_step, log.state), *((one.step, one.state) for one in log.served)]:
                if states.setdefault(step, state) != state:
                    return f"run {number}, step {step}: the state of rank {rank} differs from another rank's"
    return None
