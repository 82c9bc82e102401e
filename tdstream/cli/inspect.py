"""Offer ``tdstream inspect``: print what a corpus is, and what is in it."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tdstream.cli.prepare import whole_number
from tdstream.cli.verify import Loaded, add_corpus_arguments, bar, load
from tdstream.core.errors import ConfigError, CorpusError, OutputError
from tdstream.corpus.document_index import has_doc_index
from tdstream.corpus.meta import DTYPES, CorpusMeta
from tdstream.verification.contents import LengthStatistics
from tdstream.verification.inventory import file_sizes, promised
from tdstream.verification.verify_report import Findings

if TYPE_CHECKING:
    from tdstream.verification.overview import Excerpt, Overview


BAR_WIDTH = 40


def text_histogram(statistics: LengthStatistics) -> list[str]:
    """Return lines with the lengths, the documents and a bar of each bin.

    Args:
        statistics: The lengths.
    """
    ranges = [_range(low, high) for low, high, _ in statistics.histogram]
    counts = [f"{count:,}" for _, _, count in statistics.histogram]
    most = max(count for _, _, count in statistics.histogram)
    left = max(map(len, ranges))
    right = max(map(len, counts))
    # Rounded up: a bin that is not empty is seen.
    bars = ["#" * -(-count * BAR_WIDTH // most) for _, _, count in statistics.histogram]
    return [
        f"{lengths:>{left}}  {count:>{right}}  {stroke}".rstrip()
        for lengths, count, stroke in zip(ranges, counts, bars, strict=True)
    ]


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


def figure_class() -> Any:
    """Return matplotlib's Figure, which draws without a display.

    Raises:
        ConfigError: If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError("--plot needs matplotlib: pip install 'tdstream[plot]'.") from error
    return Figure


def plot_histogram(statistics: LengthStatistics, path: Path, title: str) -> None:
    """Write a picture of the lengths as PNG.

    Args:
        statistics: The lengths.
        path: Where to.
        title: What stands above it.

    Raises:
        ConfigError: If matplotlib is not installed.
        OutputError: If the file cannot be written.
    """
    figure = figure_class()(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    places = range(len(statistics.histogram))
    axes.bar(places, [count for _, _, count in statistics.histogram], width=0.95)
    axes.set_xticks(
        places, [_range(low, high) for low, high, _ in statistics.histogram], rotation=45, ha="right"
    )
    axes.set(xlabel="tokens in a document", ylabel="documents", title=title)
    try:
        figure.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from error


LISTED_SHARDS = 10


def add_parser(commands: Any) -> None:
    """Add the subcommand ``inspect``.

    Args:
        commands: The subparsers of the command.
    """
    parser = commands.add_parser(
        "inspect",
        help="print what a corpus is, and what is in it",
        description="Print the shards, type, tokens, documents and tokenizer of a corpus, the first document "
        "and some random ones, and how long documents are. All tokens are read once; where there is an index "
        "of document ends, only that is.",
    )
    parser.add_argument(
        "--documents", type=whole_number, default=2, help="random documents to show (default 2)"
    )
    parser.add_argument("--seed", type=whole_number, default=0, help="decides which (default 0)")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.png", help="draw the lengths, too; needs the extra 'plot'"
    )
    add_corpus_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print what the corpus is.

    Args:
        arguments: The parsed command line.

    Returns:
        The exit code, 0.
    """
    from tdstream.verification.overview import overview  # noqa: PLC0415 - its package imports torch

    _check(arguments)
    meta = _corpus(arguments)
    loaded = load(arguments, file_sizes(arguments.directory))
    if meta.eos_token_id is None and loaded.tokenizer is not None:
        meta = replace(meta, eos_token_id=loaded.tokenizer.eos_token_id)
    with bar(meta.total_tokens * DTYPES[meta.dtype].itemsize) as shown:
        found = overview(
            arguments.directory,
            meta,
            documents=arguments.documents,
            seed=arguments.seed,
            tokenizer=loaded.tokenizer,
            advance=shown.update,
        )
    problem = "" if loaded.tokenizer is not None else loaded.reason
    print(json.dumps(found.to_json(problem), indent=2) if arguments.json else describe(found, loaded))
    if arguments.plot is not None:
        _plot(found, arguments.plot)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what cannot be done before anything is read."""
    for name in ("documents", "seed"):
        if getattr(arguments, name) < 0:
            raise ConfigError(f"--{name} must be at least 0, got {getattr(arguments, name)}.")
    if arguments.plot is not None:
        figure_class()


