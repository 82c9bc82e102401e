"""The command ``tdstream export``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from tdstream.cli.arguments import add_format_arguments, read_told
from tdstream.exchange.targets import TARGETS


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "export",
        help="write a corpus as the files of another tool, by hard links where possible",
        description="Write a corpus as the files of another tool. Files whose bytes are the same are hard "
        "links, which take no space; other files are copied. What will be done is printed first. The "
        "directory appears when it is complete; the same command continues a killed export.",
    )
    parser.add_argument("directory", type=Path, metavar="path", help="the corpus directory, or token files")
    parser.add_argument("output_path", type=Path, help="directory for the files; must be new or empty")
    parser.add_argument("--to", required=True, choices=list(TARGETS), help="the tool that will read them")
    parser.add_argument(
        "--one_prefix", action="store_true", help="Megatron: join all shards in one prefix, by a copy"
    )
    add_format_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Export the corpus; print what will be done and what was done; return 0."""
    from tdstream.exchange.export import run_export  # noqa: PLC0415 - help does without tqdm

    result = run_export(
        arguments.directory,
        arguments.output_path,
        to=arguments.to,
        one_prefix=arguments.one_prefix,
        told=read_told(arguments),
        visible=True,
        say=lambda sentence: print(sentence, file=sys.stderr),
    )
    print(
        f"{result.files:,} files for {arguments.to}, {result.linked_bytes:,} bytes linked, "
        f"{result.copied_bytes:,} bytes copied: {result.output_path}",
        file=sys.stderr,
    )
    return 0
