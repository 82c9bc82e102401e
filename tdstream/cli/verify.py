"""Offer ``tdstream verify``: compare a corpus with what its meta.json promises."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tdstream.cli.prepare import whole_number
from tdstream.core.errors import TokenizerError
from tdstream.corpus.meta import DTYPES, META_FILE
from tdstream.verification.inventory import file_sizes, read_promise
from tdstream.verification.verify import DEFAULT_SAMPLES, verify_corpus
from tdstream.verification.verify_report import Findings

if TYPE_CHECKING:
    from tdstream.verification.verify_report import VerifyReport

EXIT_FAULTY = 1


def add_parser(commands: Any) -> None:
    """Add the subcommand ``verify``.

    Args:
        commands: The subparsers of the command.
    """
    parser = commands.add_parser(
        "verify",
        help="compare a corpus with what its meta.json promises",
        description="Compare a corpus with what its meta.json promises, name each fault, and say what could "
        "not be checked. The exit code is 1 if there is a fault.",
    )
    parser.add_argument("--fast", action="store_true", help="compare names and sizes only")
    parser.add_argument(
        "--samples",
        type=whole_number,
        default=DEFAULT_SAMPLES,
        help="documents to decode (default 16; 0: none)",
    )
    add_corpus_arguments(parser)
    parser.set_defaults(run=run)


def add_corpus_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say which corpus is meant, and what its meta.json may not say.

    Args:
        parser: Where to add them.
    """
    parser.add_argument("directory", type=Path, help="the corpus directory")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--tokenizer", help="to decode with; default the one that meta.json names")
    parser.add_argument("--dtype", choices=list(DTYPES), help="type of the tokens of bare .bin files")
    parser.add_argument("--eos", type=whole_number, metavar="ID", help="end-of-text id of bare .bin files")


def run(arguments: argparse.Namespace) -> int:
    """Verify the corpus and print what was found.

    Args:
        arguments: The parsed command line.

    Returns:
        The exit code: 0, or 1 if there is a fault.
    """
    sizes = file_sizes(arguments.directory)
    loaded = Loaded() if arguments.fast or arguments.samples < 1 else load(arguments, sizes)
    with bar(sum(size for name, size in sizes.items() if name.endswith(".bin")), arguments.fast) as shown:
        report = verify_corpus(
            arguments.directory,
            fast=arguments.fast,
            tokenizer=loaded.tokenizer,
            tokenizer_fingerprint=loaded.fingerprint,
            without_tokenizer=loaded.reason,
            samples=max(arguments.samples, 0),
            dtype=arguments.dtype,
            eos_token_id=arguments.eos,
            advance=shown.update,
        )
    print(json.dumps(report.to_json(), indent=2) if arguments.json else describe(report))
    return 0 if report.ok else EXIT_FAULTY


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """A tokenizer, or the reason why there is none."""

    tokenizer: Any = None
    fingerprint: str = ""
    reason: str = "it was not asked for"


def load(arguments: argparse.Namespace, sizes: dict[str, int]) -> Loaded:
    """Load the tokenizer that was named, or the one that meta.json names if that is possible.

    Args:
        arguments: The parsed command line.
        sizes: The files of the corpus directory.

    Raises:
        TokenizerError: If the one that was named cannot be loaded.
    """
    name = arguments.tokenizer or _name_in_meta(arguments.directory, sizes)
    if not name:
        return Loaded(reason="no tokenizer is known; name one with --tokenizer")
    from tdstream.text.tokenizer import fingerprint, load_tokenizer  # noqa: PLC0415 - takes seconds

    try:
        tokenizer = load_tokenizer(name)
    except TokenizerError as error:
        if arguments.tokenizer:
            raise
        return Loaded(reason=f"{error} Another place of it can be named with --tokenizer.")
    return Loaded(tokenizer=tokenizer, fingerprint=fingerprint(tokenizer))


def _name_in_meta(directory: Path, sizes: dict[str, int]) -> str:
    meta = read_promise(directory / META_FILE, Findings()) if META_FILE in sizes else None
    return meta.tokenizer_name_or_path if meta else ""


def bar(total: int, hidden: bool = False) -> Any:
    """Return a progress bar over bytes on stderr, which shows itself in a terminal only.

    Args:
        total: Bytes to read.
        hidden: Whether it is not shown there either.
    """
    from tqdm import tqdm  # noqa: PLC0415

    off = hidden or not sys.stderr.isatty()
    return tqdm(total=total, unit="B", unit_scale=True, dynamic_ncols=True, desc="Reading", disable=off)


def describe(report: VerifyReport) -> str:
    """Return a report as lines for people.

    Args:
        report: What was found.
    """
    lines = [f"{report.directory}: {report.chunks:,} chunks, {report.tokens:,} tokens"]
    parts = (
        ("fault", report.faults),
        ("note", report.notes),
        ("ok", report.checked),
        ("unchecked", report.unchecked),
    )
    lines += [f"  {label:<9}  {text}" for label, texts in parts for text in texts]
    faults = len(report.faults)
    verdict = "no fault" if report.ok else f"{faults:,} fault{'s' * (faults != 1)}"
    return "\n".join([*lines, f"{verdict} found; {len(report.unchecked):,} things could not be checked"])
