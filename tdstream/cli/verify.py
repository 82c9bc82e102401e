"""The command ``tdstream verify``."""

from __future__ import annotations

import argparse
import json
from typing import Any

from tdstream.cli.arguments import (
    LoadedTokenizer,
    add_corpus_arguments,
    describe_files,
    load_corpus_tokenizer,
    reading_bar,
    whole_number,
)
from tdstream.core.errors import CorpusError, CorpusNotFoundError
from tdstream.core.words import count_of
from tdstream.verification.described import verify_description
from tdstream.verification.inventory import file_sizes
from tdstream.verification.verify import DEFAULT_SAMPLES, verify_corpus
from tdstream.verification.verify_report import Findings, VerifyReport

EXIT_FAULTY = 1


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "verify",
        help="check a corpus against its meta.json",
        description="Check a corpus against its meta.json, name every fault, and list what could not be "
        "checked. The exit code is 1 if there is a fault.",
    )
    parser.add_argument("--fast", action="store_true", help="compare names and sizes only")
    parser.add_argument(
        "--samples",
        type=whole_number,
        default=DEFAULT_SAMPLES,
        help="random documents to decode (default: %(default)s; 0 for none)",
    )
    add_corpus_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Verify the corpus and print the report; return 1 if there is a fault, else 0."""
    report = _verify_files(arguments) or _verify_corpus(arguments)
    print(json.dumps(report.to_json(), indent=2) if arguments.json else describe(report))
    return 0 if report.ok else EXIT_FAULTY


def _verify_files(arguments: argparse.Namespace) -> VerifyReport | None:
    """Verify token files of another tool; None if it is a corpus."""
    try:
        description = describe_files(arguments)
    except CorpusNotFoundError:
        raise
    except CorpusError as error:  # its headers or index contradict it
        findings = Findings()
        findings.fault("unreadable", "", str(error))
        findings.unchecked.append("everything else")
        return VerifyReport(
            directory=str(arguments.directory), fast=arguments.fast, chunks=0, tokens=0, eos_tokens=None,
            faults=tuple(findings.faults), notes=(), checked=(), unchecked=tuple(findings.unchecked),
        )  # fmt: skip
    if description is None:
        return None
    if arguments.tokenizer is not None:
        from tdstream.text.tokenizer import load_tokenizer  # noqa: PLC0415 - takes seconds

        vocab_size = len(load_tokenizer(arguments.tokenizer))
    else:
        vocab_size = 0
    total = sum(piece.tokens for piece in description.pieces) * description.dtype.itemsize
    with reading_bar(total, arguments.fast) as bar:
        return verify_description(description, fast=arguments.fast, vocab_size=vocab_size, advance=bar.update)


def _verify_corpus(arguments: argparse.Namespace) -> VerifyReport:
    sizes = file_sizes(arguments.directory)
    undecoded = arguments.fast or arguments.samples < 1
    loaded = LoadedTokenizer() if undecoded else load_corpus_tokenizer(arguments)
    total = sum(size for name, size in sizes.items() if name.endswith(".bin"))
    with reading_bar(total, arguments.fast) as bar:
        return verify_corpus(
            arguments.directory,
            fast=arguments.fast,
            tokenizer=loaded.tokenizer,
            tokenizer_fingerprint=loaded.fingerprint,
            without_tokenizer=loaded.reason,
            samples=max(arguments.samples, 0),
            dtype=arguments.dtype,
            eos_token_id=arguments.eos,
            advance=bar.update,
        )


def describe(report: VerifyReport) -> str:
    """Return a report as lines of text."""
    lines = [f"{report.directory}: {count_of(report.chunks, 'shard')}, {count_of(report.tokens, 'token')}"]
    parts = (
        ("fault", report.faults),
        ("note", report.notes),
        ("ok", report.checked),
        ("unchecked", report.unchecked),
    )
    lines += [f"  {label:<9}  {text}" for label, texts in parts for text in texts]
    verdict = "no fault" if report.ok else count_of(len(report.faults), "fault")
    unchecked = count_of(len(report.unchecked), "thing")
    return "\n".join([*lines, f"{verdict} found; {unchecked} could not be checked"])
