"""The command ``tdstream inspect``."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tdstream.cli.arguments import (
    LoadedTokenizer,
    add_corpus_arguments,
    describe_files,
    load_corpus_tokenizer,
    reading_bar,
    whole_number,
)
from tdstream.core.errors import ConfigError, CorpusError, OutputError
from tdstream.corpus.document_index import has_doc_index
from tdstream.corpus.meta import DTYPES, CorpusMeta
from tdstream.verification.contents import LengthStatistics
from tdstream.verification.inventory import file_sizes, find_meta
from tdstream.verification.verify_report import Findings

if TYPE_CHECKING:
    from tdstream.formats.description import Description
    from tdstream.verification.described import FilesOverview
    from tdstream.verification.overview import Overview

BAR_WIDTH = 40
LISTED_SHARDS = 10


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "inspect",
        help="print what a corpus is and what is in it",
        description="Print the shards, token type, tokens, documents and tokenizer of a corpus, the first "
        "document and some random ones, and the lengths of all documents. Reads all tokens once, or only the "
        "index of document ends if there is one.",
    )
    parser.add_argument(
        "--documents",
        type=whole_number,
        default=2,
        help="random documents to show after the first (default: %(default)s; 0 for none at all)",
    )
    parser.add_argument(
        "--seed", type=whole_number, default=0, help="decides which documents (default: %(default)s)"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.png", help="also plot the lengths; needs the extra 'plot'"
    )
    add_corpus_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the overview of a corpus; return 0."""
    from tdstream.verification.overview import overview  # noqa: PLC0415 - its package imports torch

    for name in ("documents", "seed"):
        if getattr(arguments, name) < 0:
            raise ConfigError(f"--{name} must be at least 0, got {getattr(arguments, name)}.")
    if arguments.plot is not None:
        figure_class()
    description = describe_files(arguments)
    if description is not None:
        return _inspect_files(arguments, description)
    meta = _open_corpus(arguments)
    loaded = load_corpus_tokenizer(arguments)
    if meta.eos_token_id is None and loaded.tokenizer is not None:
        meta = replace(meta, eos_token_id=loaded.tokenizer.eos_token_id)
    with reading_bar(meta.total_tokens * DTYPES[meta.dtype].itemsize) as bar:
        found = overview(
            arguments.directory,
            meta,
            documents=arguments.documents,
            seed=arguments.seed,
            tokenizer=loaded.tokenizer,
            advance=bar.update,
        )
    if not arguments.documents:
        found = replace(found, excerpts=[])
    problem = "" if loaded.tokenizer is not None else loaded.reason
    print(json.dumps(found.to_json(problem), indent=2) if arguments.json else describe(found, loaded))
    if arguments.plot is not None:
        if found.lengths is None:
            raise ConfigError("--plot shows the lengths of documents, whose ends are unknown. Pass --eos.")
        plot_histogram(found.lengths, arguments.plot, found.directory)
    return 0


def _inspect_files(arguments: argparse.Namespace, description: Description) -> int:
    """Print what token files of another tool are, and why; return 0."""
    from tdstream.verification.described import overview_files  # noqa: PLC0415 - scans with tqdm

    found = overview_files(description)
    print(json.dumps(found.to_json(), indent=2) if arguments.json else _describe_files(found))
    if arguments.plot is not None and found.lengths is not None:
        plot_histogram(found.lengths, arguments.plot, found.path)
    return 0


def _describe_files(found: FilesOverview) -> str:
    fields = [
        ("format", f"{found.format}: {found.evidence}"),
        ("pieces", f"{len(found.pieces):,} of {found.stored_dtype}"),
        *(
            (
                "",
                f"{Path(piece.path).name}  {piece.tokens:,} tokens"
                + f" from byte {piece.offset:,}" * (piece.offset > 0),
            )
            for piece in found.pieces[:LISTED_SHARDS]
        ),
        *[("", f"... and {len(found.pieces) - LISTED_SHARDS:,} more")] * (len(found.pieces) > LISTED_SHARDS),
        ("tokens", f"{found.tokens:,}"),
        ("documents", found.documents),
        *(("lengths", _describe_lengths(found.lengths)) for _ in [0] if found.lengths),
        *((name.split("_")[0], str(value)) for name, value in found.facts.items()),
    ]
    width = max(len(name) for name, _ in fields)
    lines = [found.path, *(f"  {name:<{width}}  {text}" for name, text in fields)]
    lines += ["", "the first tokens", "  " + " ".join(map(str, found.first_ids))]
    if found.lengths is not None:
        lines += [
            "",
            "tokens in a document, documents",
            *(f"  {line}" for line in text_histogram(found.lengths)),
        ]
    return "\n".join(lines)


def _open_corpus(arguments: argparse.Namespace) -> CorpusMeta:
    """Return the meta.json of the corpus, after the checks made before training."""
    from tdstream.nodes.shard_source import ShardSource  # noqa: PLC0415 - imports torch

    ShardSource(arguments.directory, dtype=arguments.dtype)
    findings = Findings()
    sizes = file_sizes(arguments.directory)
    meta = find_meta(arguments.directory, sizes, arguments.dtype, arguments.eos, findings)
    if meta is None or not meta.dtype or findings.faults:
        faults = "; ".join(str(fault) for fault in findings.faults[:3])
        raise CorpusError(f"{arguments.directory} cannot be inspected: {faults}")
    return meta if meta.eos_token_id is not None else replace(meta, eos_token_id=arguments.eos)


