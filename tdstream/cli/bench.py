"""Offer ``tdstream bench``: measure how fast a corpus is read on this machine."""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tdstream.cli.prepare import whole_number
from tdstream.core.errors import ConfigError
from tdstream.nodes.shard_source import ShardSource

if TYPE_CHECKING:
    from tdstream.loading.loader import Loader


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What to measure."""

    source: Path
    """The corpus directory."""
    seq_len: int = 2048
    """T, tokens of a sample's input."""
    batch_size: int = 8
    """B, samples per batch."""
    workers: tuple[int, ...] = (0, 1, 2, 4)
    """The numbers of worker processes to try."""
    seconds: float = 3.0
    """How long each reading is measured."""
    shuffle: bool = True
    """Whether samples are read in a shuffled order."""
    cold: bool = False
    """Whether to measure from the disk, too: the corpus is dropped from the page cache."""
    dtype: str | None = None
    """The storage type, where the corpus has no meta.json."""

    def __post_init__(self) -> None:
        """Refuse numbers that nothing can be measured with.

        Raises:
            ConfigError: If a number is out of range, or the system cannot drop pages.
        """
        if not 0 < self.seconds < float("inf"):
            raise ConfigError(f"seconds must be more than 0, got {self.seconds}.")
        if not self.workers or min(self.workers) < 0:
            raise ConfigError(f"workers must be numbers of at least 0, got {list(self.workers)}.")
        if self.cold and not hasattr(os, "posix_fadvise"):
            raise ConfigError("this system cannot drop files from its page cache; leave --cold out.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What one number of workers reached."""

    workers: int
    start_up_s: float
    """From nothing to the first batch."""
    resume_s: float
    """From nothing to the first batch after a state in the middle of an epoch was loaded."""
    warm_tokens_per_s: float
    """From the page cache."""
    cold_tokens_per_s: float | None
    """From the disk; None where it was not measured."""

    @property
    def sure_tokens_per_s(self) -> float:
        """The speed to count on: from the disk if that was measured and is the slower one."""
        warm, cold = self.warm_tokens_per_s, self.cold_tokens_per_s
        return warm if cold is None else min(warm, cold)


def measure(plan: Plan) -> Iterator[Measured]:
    """Measure each number of workers, one after another.

    Args:
        plan: What to measure.

    Raises:
        TdstreamError: As `build`.
    """
    source = ShardSource(plan.source, dtype=plan.dtype)
    for workers in plan.workers:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
            yield _measure(plan, source, workers)


def _measure(plan: Plan, source: ShardSource, workers: int) -> Measured:
    cold = None
    start_up = _time_to_first(plan, workers, None)  # first, so that whatever the process does once is done
    if plan.cold:
        evict(source)
        cold = _speed(plan, workers, seconds=plan.seconds)[0]
    _, batches = _speed(plan, workers, seconds=plan.seconds)  # brings into the page cache what comes next
    return Measured(
        workers=workers,
        start_up_s=start_up,
        resume_s=_time_to_first(plan, workers, _state_in_the_middle(plan)),
        warm_tokens_per_s=_speed(plan, workers, batches=batches)[0],
        cold_tokens_per_s=cold,
    )


def evict(source: ShardSource) -> None:
    """Drop a corpus from the page cache; pages that another process has mapped stay."""
    for file in source.files:
        descriptor = os.open(source.directory / file, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # pages that are not yet on the disk cannot be dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _open(plan: Plan, workers: int) -> Loader:
    from tdstream.loading.loader import loader  # noqa: PLC0415 - torch takes seconds

    return loader(
        plan.source,
        seq_len=plan.seq_len,
        batch_size=plan.batch_size,
        shuffle=plan.shuffle,
        dtype=plan.dtype,
        dp_rank=0,
        dp_world_size=1,
        num_workers=workers,
        persistent_workers=workers > 0,
    )


def _state_in_the_middle(plan: Plan) -> dict[str, Any]:
    opened = _open(plan, 0)
    opened.skip(len(opened) // 2)
    return opened.state_dict()


def _time_to_first(plan: Plan, workers: int, state: dict[str, Any] | None) -> float:
    """Return the seconds from the construction to the first batch."""
    begin = time.perf_counter()
    opened = _open(plan, workers)
    if state is not None:
        opened.load_state_dict(state)
    next(iter(opened))
    return time.perf_counter() - begin


def _speed(
    plan: Plan, workers: int, *, seconds: float = float("inf"), batches: int | None = None
) -> tuple[float, int]:
    """Return tokens per second, from the second batch on, and the number of batches; one bound is given."""
    endless = _endless(_open(plan, workers))
    next(endless)
    done, elapsed, begin = 0, 0.0, time.perf_counter()
    while elapsed < seconds and (batches is None or done < batches):
        next(endless)
        done += 1
        elapsed = time.perf_counter() - begin
    return done * plan.batch_size * plan.seq_len / elapsed, done


def _endless(opened: Loader) -> Iterator[Any]:
    while True:
        yield from opened


def findings(measured: Sequence[Measured]) -> list[str]:
    """Return in sentences what the figures mean for a training.

    Args:
        measured: The figures, of at least one number of workers.
    """
    best = max(measured, key=lambda one: one.sure_tokens_per_s)
    state = "from the page cache" if best.cold_tokens_per_s is None else "also from the disk"
    sentences = [
        f"The loader is no bottleneck for a training of up to {_short(best.sure_tokens_per_s)} tokens/s per "
        f"rank, {state}, with {_workers(best.workers)}."
    ]
    alone = next((one for one in measured if one.workers == 0), None)
    if alone is None:
        return sentences
    sentences.append(
        f"Without workers, reading takes less than 1 % of a step up to "
        f"{_short(alone.sure_tokens_per_s / 100)} tokens/s per rank; the step waits for it."
    )
    others = [one for one in measured if one.workers]
    return [*sentences, _do_workers_help(alone, others)] if others else sentences


def _do_workers_help(alone: Measured, others: Sequence[Measured]) -> str:
    best = max(others, key=lambda one: one.sure_tokens_per_s)
    ratio = best.sure_tokens_per_s / alone.sure_tokens_per_s
    if ratio > 1.1:  # below, it is within what two runs differ by
        return f"Workers help here: {_workers(best.workers)} read {ratio:.1f} times as fast as none."
    return (
        f"Workers do not help here: the best of them, {_workers(best.workers)}, read {ratio:.2f} times as "
        f"fast as none. They still read while a step runs that leaves processors free."
    )


def _workers(number: int) -> str:
    return {0: "no workers", 1: "1 worker"}.get(number, f"{number} workers")


def _short(tokens_per_s: float) -> str:
    """Return a speed with two to three digits: 1234567 -> 1.2 million."""
    if tokens_per_s >= 1e6:
        return f"{tokens_per_s / 1e6:,.{0 if tokens_per_s >= 1e7 else 1}f} million"
    return f"{tokens_per_s:,.0f}"


_COLUMNS = ("workers", "warm tok/s", "cold tok/s", "start-up", "resume")


def add_parser(commands: Any) -> None:
    """Add the subcommand ``bench``.

    Args:
        commands: The subparsers of the command.
    """
    parser = commands.add_parser(
        "bench",
        help="measure how fast a corpus is read here",
        description="Measure how fast batches of a corpus are read on this machine, and say up to which "
        "training speed the loader cannot be the bottleneck and whether workers help.",
    )
    parser.add_argument("directory", type=Path, help="the corpus directory")
    parser.add_argument("--seq_len", type=whole_number, default=2048, help="tokens of a sample (%(default)s)")
    parser.add_argument("--batch_size", type=whole_number, default=8, help="samples of a batch (%(default)s)")
    parser.add_argument(
        "--workers", type=_numbers, default="0,1,2,4", help="worker processes to try (%(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="time of each reading (%(default)s)")
    parser.add_argument(
        "--shuffle", action=argparse.BooleanOptionalAction, default=True, help="read in a shuffled order"
    )
    parser.add_argument(
        "--cold", action="store_true", help="measure from the disk, too; drops the corpus from the page cache"
    )
    parser.add_argument("--dtype", help="uint16 or uint32, where the corpus has no meta.json")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print the figures and what they mean.

    Args:
        arguments: The parsed command line.

    Returns:
        The exit code, 0.
    """
    plan = Plan(
        source=arguments.directory,
        seq_len=arguments.seq_len,
        batch_size=arguments.batch_size,
        workers=arguments.workers,
        seconds=arguments.seconds,
        shuffle=arguments.shuffle,
        cold=arguments.cold,
        dtype=arguments.dtype,
    )
    if arguments.json:
        measured = list(measure(plan))
        print(json.dumps(_as_json(plan, measured, findings(measured)), indent=2))
        return 0
    measured = _table(measure(plan))
    print("", *findings(measured), sep="\n")
    return 0


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(whole_number(part) for part in text.split(","))


def _as_json(plan: Plan, measured: list[Measured], sentences: list[str]) -> dict[str, Any]:
    best = max(measured, key=lambda one: one.sure_tokens_per_s)
    settings = ("seq_len", "batch_size", "seconds", "shuffle", "cold")
    return {
        "directory": str(plan.source),
        **{name: getattr(plan, name) for name in settings},
        "runs": [asdict(one) for one in measured],
        "limit_tokens_per_s": best.sure_tokens_per_s,
        "best_workers": best.workers,
        "findings": sentences,
    }


def _table(measured: Iterable[Measured]) -> list[Measured]:
    """Print each line as soon as it is measured."""
    done: list[Measured] = []
    for one in measured:
        cold = "-" if one.cold_tokens_per_s is None else f"{one.cold_tokens_per_s:,.0f}"
        cells = (
            str(one.workers),
            f"{one.warm_tokens_per_s:,.0f}",
            cold,
            f"{one.start_up_s * 1000:,.0f} ms",
            f"{one.resume_s * 1000:,.0f} ms",
        )
        for line in (_COLUMNS, cells) if not done else (cells,):
            print(*(f"{cell:>12}" for cell in line), flush=True)
        done.append(one)
    return done
