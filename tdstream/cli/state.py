"""The command ``tdstream state``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tdstream.cli.arguments import check_no_corpus
from tdstream.core.state_schema import shorten

if TYPE_CHECKING:
    from tdstream.schedule.mixture_plan import MixturePlan

_HIDDEN = ("history", "sources", "stages")  # too long, or shown separately


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "state",
        help="print where a checkpoint's loader stands",
        description="Print epoch, position, tokens and identities of the loader state in a checkpoint: a "
        "file of torch.save, JSON, or a torch.distributed.checkpoint directory.",
    )
    parser.add_argument("file", type=Path, help="the checkpoint")
    parser.add_argument("--json", action="store_true", help="print the portable state itself, as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the state; return 0."""
    from tdstream.loading.checkpoint_file import read_state  # noqa: PLC0415 - imports torch

    check_no_corpus(arguments.file)
    state = read_state(arguments.file)
    print(json.dumps(state, indent=2) if arguments.json else describe(state))
    return 0


def describe(state: dict[str, Any]) -> str:
    """Return a portable state as lines of text."""
    from tdstream.loading.locate import read_cursor  # noqa: PLC0415

    cursor, pipeline = read_cursor(state)
    nodes, position = state["nodes"], state["position"]
    splitter = nodes["splitter"]
    samples, seq_len = pipeline.lengths.num_samples(state["epoch"]), pipeline.reader["seq_len"]
    lines = [
        ("epoch", f"{state['epoch']:,}"),
        ("position", f"{min(position, samples):,} of {samples:,} samples ({min(position / samples, 1):.1%})"),
        ("tokens", f"{min(position, samples) * seq_len:,} of {samples * seq_len:,} in this epoch"),
    ]
    if "step" in splitter:
        lines.append(("step", f"{cursor.step:,} ({cursor.batches_done:,} in this epoch)"))
    if pipeline.plan is not None:
        lines += _describe_sources(pipeline.plan, state["epoch"], min(position, samples))
    for name, part in nodes.items():
        fields = (f"{field}={shorten(value)}" for field, value in part.items() if field not in _HIDDEN)
        lines.append((name, "  ".join(fields)))
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in lines)


def _describe_sources(plan: MixturePlan, epoch: int, position: int) -> list[tuple[str, str]]:
    """Return a line for each source of a mixture and for each stage of its weights."""
    used, base = plan.schedule.used(epoch, position).tolist(), plan.schedule.base(epoch)
    lines = []
    for entry, count in zip(plan.entries, used, strict=True):
        own_epoch, done = divmod(count, entry.samples)
        lines.append((entry.name, f"{done:,} of {entry.samples:,} samples of its epoch {own_epoch}"))
    for start, weights in plan.stages:
        when = "now" if start == plan.find_stage_start(base + position) else f"from {start:,} samples"
        text = ", ".join(f"{name} {weight}" for name, weight in weights.items())
        lines.append(("weights", f"{when}: {text}"))
    return lines
