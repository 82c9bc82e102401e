"""The command ``tdstream bench``."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tdstream.cli.arguments import DefaultsFormatter, add_options, read_options, whole_number
from tdstream.core.checks import option
from tdstream.core.errors import ConfigError
from tdstream.formats.description import FormatOptions
from tdstream.nodes.shard_source import ShardSource, open_source

if TYPE_CHECKING:
    from tdstream.loading.loader import Loader

_COLUMNS = ("workers", "warm tok/s", "cold tok/s", "start-up", "resume")


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchOptions:
    """Options of a measurement."""

    source: Path
    """The corpus directory."""
    seq_len: int = option(2048, "tokens per sample")
    batch_size: int = option(8, "samples per batch")
    workers: tuple[int, ...] = (0, 1, 2, 4)
    """Numbers of workers to try."""
    seconds: float = option(3.0, "duration of each measurement")
    shuffle: bool = True
    """Whether to read samples in shuffled order."""
    cold: bool = option(False, "also measure reads from the disk; drops the corpus from the page cache")
    dtype: str | None = option(None, "uint16 or uint32, if the corpus has no meta.json")

    def __post_init__(self) -> None:
        if not 0 < self.seconds < float("inf"):
            raise ConfigError(f"seconds must be more than 0, got {self.seconds}.")
        if not self.workers or min(self.workers) < 0:
            raise ConfigError(f"workers must be numbers of at least 0, got {list(self.workers)}.")
        if self.cold and not hasattr(os, "posix_fadvise"):
            raise ConfigError("this system cannot drop files from its page cache; leave --cold out.")


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchResult:
    """Measurements with one number of workers."""

    workers: int
    start_up_s: float
    """From construction to the first batch."""
    resume_s: float
    """From construction to the first batch, after loading a state from the middle of an epoch."""
    warm_tokens_per_s: float
    """Reading from the page cache."""
    cold_tokens_per_s: float | None
    """Reading from the disk; None if not measured."""

    @property
    def sure_tokens_per_s(self) -> float:
        """The speed to rely on: that from the disk, if measured and slower."""
        warm, cold = self.warm_tokens_per_s, self.cold_tokens_per_s
        return warm if cold is None else min(warm, cold)


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "bench",
        help="measure how fast a corpus is read on this machine",
        description="Measure how fast batches of a corpus are read on this machine. Reports up to which "
        "training speed the loader is no bottleneck, and whether workers help.",
        formatter_class=DefaultsFormatter,
    )
    parser.add_argument("directory", type=Path, help="the corpus directory")
    parser.add_argument(
        "--workers", type=_numbers, default="0,1,2,4", help="numbers of worker processes to try, with commas"
    )
    parser.add_argument(
        "--shuffle", action=argparse.BooleanOptionalAction, default=True, help="read in a shuffled order"
    )
    add_options(parser, BenchOptions)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(whole_number(part) for part in text.split(","))


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print the figures and conclusions; return 0."""
    options = BenchOptions(
        source=arguments.directory,
        workers=arguments.workers,
        shuffle=arguments.shuffle,
        **read_options(arguments, BenchOptions),
    )
    if arguments.json:
        results = list(measure(options))
        print(json.dumps(_to_json(options, results), indent=2))
    else:
        print("", *findings(_print_table(measure(options))), sep="\n")
    return 0


def _to_json(options: BenchOptions, results: list[BenchResult]) -> dict[str, Any]:
    best = max(results, key=lambda result: result.sure_tokens_per_s)
    settings = ("seq_len", "batch_size", "seconds", "shuffle", "cold")
    return {
        "directory": str(options.source),
        **{name: getattr(options, name) for name in settings},
        "runs": [asdict(result) for result in results],
        "limit_tokens_per_s": best.sure_tokens_per_s,
        "best_workers": best.workers,
        "findings": findings(results),
    }


def _print_table(results: Iterable[BenchResult]) -> list[BenchResult]:
    """Print each result as soon as it is measured; return all."""
    done: list[BenchResult] = []
    for result in results:
        cells = (
            str(result.workers),
            f"{result.warm_tokens_per_s:,.0f}",
            "-" if result.cold_tokens_per_s is None else f"{result.cold_tokens_per_s:,.0f}",
            f"{result.start_up_s * 1000:,.0f} ms",
            f"{result.resume_s * 1000:,.0f} ms",
        )
        for line in (_COLUMNS, cells) if not done else (cells,):
            print(*(f"{cell:>12}" for cell in line), flush=True)
        done.append(result)
    return done