def describe(found: Overview, loaded: LoadedTokenizer) -> str:
    """Return an overview as lines of text."""
    fields = _fields(found, loaded)
    width = max(len(name) for name, _ in fields)
    lines = [found.directory, *(f"  {name:<{width}}  {text}" for name, text in fields)]
    for excerpt in found.excerpts:
        kind = "the first tokens" if found.lengths is None else f"document {excerpt.number:,}"
        heading = f"{kind}: {excerpt.tokens:,} tokens from {excerpt.first_token:,}"
        content = " ".join(map(str, excerpt.ids)) if excerpt.text is None else repr(excerpt.text)
        lines += ["", heading, f"  {content}" + " ..." * (len(excerpt.ids) < excerpt.tokens)]
    if found.lengths is not None:
        lines += ["", "tokens in a document, documents"]
        lines += [f"  {line}" for line in text_histogram(found.lengths)]
    return "\n".join(lines)


def _fields(found: Overview, loaded: LoadedTokenizer) -> list[tuple[str, str]]:
    meta, lengths = found.meta, found.lengths
    fields = [
        ("shards", f"{len(meta.chunks):,} of {meta.dtype}"),
        *(("", f"{shard.file}  {shard.tokens:,} tokens") for shard in meta.chunks[:LISTED_SHARDS]),
        *[("", f"... and {len(meta.chunks) - LISTED_SHARDS:,} more")] * (len(meta.chunks) > LISTED_SHARDS),
        ("tokens", f"{meta.total_tokens:,}"),
        ("documents", _describe_documents(found)),
        ("tokenizer", _describe_tokenizer(meta, loaded)),
        ("eos", "unknown" if meta.eos_token_id is None else f"{meta.eos_token_id}"),
    ]
    if meta.bos_token_id is not None:
        fields.append(("bos", f"{meta.bos_token_id}, before each document"))
    if lengths is not None:
        fields.append(("lengths", _describe_lengths(lengths)))
    if found.kept:
        where = ", ".join(sorted({str(Path(path).parent) for path in found.kept}))
        text = (
            f"{sum(found.kept.values()):,} bytes derived from this corpus and its earlier states, in "
            f"{where}; may be deleted while no training runs (made again when needed)"
        )
        fields.append(("kept", text))
    return fields


def _describe_lengths(lengths: LengthStatistics) -> str:
    return (
        f"min {lengths.minimum:,}  median {lengths.median:,g}  mean {lengths.mean:,.1f}  "
        f"p99 {lengths.p99:,}  max {lengths.maximum:,} (tokens, without end-of-text)"
    )


def _describe_documents(found: Overview) -> str:
    if found.lengths is None:
        return "unknown (no end-of-text id; pass --eos)"
    counted, stated = found.lengths.documents, found.meta.num_documents
    text = f"{counted:,}" + " (by their index)" * has_doc_index(found.meta)
    if stated not in (-1, counted):
        text += f" (meta.json says {stated:,})"
    return text + (
        f"; the last one has no end-of-text token ({found.open_tokens:,} tokens)" * bool(found.open_tokens)
    )


def _describe_tokenizer(meta: CorpusMeta, loaded: LoadedTokenizer) -> str:
    name = meta.tokenizer_name_or_path or "not named"
    size = f", {meta.vocab_size:,} ids" if meta.vocab_size else ""
    encoder = f", encoded by {meta.encoder}" if meta.encoder else ""
    problem = "" if loaded.tokenizer is not None else f" (not loaded: {loaded.reason})"
    return f"{name}{size}{encoder}{problem}"


def text_histogram(statistics: LengthStatistics) -> list[str]:
    """Return a line for each bin: lengths, number of documents, and a bar."""
    ranges = [_describe_range(low, high) for low, high, _ in statistics.histogram]
    counts = [f"{count:,}" for _, _, count in statistics.histogram]
    most = max(count for _, _, count in statistics.histogram)
    left, right = max(map(len, ranges)), max(map(len, counts))
    # Rounded up, so that every non-empty bin has a bar.
    bars = ["#" * -(-count * BAR_WIDTH // most) for _, _, count in statistics.histogram]
    return [
        f"{lengths:>{left}}  {count:>{right}}  {bar}".rstrip()
        for lengths, count, bar in zip(ranges, counts, bars, strict=True)
    ]


def _describe_range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


def figure_class() -> Any:
    """Return matplotlib's Figure, which draws without a display."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError("--plot needs matplotlib: pip install 'tdstream[plot]'.") from error
    return Figure


def plot_histogram(statistics: LengthStatistics, path: Path, title: str) -> None:
    """Write the histogram of the lengths as a PNG file."""
    figure = figure_class()(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    places = range(len(statistics.histogram))
    axes.bar(places, [count for _, _, count in statistics.histogram], width=0.95)
    ranges = [_describe_range(low, high) for low, high, _ in statistics.histogram]
    axes.set_xticks(places, ranges, rotation=45, ha="right")
    axes.set(xlabel="tokens in a document", ylabel="documents", title=title)
    try:
        figure.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from error
