"""Offer ``tdstream bench``: measure how fast a corpus is read on this machine."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tdstream.cli.prepare import whole_number

if TYPE_CHECKING:
    from tdstream.bench import Measured, Plan

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
    from tdstream.bench import Plan, findings, measure  # noqa: PLC0415 - imports torch

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
