"""Offer ``tdstream state``: print where a checkpoint stands."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tdstream.schedule.mixture_plan import MixturePlan

_LEFT_OUT = ("history", "sources", "stages")  # too long, or told in other lines


def add_parser(commands: Any) -> None:
    """Add the subcommand ``state``.

    Args:
        commands: The subparsers of the command.
    """
    parser = commands.add_parser(
        "state",
        help="print where a checkpoint's loader stands",
        description="Print epoch, position, tokens, percent and identities of the loader state in a "
        "checkpoint: a file of torch.save, JSON, or a torch.distributed.checkpoint directory.",
    )
    parser.add_argument("file", type=Path, help="the checkpoint")
    parser.add_argument("--json", action="store_true", help="print the portable state itself, as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the state.

    Args:
        arguments: The parsed command line.

    Returns:
        The exit code, 0.
    """
    from tdstream.loading.checkpoint_file import read_state  # noqa: PLC0415 - imports torch, which --help need not wait for

    state = read_state(arguments.file)
    print(json.dumps(state, indent=2) if arguments.json else describe(state))
    return 0


def describe(state: dict[str, Any]) -> str:
    """Return a portable state as lines for people.

    Args:
        state: The portable state.
    """
    from tdstream.loading.locate import SavedPipeline  # noqa: PLC0415

    nodes, position = state["nodes"], state["position"]
    pipeline, partition = SavedPipeline(nodes), nodes["splitter"]
    samples, seq_len = pipeline.lengths.num_samples(state["epoch"]), pipeline.reader["seq_len"]
    lines = [
        ("epoch", f"{state['epoch']:,}"),
        ("position", f"{min(position, samples):,} of {samples:,} samples ({min(position / samples, 1):.1%})"),
        ("tokens", f"{min(position, samples) * seq_len:,} of {samples * seq_len:,} in this epoch"),
    ]
    if "step" in partition:
        lines.append(("step", f"{partition['step']:,} ({partition['batches_done']:,} in this epoch)"))
    if pipeline.plan is not None:
        lines += _sources(pipeline.plan, state["epoch"], min(position, samples))
    lines += [(name, _fields(part)) for name, part in nodes.items()]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in lines)


def _sources(plan: MixturePlan, epoch: int, position: int) -> list[tuple[str, str]]:
    """Return a line for each source of a mixture and each stage until here."""
    used, base = plan.schedule.used(epoch, position).tolist(), plan.schedule.base(epoch)
    lines = [
        (
            entry.name,
            f"{count % entry.samples:,} of {entry.samples:,} samples of its epoch {count // entry.samples}",
        )
        for entry, count in zip(plan.entries, used, strict=True)
    ]
    for start, weights in plan.stages:
        when = "now" if start == plan.start_of(base + position) else f"from {start:,} samples"
        lines.append(
            ("weights", f"{when}: " + ", ".join(f"{name} {weight}" for name, weight in weights.items()))
        )
    return lines


def _fields(part: dict[str, Any]) -> str:
    return "  ".join(f"{name}={value!r}" for name, value in part.items() if name not in _LEFT_OUT)
