"""The command ``tdstream convert``."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

from tdstream.cli.arguments import add_format_arguments, whole_number


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "convert",
        help="write token files of another tool as a corpus, also those that cannot be mapped",
        description="Write token files of another tool as a corpus: all that can be read in place, and "
        "compressed MDS and litData, MDS rows of any length, parquet and compressed Arrow with lists of ids, "
        "and caches of Levanter. Killed, it continues with --resume.",
    )
    parser.add_argument("source", help="token files: a directory, a file, a prefix or a pattern")
    parser.add_argument("output_path", type=Path, help="directory for the corpus")
    parser.add_argument("--resume", action="store_true", help="continue an unfinished conversion")
    parser.add_argument("--overwrite", action="store_true", help="replace an older corpus there")
    parser.add_argument("--column", help="the column of token ids, if its name is not a usual one")
    parser.add_argument("--tokenizer", default="", metavar="NAME", help="the tokenizer, to be noted")
    parser.add_argument(
        "--tokens_per_chunk", type=whole_number, default=100_000_000, help="(default: %(default)s)"
    )
    add_format_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Convert the files; return the exit code."""
    from tdstream.exchange.convert import convert, describe_kept  # noqa: PLC0415 - help does without tqdm

    try:
        result = convert(
            arguments.source,
            arguments.output_path,
            resume=arguments.resume,
            overwrite=arguments.overwrite,
            dtype=arguments.dtype,
            eos_token_id=arguments.eos,
            eos_first=arguments.eos_first or None,
            format=arguments.format,
            column=arguments.column,
            tokenizer=arguments.tokenizer,
            tokens_per_chunk=arguments.tokens_per_chunk,
            progress=True,
        )
    except KeyboardInterrupt:
        kept = describe_kept(arguments.output_path)
        safe = f"{kept}: start again with --resume to continue after them."
        print(f"Interrupted. {safe if kept else 'No unfinished corpus was left behind.'}", file=sys.stderr)
        return 128 + signal.SIGINT
    meta = result.meta
    documents = f"{meta.num_documents:,} documents, " if meta.num_documents >= 0 else ""
    complete = "Complete already: " if result.was_complete else ""
    if result.note:
        print(f"The corpus has no document index: {result.note}", file=sys.stderr)
    print(
        f"{complete}{documents}{meta.total_tokens:,} tokens in {len(meta.chunks):,} chunks of {meta.dtype}: "
        f"{result.output_path}",
        file=sys.stderr,
    )
    return 0
