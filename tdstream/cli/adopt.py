"""The command ``tdstream adopt``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from tdstream.cli.arguments import add_format_arguments


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "adopt",
        help="write a meta.json for token files of other tools",
        description="Write a meta.json that names token files of other tools, in this order, and says what "
        "they do not tell themselves. The files stay where they are; the directory is read like a corpus.",
    )
    parser.add_argument("sources", nargs="+", metavar="source", help="token files: what build reads, each")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="DIR", help="where meta.json goes"
    )
    add_format_arguments(parser)
    parser.add_argument("--tokenizer", default="", metavar="NAME", help="the tokenizer, to be noted")
    parser.add_argument(
        "--checksums", action="store_true", help="read all files once and note their checksums"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the meta.json; return 0."""
    from tdstream.exchange.adopt import adopt  # noqa: PLC0415 - help does without tqdm

    place = adopt(
        arguments.sources,
        arguments.output,
        dtype=arguments.dtype,
        eos_token_id=arguments.eos,
        eos_first=arguments.eos_first or None,
        format=arguments.format,
        tokenizer=arguments.tokenizer,
        checksums=arguments.checksums,
        progress=True,
    )
    print(f"{len(arguments.sources):,} sources are adopted: {place}", file=sys.stderr)
    return 0
