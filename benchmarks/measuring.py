"""Shared by the benchmarks: generated corpora, alternating runs, and tables of ratios."""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

Clock = Callable[[], float]
Results = dict[str, list[float]]


def options(description: str | None) -> argparse.Namespace:
    """Return the parsed flags; silence warnings about workers, and limit torch to one thread."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="shorter and fewer runs")
    parser.add_argument("--dir", type=Path, help="place of the temporary corpus (default: the system's)")
    warnings.filterwarnings("ignore", "This DataLoader will create|.*set_vital")
    torch.set_num_threads(1)
    return parser.parse_args()


@contextmanager
def corpus(
    num_tokens: int, *, shards: int = 1, sparse: bool = False, place: Path | None = None
) -> Iterator[Path]:
    """Make a temporary uint16 corpus of random tokens, or of sparse files, which take no space."""
    with tempfile.TemporaryDirectory(prefix="tdstream-bench-", dir=place) as name:
        directory, generator = Path(name), np.random.default_rng(0)
        tokens = num_tokens // shards
        chunks = [{"file": f"chunk_{number:06d}.bin", "tokens": tokens} for number in range(shards)]
        for chunk in chunks:
            with (directory / str(chunk["file"])).open("wb") as file:
                if sparse:
                    file.truncate(2 * tokens)
                else:
                    file.write(generator.integers(0, 50_000, tokens, dtype="<u2").tobytes())
        content = {"dtype": "uint16", "chunks": chunks, "total_tokens": tokens * shards}
        (directory / "meta.json").write_text(json.dumps(content))
        yield directory


class PlainReference(IterableDataset[dict[str, torch.Tensor]]):
    """A plain loader: a permutation in memory; one slice, one cast, two tensors per sample."""

    def __init__(self, directory: Path, seq_len: int) -> None:
        chunks = json.loads((directory / "meta.json").read_text())["chunks"]
        self.maps = [np.memmap(directory / chunk["file"], dtype="<u2", mode="r") for chunk in chunks]
        self.offsets = np.cumsum([0, *(len(tokens) for tokens in self.maps)])
        self.seq_len = seq_len

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        """Yield the samples of this worker, except those that cross a shard's end."""
        length, info = self.seq_len + 1, get_worker_info()
        order = np.random.default_rng(42).permutation(self.offsets[-1] // length)
        for index in order[info.id :: info.num_workers] if info else order:
            shard = int(np.searchsorted(self.offsets, index * length, "right")) - 1
            first = index * length - self.offsets[shard]
            tokens = self.maps[shard][first : first + length].astype(np.int64)
            if len(tokens) == length:
                yield {"input_ids": torch.from_numpy(tokens[:-1]), "labels": torch.from_numpy(tokens[1:])}


def endless(open_pass: Callable[[], Any]) -> Iterator[Any]:
    """Yield the items of one epoch after another."""
    loader = open_pass()
    while True:
        yield from loader


def rate(items: Iterator[Any], *, seconds: float, clock: Clock, warm_up: int = 20) -> float:
    """Return items per second, after a warm-up."""
    for _ in range(warm_up):
        next(items)
    done, begin = 0, clock()
    while (elapsed := clock() - begin) < seconds:
        for _ in range(8):  # so that reading the clock costs nothing
            next(items)
        done += 8
    return done / elapsed


def alternate(variants: Mapping[str, Callable[[], float]], rounds: int) -> Results:
    """Measure all variants in turns, so that a slow moment affects all of them."""
    results: Results = {name: [] for name in variants}
    for number in range(rounds):
        for name in sorted(variants, reverse=number % 2 == 1):
            results[name].append(variants[name]())
    return results


def ratio(results: Results, name: str, base: str) -> float:
    """Return the median ratio of two variants' figures over the rounds."""
    return statistics.median(a / b for a, b in zip(results[name], results[base], strict=True))


def table(title: str, results: Results, unit: str, bases: Sequence[str], scale: float = 1.0) -> None:
    """Print a line for each variant: its median, the range, and its ratio to the bases."""
    width = max(map(len, results))
    print(f"\n{title}\n{'':{width}}  {unit:>11}  {'(min .. max)':>19}  ", *(f"/ {base}" for base in bases))
    for name, figures in results.items():
        figures = [figure * scale for figure in figures]  # noqa: PLW2901
        spread = f"({min(figures):,.1f} .. {max(figures):,.1f})"
        ratios = [f"{ratio(results, name, base):{len(base) + 2}.3f}" for base in bases]
        print(f"{name:{width}}  {statistics.median(figures):11,.1f}  {spread:>19}  ", *ratios, flush=True)


def timed(action: Callable[[], Any], clock: Clock = time.perf_counter) -> float:
    """Return the seconds that an action takes."""
    begin = clock()
    action()
    return clock() - begin
