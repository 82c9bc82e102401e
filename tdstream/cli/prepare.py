"""Offer the preparation of a corpus as a command: flags, a progress bar, a summary."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tdstream.cli.arguments import whole_number
from tdstream.distributed.topology import resolve_topology
from tdstream.preparation.options import check_place
from tdstream.preparation.process_setup import settle_in
from tdstream.text.options import ENCODERS, PrepareOptions

if TYPE_CHECKING:
    from tdstream.preparation.result import PrepareResult

DEFAULT_OUTPUT = "./data/fineweb-edu-sample-10BT/"


def add_parser(commands: Any) -> None:
    """Add the subcommand ``prepare``.

    Args:
        commands: The subparsers of the command.
    """
    parser = commands.add_parser(
        "prepare",
        help="tokenize a dataset and write it as a corpus",
        description="Tokenize a dataset and write it as a corpus of token shards.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add_arguments(parser)
    parser.set_defaults(run=run)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a preparation.

    Args:
        parser: Where to add them.
    """
    flag = parser.add_argument
    flag("--tokenizer", default="gpt2", help="name on the hub or local directory")
    flag(
        "--dataset",
        default="HuggingFaceFW/fineweb-edu",
        help="name on the hub; or a local file or directory of parquet, json, jsonl, csv or txt, "
        "also .gz or .zst; or json, parquet, csv or text together with --data_files",
    )
    flag(
        "--data_name", help="configuration of the dataset (on the hub: sample-10BT unless given; '' for none)"
    )
    flag("--split", default="train", help="split of the dataset")
    flag("--data_files", nargs="+", default=[], metavar="FILE", help="read only these files of the dataset")
    flag(
        "--text_field",
        default="text",
        help="field that holds the text; a dot goes inside of a field (meta.title), commas join several "
        "(title,text) by an empty line",
    )
    flag("--strip", action="store_true", help="leave out white space at both ends of a text")
    flag("--lines", action="store_true", help="text files: one document per line, not per file")
    flag("--output_path", type=Path, default=Path(DEFAULT_OUTPUT), help="directory for the corpus")
    flag(
        "--tokens_per_chunk", type=whole_number, default=100_000_000, help="tokens per shard (1e8 works too)"
    )
    flag("--batch_size", type=whole_number, default=1000, help="documents to tokenize in one call")
    flag("--max_samples", type=whole_number, default=None, help="records to read at most")
    flag(
        "--overwrite",
        action="store_true",
        help="replace the corpus in output_path when the new one is complete",
    )
    flag(
        "--no_doc_index",
        dest="doc_index",
        action="store_false",
        help="write no index of document ends beside the chunks",
    )
    flag("--val_fraction", type=float, help="share of the documents to hold out, in OUTPUT_PATH/val")
    flag("--val_documents", type=whole_number, help="number of documents to hold out instead")
    flag("--append", action="store_true", help="write behind the documents of the corpus in output_path")
    flag("--skip_bad", action="store_true", help="leave out and count records that hold no text")
    flag("--resume", action="store_true", help="go on with an unfinished preparation, if there is one")
    flag("--num_proc", type=whole_number, default=1, help="processes that tokenize")
    flag(
        "--encoder",
        choices=ENCODERS,
        default="auto",
        help="what turns text into ids; auto takes the fastest that is exact for the tokenizer",
    )
    flag("--task", type=whole_number, help="prepare only this share of the dataset, from 0")
    flag("--num_tasks", type=whole_number, help="shares that the dataset is divided into")
    flag(
        "--merge_wait",
        type=float,
        default=300.0,
        help="seconds after which rank 0 gives up on a rank that neither ends nor shows life",
    )


