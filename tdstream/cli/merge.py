"""The command ``tdstream merge``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from tdstream.core.words import count_of
from tdstream.corpus.meta import CorpusMeta


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "merge",
        help="make one corpus of the shards that several tasks have prepared",
        description="Make one corpus of what 'tdstream prepare --task I --num_tasks N' has prepared, once "
        "all tasks have finished. Nothing is copied; the shards are numbered in the order of the tasks.",
    )
    parser.add_argument("directory", type=Path, help="the output_path of the tasks")
    parser.add_argument("--overwrite", action="store_true", help="replace an older corpus there")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Merge the tasks and print a summary; return 0."""
    from tdstream.writing.merge import merge_tasks  # noqa: PLC0415

    merged = merge_tasks(arguments.directory, overwrite=arguments.overwrite)
    meta, val = merged.meta, merged.val
    held_out = f", and {_describe(val)} held out in val" if val else ""
    complete = "Complete already, there is nothing to merge: " if merged.was_complete else ""
    print(
        f"{complete}{_describe(meta)} in {count_of(len(meta.chunks), 'shard')} of {meta.dtype}{held_out}: "
        f"{arguments.directory}",
        file=sys.stderr,
    )
    return 0


def _describe(meta: CorpusMeta) -> str:
    """Return the documents, if their number is known, and the tokens."""
    documents = f"{count_of(meta.num_documents, 'document')}, " if meta.num_documents >= 0 else ""
    return f"{documents}{count_of(meta.total_tokens, 'token')}"
