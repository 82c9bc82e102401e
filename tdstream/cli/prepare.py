"""The command ``tdstream prepare``."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from tdstream.cli.arguments import DefaultsFormatter, add_options, read_options
from tdstream.cli.streams import shown_log
from tdstream.core.words import count_of
from tdstream.distributed.topology import find_topology
from tdstream.preparation.options import GROUPS, PrepareOptions
from tdstream.preparation.process_setup import set_up_process

if TYPE_CHECKING:
    from tdstream.preparation.result import PrepareResult


def add_parser(commands: Any) -> None:
    """Add the subcommand, with a flag for each option."""
    parser = commands.add_parser(
        "prepare",
        help="tokenize a dataset and write it as a corpus",
        description="Tokenize a dataset and write it as a corpus of token shards.",
        formatter_class=DefaultsFormatter,
    )
    for group in GROUPS:
        add_options(parser, group)
    parser.add_argument(
        "--dry_run",
        action="store_true",
        help="say what would be read and written, with estimates of tokens and room, and write nothing",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prepare a corpus, with a progress bar and a summary on stderr; return the exit code."""
    asked = PrepareOptions.of(**read_options(arguments, *GROUPS))
    options, topology = asked, find_topology()
    if asked.tasks.task is None and topology.dp_world_size > 1:  # under torchrun, each rank prepares a share
        options = asked.replace(task=topology.dp_rank, num_tasks=topology.dp_world_size)
    options.check_output()
    # Imported after the checks: datasets and transformers take seconds to load.
    if arguments.own_process:
        set_up_process()
    from tdstream.preparation.engine import describe_kept, prepare_corpus, preview_corpus  # noqa: PLC0415
    from tdstream.preparation.result import Bar  # noqa: PLC0415
    from tdstream.preparation.tasks import merge_all  # noqa: PLC0415
    from tdstream.text.encoders.select import advise_fast  # noqa: PLC0415

    for library in ("datasets", "huggingface_hub"):
        logging.getLogger(library).setLevel(logging.CRITICAL)  # their errors reach the user as ours
    if arguments.dry_run:
        with shown_log():
            preview_corpus(asked)
        print("Nothing was written.", file=sys.stderr)
        return 0
    task = options.tasks.task
    one_of_ranks = task != asked.tasks.task
    try:
        is_first = not (one_of_ranks and task)
        with shown_log() if is_first else nullcontext(), Bar(visible=is_first) as bar:
            result = prepare_corpus(options, bar)
        print(_summary(result, options), file=sys.stderr)
        by_itself = result.meta is not None and result.meta.encoder == "hf" and result.meta.is_fast
        if by_itself and options.text.encoder == "auto" and not result.was_complete and advise_fast():
            print(advise_fast(), file=sys.stderr)
        if one_of_ranks and task == 0:
            print(_summary(merge_all(options, result), asked), file=sys.stderr)
        elif asked.tasks.task is not None and result.meta is None:
            print(f"When all have ended: tdstream merge {options.output.output_path}", file=sys.stderr)
    except KeyboardInterrupt:
        kept = describe_kept(options.output, options.tasks.task)
        safe = f"{kept} are safe: start again with --resume to continue after them."
        print(f"Interrupted. {safe if kept else 'No unfinished corpus was left behind.'}", file=sys.stderr)
        return 128 + signal.SIGINT
    return 0


def _summary(result: PrepareResult, options: PrepareOptions) -> str:
    counts, meta, held_out = result.counts, result.meta, ""
    if result.val is not None:
        held_out = f", and {result.val.documents:,} documents, {result.val.tokens:,} tokens held out in val"
    kinds = f"({counts.empty:,} empty, {counts.skipped:,} bad ones skipped)"
    documents = count_of(counts.documents, "document")
    if result.was_complete:
        return (
            f"Complete already, there is nothing to resume: {documents}, "
            f"{counts.tokens:,} tokens{held_out}: {result.output_path}"
        )
    if meta is None:
        return (
            f"Task {options.tasks.task} of {options.tasks.num_tasks}: {documents} "
            f"{kinds}, {counts.tokens:,} tokens{held_out}, waiting in {result.output_path} for the "
            f"other tasks"
        )
    shards = count_of(len(meta.chunks), "shard")
    rate = counts.tokens / max(result.seconds, 1e-9)
    if options.output.append:
        return _lengths(result) + (
            f"{documents}, {counts.tokens:,} tokens appended in {result.seconds:,.1f} s; "
            f"the corpus has {meta.total_tokens:,} tokens in {shards}: "
            f"{result.output_path}"
        )
    return _lengths(result) + (
        f"{documents} {kinds}, {counts.tokens:,} tokens in {shards} of {meta.dtype}{held_out}, "
        f"{result.seconds:,.1f} s, {rate:,.0f} tokens/s with encoder {meta.encoder}: {result.output_path}"
    )


def _lengths(result: PrepareResult) -> str:
    """Return a line about the document lengths, without end-of-text tokens."""
    from tdstream.preparation.result import median  # noqa: PLC0415

    counts, lengths = result.counts, result.lengths
    if not counts.documents:
        return ""
    held_out = result.val.documents if result.val is not None else 0
    documents = count_of(counts.documents, "document")
    mean = (counts.tokens - counts.documents) / counts.documents
    return (
        f"{counts.records + held_out:,} records = {documents} + {counts.skipped:,} skipped"
        f"{f' + {held_out:,} held out' * (result.val is not None)}; "
        f"tokens per document: min {min(lengths):,}, median {median(lengths):,.1f}, mean {mean:,.1f}, "
        f"max {max(lengths):,}; {counts.text_bytes / counts.tokens:.2f} bytes per token\n"
    )