def _corpus(arguments: argparse.Namespace) -> CorpusMeta:
    """Return what the corpus is, after the same checks that training makes."""
    from tdstream.nodes.shard_source import ShardSource  # noqa: PLC0415 - imports torch

    ShardSource(arguments.directory, dtype=arguments.dtype)
    sizes = file_sizes(arguments.directory)
    findings = Findings()
    meta = promised(arguments.directory, sizes, arguments.dtype, arguments.eos, findings)
    if meta is None or not meta.dtype or findings.faults:
        faults = "; ".join(str(fault) for fault in findings.faults[:3])
        raise CorpusError(f"{arguments.directory} cannot be inspected: {faults}")
    return meta if meta.eos_token_id is not None else replace(meta, eos_token_id=arguments.eos)


def _plot(found: Overview, path: Path) -> None:
    if found.lengths is None:
        raise ConfigError("--plot draws lengths of documents, whose ends are not known: pass --eos.")
    plot_histogram(found.lengths, path, found.directory)


def describe(found: Overview, loaded: Loaded) -> str:
    """Return an overview as lines for people.

    Args:
        found: The overview.
        loaded: The tokenizer, or why there is none.
    """
    fields = _fields(found, loaded)
    width = max(len(name) for name, _ in fields)
    lines = [found.directory, *(f"  {name:<{width}}  {text}" for name, text in fields)]
    for excerpt in found.excerpts:
        lines += ["", _heading(excerpt, whole=found.lengths is not None), f"  {_content(excerpt)}"]
    if found.lengths is not None:
        lines += ["", "tokens in a document, documents", *_indented(text_histogram(found.lengths))]
    return "\n".join(lines)


def _fields(found: Overview, loaded: Loaded) -> list[tuple[str, str]]:
    meta, lengths = found.meta, found.lengths
    fields = [
        ("shards", f"{len(meta.chunks):,} of {meta.dtype}"),
        *(("", f"{chunk.file}  {chunk.tokens:,} tokens") for chunk in meta.chunks[:LISTED_SHARDS]),
        *[("", f"... and {len(meta.chunks) - LISTED_SHARDS:,} more")] * (len(meta.chunks) > LISTED_SHARDS),
        ("tokens", f"{meta.total_tokens:,}"),
        ("documents", _documents(found)),
        ("tokenizer", _tokenizer(meta, loaded)),
        ("eos", "not known" if meta.eos_token_id is None else f"{meta.eos_token_id}"),
    ]
    if lengths is not None:
        fields.append(
            (
                "lengths",
                f"min {lengths.minimum:,}  median {lengths.median:,g}  mean {lengths.mean:,.1f}  "
                f"p99 {lengths.p99:,}  max {lengths.maximum:,} (tokens, without end-of-text)",
            )
        )
    if found.kept:
        fields.append(("kept", _kept(found.kept)))
    return fields


def _kept(kept: dict[str, int]) -> str:
    where = ", ".join(sorted({str(Path(path).parent) for path in kept}))
    return (
        f"{sum(kept.values()):,} bytes made from this corpus and its earlier states, in {where}; "
        f"to be deleted while nobody trains (what is needed is made again)"
    )


def _documents(found: Overview) -> str:
    if found.lengths is None:
        return "not known (no end-of-text id; pass --eos)"
    counted, promised_number = found.lengths.documents, found.meta.num_documents
    text = f"{counted:,}"
    text += " (by their index)" * has_doc_index(found.meta)
    if promised_number not in (-1, counted):
        text += f" (meta.json says {promised_number:,})"
    return text + (
        f"; the last one has no end-of-text token ({found.open_tokens:,} tokens)" * bool(found.open_tokens)
    )


def _tokenizer(meta: CorpusMeta, loaded: Loaded) -> str:
    name = meta.tokenizer_name_or_path or "not named"
    size = f", {meta.vocab_size:,} ids" if meta.vocab_size else ""
    encoder = f", encoded by {meta.encoder}" if meta.encoder else ""
    return f"{name}{size}{encoder}" + (
        "" if loaded.tokenizer is not None else f" (not loaded: {loaded.reason})"
    )


def _heading(excerpt: Excerpt, *, whole: bool) -> str:
    kind = f"document {excerpt.number:,}" if whole else "the first tokens"
    return f"{kind}: {excerpt.tokens:,} tokens from {excerpt.first_token:,}"


def _content(excerpt: Excerpt) -> str:
    shown = repr(excerpt.text) if excerpt.text is not None else " ".join(map(str, excerpt.ids))
    return shown + " ..." * (len(excerpt.ids) < excerpt.tokens)


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]
