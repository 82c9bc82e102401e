"""The command ``tdstream locate``."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tdstream.cli.arguments import check_no_corpus, whole_number
from tdstream.core.errors import ConfigError, StateError
from tdstream.core.state_schema import COUNT, PART, SIZE, one_of, read_fields
from tdstream.corpus.meta import DTYPES

if TYPE_CHECKING:
    from tdstream.loading.locate import Located, LocatedSample
    from tdstream.nodes.shard_source import ShardSource


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "locate",
        help="print which tokens a step had or will have",
        description="Print the samples and tokens of any past or future step of a run, given one of its "
        "states.",
    )
    parser.add_argument("--state", type=Path, required=True, help="the checkpoint, as for 'tdstream state'")
    parser.add_argument(
        "--step", type=whole_number, required=True, help="the step, counted from 0 over the whole run"
    )
    parser.add_argument("--rank", type=whole_number, help="only samples of this data-parallel rank")
    parser.add_argument(
        "--data",
        type=Path,
        help="the corpus directory; needed for --decode, and for samples that do not cross documents",
    )
    parser.add_argument("--decode", action="store_true", help="also print the text")
    parser.add_argument("--tokenizer", help="tokenizer to decode with (default: the one in meta.json)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the samples of a step; return 0."""
    from tdstream.formats.description import FormatOptions  # noqa: PLC0415
    from tdstream.loading.checkpoint_file import read_state  # noqa: PLC0415
    from tdstream.loading.locate import locate_step, read_cursor  # noqa: PLC0415 - imports torch
    from tdstream.nodes.shard_source import open_source  # noqa: PLC0415

    if arguments.decode and arguments.data is None:
        raise ConfigError("--decode reads the tokens. Pass the corpus directory with --data.")
    check_no_corpus(arguments.state)
    cursor, pipeline = read_cursor(read_state(arguments.state))
    nodes = pipeline.nodes
    source, shards, readers, texts = None, None, None, None
    if arguments.data is not None:
        if "mixture" in nodes:
            raise ConfigError("--data names one corpus, but the state is of a mixture. Leave it out.")
        saved = read_fields("nodes", nodes, {"source": PART})["source"]
        dtype = read_fields("source", saved, {"dtype": one_of(*DTYPES)})["dtype"]
        source = open_source(arguments.data, FormatOptions(dtype=dtype))
        _check_same(arguments.data, source.differences(saved))
        shards = {"": (source.files, source.offsets.tolist())}
        readers = {"": _reader(arguments.data, nodes["reader"])} if "cut" in nodes["reader"] else None
    located = locate_step(cursor, pipeline, arguments.step, arguments.rank, shards, readers)
    if arguments.decode and source is not None:
        texts = _decode(arguments, source, located)
    _print(located, texts, as_json=arguments.json)
    return 0


def _reader(directory: Path, saved: dict[str, Any]) -> Any:
    """Return a reader with the identity saved in a state; refuse another corpus."""
    from tdstream.pipelines.compose import compose_corpus  # noqa: PLC0415 - imports torch
    from tdstream.schedule.windows import SampleSpec  # noqa: PLC0415 - imports torch

    if "first_document" in saved:
        raise ConfigError(
            "the state is of a range of documents and does not say which is the last. Build a loader over "
            "that range, load the state, and call its locate()."
        )
    first = saved.get("first_sample")
    if first is not None:
        part = read_fields("reader", saved, {"first_sample": COUNT, "samples": SIZE})
    samples = None if first is None else slice(first, first + part["samples"])
    names = ("seq_len", "cut", "stride", "min_tail_len", "pad_id")
    cut = SampleSpec(samples=samples, **{name: saved[name] for name in names if name in saved})
    reader = compose_corpus(directory, cut)[1]
    _check_same(directory, reader.differences(saved))
    return reader


def _check_same(directory: Path, found: list[str]) -> None:
    """Raise StateError if a corpus is not the one of the state."""
    if found:
        raise StateError(
            f"{directory} is not the corpus of the state: {'; '.join(found)}. Pass the directory of that "
            f"corpus with --data."
        )


def _decode(arguments: argparse.Namespace, source: ShardSource, located: Located) -> list[str]:
    """Return the text of each located sample."""
    from tdstream.corpus.meta import META_FILE, read_meta  # noqa: PLC0415
    from tdstream.text.tokenizer import load_tokenizer  # noqa: PLC0415

    meta = arguments.data / META_FILE
    name = arguments.tokenizer or (read_meta(meta).tokenizer_name_or_path if meta.exists() else "")
    if not name:
        raise ConfigError(f"{arguments.data} does not name its tokenizer. Name one with --tokenizer.")
    tokenizer = load_tokenizer(name)
    maps = source.open()
    firsts = dict(zip(source.files, source.offsets.tolist(), strict=False))
    rows = [
        maps.slices([firsts[piece.shard] + piece.first for piece in sample.pieces],
                    [piece.tokens for piece in sample.pieces])
        for sample in located.samples
    ]  # fmt: skip
    return [str(tokenizer.decode([token for part in row for token in part.tolist()])) for row in rows]


def _print(located: Located, texts: list[str] | None, *, as_json: bool) -> None:
    if as_json:
        rows = [asdict(sample) for sample in located.samples]
        for row, text in zip(rows, texts or [], strict=False):
            row["text"] = text
        print(json.dumps({"step": located.step, "epoch": located.epoch, "samples": rows}, indent=2))
        return
    print(f"step {located.step:,}, epoch {located.epoch:,}, {len(located.samples):,} samples")
    for number, sample in enumerate(located.samples):
        print(_line(sample))
        if texts is not None:
            print(f"    {texts[number]!r}")


def _line(sample: LocatedSample) -> str:
    places = ", ".join(
        f"{p.shard} {p.first:,}..{p.first + p.tokens - 1:,}"
        + f" (document {p.document:,})" * (p.document >= 0)
        for p in sample.pieces
    )
    rank = f"rank {sample.rank}  " if sample.rank >= 0 else ""
    first = f"  tokens from {sample.first_token:,}" * (sample.first_token >= 0)
    source = f"{sample.source}  " if sample.source else ""
    return f"  {rank}position {sample.position:,}  {source}sample {sample.index:,}{first}  {places}".rstrip()