def measure(options: BenchOptions) -> Iterator[BenchResult]:
    """Yield the result for each number of workers."""
    source = open_source(options.source, FormatOptions(dtype=options.dtype))
    for workers in options.workers:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
            yield _measure(options, source, workers)


def _measure(options: BenchOptions, source: ShardSource, workers: int) -> BenchResult:
    cold = None
    start_up = _time_first_batch(options, workers, None)  # measured first, to include one-time costs
    if options.cold:
        evict(source)
        cold = _measure_speed(options, workers, seconds=options.seconds)[0]
    _, batches = _measure_speed(options, workers, seconds=options.seconds)  # fills the page cache
    middle = _open(options, 0)
    middle.skip(len(middle) // 2)
    return BenchResult(
        workers=workers,
        start_up_s=start_up,
        resume_s=_time_first_batch(options, workers, middle.state_dict()),
        warm_tokens_per_s=_measure_speed(options, workers, batches=batches)[0],
        cold_tokens_per_s=cold,
    )


def evict(source: ShardSource) -> None:
    """Drop a corpus from the page cache, except pages mapped by other processes."""
    for path in source.paths():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # unwritten pages cannot be dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _open(options: BenchOptions, workers: int) -> Loader:
    from tdstream.loading.loader import loader  # noqa: PLC0415 - torch takes seconds

    return loader(
        options.source,
        seq_len=options.seq_len,
        batch_size=options.batch_size,
        shuffle=options.shuffle,
        dtype=options.dtype,
        dp_rank=0,
        dp_world_size=1,
        num_workers=workers,
        persistent_workers=workers > 0,
    )


def _time_first_batch(options: BenchOptions, workers: int, state: dict[str, Any] | None) -> float:
    """Return the seconds from construction to the first batch."""
    begin = time.perf_counter()
    opened = _open(options, workers)
    if state is not None:
        opened.load_state_dict(state)
    next(iter(opened))
    return time.perf_counter() - begin


def _measure_speed(
    options: BenchOptions, workers: int, *, seconds: float = float("inf"), batches: int | None = None
) -> tuple[float, int]:
    """Return tokens per second after the first batch, and the number of batches; pass one limit."""
    opened = _open(options, workers)
    endless = (batch for epoch in itertools.repeat(opened) for batch in epoch)
    next(endless)
    done, elapsed, begin = 0, 0.0, time.perf_counter()
    while elapsed < seconds and (batches is None or done < batches):
        next(endless)
        done += 1
        elapsed = time.perf_counter() - begin
    return done * options.batch_size * options.seq_len / elapsed, done


def findings(results: Sequence[BenchResult]) -> list[str]:
    """Return sentences that draw conclusions for training."""
    best = max(results, key=lambda result: result.sure_tokens_per_s)
    origin = "from the page cache" if best.cold_tokens_per_s is None else "also from the disk"
    sentences = [
        f"The loader is not a bottleneck for training at up to {_short(best.sure_tokens_per_s)} tokens/s per "
        f"rank, {origin}, with {_describe_workers(best.workers)}."
    ]
    alone = next((result for result in results if result.workers == 0), None)
    if alone is None:
        return sentences
    sentences.append(
        f"Without workers, reading takes less than 1 % of a step up to "
        f"{_short(alone.sure_tokens_per_s / 100)} tokens/s per rank; the step waits for it."
    )
    others = [result for result in results if result.workers]
    return [*sentences, _compare_workers(alone, others)] if others else sentences


def _compare_workers(alone: BenchResult, others: Sequence[BenchResult]) -> str:
    best = max(others, key=lambda result: result.sure_tokens_per_s)
    ratio = best.sure_tokens_per_s / alone.sure_tokens_per_s
    if ratio > 1.1:  # a smaller gain may be noise
        return f"Workers help here: {_describe_workers(best.workers)} read {ratio:.1f} times as fast as none."
    return (
        f"Workers do not help here: the best of them, {_describe_workers(best.workers)}, read {ratio:.2f} "
        f"times as fast as none. They still read during a training step, if it leaves processors idle."
    )


def _describe_workers(number: int) -> str:
    return {0: "no workers", 1: "1 worker"}.get(number, f"{number} workers")


def _short(tokens_per_s: float) -> str:
    """Format a speed: 1234567 -> 1.2 million."""
    if tokens_per_s >= 1e6:
        return f"{tokens_per_s / 1e6:,.{0 if tokens_per_s >= 1e7 else 1}f} million"
    return f"{tokens_per_s:,.0f}"