def run(arguments: argparse.Namespace) -> int:
    """Prepare a corpus, showing a progress bar and a summary on stderr.

    Args:
        arguments: The parsed flags.

    Returns:
        The exit code, 0.
    """
    flags = vars(arguments)  # not every option has a flag
    given = {name: flags[name] for name in PrepareOptions.__dataclass_fields__ if name in flags}
    asked = PrepareOptions(**{**given, "data_files": tuple(arguments.data_files)})
    options = _placed(asked)
    check_place(options)
    # Loads datasets and transformers, which takes seconds; what is refused above does not wait for it.
    if arguments.own_process:
        settle_in()
    from tdstream.preparation.engine import describe_kept, prepare_corpus  # noqa: PLC0415
    from tdstream.preparation.result import Bar  # noqa: PLC0415
    from tdstream.preparation.tasks import merge_all  # noqa: PLC0415

    for library in ("datasets", "huggingface_hub"):
        logging.getLogger(library).setLevel(logging.CRITICAL)  # Their errors reach the user as our sentence.
    one_of_ranks = options.task != asked.task
    try:
        with Bar(visible=not (one_of_ranks and options.task)) as bar:
            result = prepare_corpus(options, bar)
        print(_summary(result, options), file=sys.stderr)
        if one_of_ranks and options.task == 0:
            print(_summary(merge_all(options, result), asked), file=sys.stderr)
        elif asked.task is not None and result.meta is None:
            print(f"When all have ended: tdstream merge {options.output_path}", file=sys.stderr)
    except KeyboardInterrupt:
        kept = describe_kept(options)
        safe = f"{kept} are safe: start again with --resume to continue after them."
        print(f"Interrupted. {safe if kept else 'No unfinished corpus was left behind.'}", file=sys.stderr)
        return 128 + signal.SIGINT
    return 0


def _placed(options: PrepareOptions) -> PrepareOptions:
    """Return the options of this process: under torchrun every rank has a share of its own."""
    topology = resolve_topology()
    if options.task is not None or topology.dp_world_size == 1:
        return options
    return replace(options, task=topology.dp_rank, num_tasks=topology.dp_world_size)


def _summary(result: PrepareResult, options: PrepareOptions) -> str:
    counts, meta = result.counts, result.meta
    if result.was_complete:
        return (
            f"Complete already, there is nothing to resume: {counts.documents:,} documents, "
            f"{counts.tokens:,} tokens{_held_out(result)}: {result.output_path}"
        )
    if meta is None:
        return (
            f"Task {options.task} of {options.num_tasks}: {counts.documents:,} documents ({counts.empty:,} "
            f"empty, {counts.skipped:,} bad ones skipped), {counts.tokens:,} tokens{_held_out(result)}, "
            f"waiting in {result.output_path} for the other tasks"
        )
    rate = counts.tokens / max(result.seconds, 1e-9)
    if options.append:
        return _lengths(result) + (
            f"{counts.documents:,} documents, {counts.tokens:,} tokens appended in {result.seconds:,.1f} s; "
            f"the corpus has {meta.total_tokens:,} tokens in {len(meta.chunks):,} chunks: "
            f"{result.output_path}"
        )
    return _lengths(result) + (
        f"{counts.documents:,} documents ({counts.empty:,} empty, {counts.skipped:,} bad ones skipped), "
        f"{counts.tokens:,} tokens in {len(meta.chunks):,} chunks of {meta.dtype}{_held_out(result)}, "
        f"{result.seconds:,.1f} s, {rate:,.0f} tokens/s: {result.output_path}"
    )


def _held_out(result: PrepareResult) -> str:
    """Return a part of a sentence about the documents that were held out; empty if none were to be."""
    val = result.val
    return "" if val is None else f", and {val.documents:,} documents, {val.tokens:,} tokens held out in val"


def _lengths(result: PrepareResult) -> str:
    """Return a line about the lengths of the documents, without their end-of-text tokens."""
    from tdstream.preparation.result import median  # noqa: PLC0415

    counts, lengths = result.counts, result.lengths
    if not counts.documents:
        return ""
    held_out = result.val.documents if result.val is not None else 0
    mean = (counts.tokens - counts.documents) / counts.documents
    return (
        f"{counts.records + held_out:,} records = {counts.documents:,} documents + {counts.skipped:,} skipped"
        f"{f' + {held_out:,} held out' * (result.val is not None)}; "
        f"tokens per document: min {min(lengths):,}, median {median(lengths):,.1f}, mean {mean:,.1f}, "
        f"max {max(lengths):,}; {counts.text_bytes / counts.tokens:.2f} bytes per token\n"
    )
