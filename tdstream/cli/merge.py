"""Offer ``tdstream merge``: put the shares of several tasks together."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> None:
    """Add the subcommand ``merge``.

    Args:
        commands: The subparsers of the command.
    """
    parser = commands.add_parser(
        "merge",
        help="make one corpus of what several tasks have prepared",
        description="Make one corpus of what 'tdstream prepare --task i --num_tasks n' has prepared, when "
        "all tasks have ended. Nothing is copied; the chunks get their numbers in the order of the tasks.",
    )
    parser.add_argument("directory", type=Path, help="the output_path of the tasks")
    parser.add_argument("--overwrite", action="store_true", help="replace an older corpus that lies there")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Merge the shares.

    Args:
        arguments: The parsed command line.

    Returns:
        The exit code, 0.
    """
    from tdstream.writing.merge import merge_tasks  # noqa: PLC0415

    merged = merge_tasks(arguments.directory, overwrite=arguments.overwrite)
    meta, val = merged.meta, merged.val
    held_out = (
        f", and {val.num_documents:,} documents, {val.total_tokens:,} tokens held out in val" if val else ""
    )
    print(
        f"{meta.num_documents:,} documents, {meta.total_tokens:,} tokens in {len(meta.chunks):,} chunks of "
        f"{meta.dtype}{held_out}: {arguments.directory}",
        file=sys.stderr,
    )
    return 0
