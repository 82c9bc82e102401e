"""Packed rows and batches with documents: speed, padding, and the documents that plain windows cut in two.

    python benchmarks/documents.py [--quick]

Document lengths are log-normal, as those of web pages: the median is 400 tokens, the mean 800.

plan         cut="pack" over 4 million documents, from their ends in memory to a plan on disk, in CPU time;
             the share of padding, and the share of documents cut in two, compared with plain windows
build        cut="document" over the same documents: the time to count their windows
scan         end-of-text tokens of a corpus without an index
throughput   tdstream.loader(...) with documents=True and with each cut against a plain one, shuffled, from a
             warm page cache, in CPU time: alone, compared with a plain one that also fills arrays of the
             fields' size with one number, and with a step of about 5 ms after each batch

Targets: 5 million documents planned per minute, padding at most 1 %, throughput / plain at least 0.80.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measuring import alternate, endless, options, rate, table, timed
from numpy.typing import NDArray
from state_cost import small_step

import tdstream
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.corpus.document_index import corpus_ends
from tdstream.corpus.pack_plan import PackOptions, find_pack_plan
from tdstream.nodes.document_windows import DocumentWindows
from tdstream.schedule.windows import DocumentCut

Ends = NDArray[np.int64]


def ends_of(documents: int) -> Ends:
    """Return the ends of documents of log-normal lengths."""
    lengths = np.random.default_rng(0).lognormal(np.log(400), 1.18, documents)
    return np.cumsum(np.maximum(lengths, 1).astype(np.int64))


@contextmanager
def corpus(num_tokens: int, shards: int, place: Path | None) -> Iterator[Path]:
    """Make a corpus of random tokens with an index of documents."""
    generator, ends, size = np.random.default_rng(0), ends_of(num_tokens // 700), num_tokens // shards
    meta = {
        "dtype": "uint16",
        "eos_token_id": 0,
        "total_tokens": size * shards,
        "chunks": [],
        "chunk_documents": {},
    }
    with tempfile.TemporaryDirectory(prefix="tdstream-bench-", dir=place) as name:
        for number in range(shards):
            file = f"chunk_{number:06d}.bin"
            own = ends[(ends > number * size) & (ends <= (number + 1) * size)] - number * size
            tokens = generator.integers(1, 50_000, size, dtype="<u2")
            tokens[own - 1] = 0
            tokens.tofile(Path(name) / file)
            own.astype("<i8").tofile(Path(name) / file.replace(".bin", ".ends"))
            meta["chunks"].append({"file": file, "tokens": size})
            meta["chunk_documents"][file] = len(own)
        index = {"doc_index": {"version": 1, "suffix": ".ends", "dtype": "int64"}}
        (Path(name) / "meta.json").write_text(json.dumps(meta | index))
        yield Path(name)


def plans(documents: int, place: Path | None) -> None:
    """Measure plans: speed, padding, and documents cut in two."""
    ends = ends_of(documents)
    known = DocumentEnds.of(ends, int(ends[-1]))
    lengths = np.diff(ends, prepend=0)
    print(f"\nplan of {documents:,} documents, {ends[-1]:,} tokens")
    for seq_len in (1024, 2048, 8192):
        with tempfile.TemporaryDirectory(prefix="tdstream-bench-", dir=place) as name:
            how = PackOptions(seq_len=seq_len, documents=(0, documents))
            begin = time.process_time()
            plan = find_pack_plan(Path(name), known, how)
            seconds = time.process_time() - begin
        padding = 1 - ends[-1] / (plan.num_rows * seq_len)
        plain = np.mean((ends - 1) // (seq_len + 1) != (ends - lengths) // (seq_len + 1))
        print(
            f"T={seq_len:5}: {documents / seconds * 60 / 1e6:6.1f} M documents/min, padding {padding:.4%}; "
            f"cut in two: {np.mean(lengths > seq_len):.1%}, by plain windows {plain:.1%}"
        )
    cut = DocumentCut.of(2048, None, None)
    seconds = timed(lambda: DocumentWindows(_Tokens(), known, cut), time.process_time)
    print(f'build of cut="document", T=2048: {seconds / documents * 1e9:.0f} ns per document')


FIELDS = {
    "the mask": (np.int64,),
    "ids, positions": (np.int32, np.int64),
    "all three": (np.int64, np.int32, np.int64),
}
"""The fields that are as large as a batch: of cut="document", of documents=True, and of both."""


class _Tokens:
    """A source that is never read."""

    dtype = np.dtype("<u2")


def scan(directory: Path) -> None:
    """Measure the search for document ends without an index."""
    meta = json.loads((directory / "meta.json").read_text())
    (directory / "meta.json").write_text(json.dumps({**meta, "doc_index": {}}))
    files, sizes = zip(*((chunk["file"], chunk["tokens"]) for chunk in meta["chunks"]), strict=True)
    offsets = np.cumsum([0, *sizes])
    seconds = timed(lambda: corpus_ends(directory, files, offsets, np.dtype("<u2")), time.process_time)
    print(f"\nscan: {offsets[-1] / seconds / 1e6:,.0f} million tokens/s")


def with_step(loader: tdstream.Loader, step: Callable[[], object]) -> Iterator[object]:
    """Take a step after each batch."""
    for _ in endless(lambda: loader):
        yield step()


def with_fields(
    loader: tdstream.Loader, dtypes: Sequence[type], shape: tuple[int, int]
) -> Iterator[list[NDArray[Any]]]:
    """Yield arrays filled with one number after each batch: the least that more fields can cost."""
    for _ in endless(lambda: loader):
        yield [np.full(shape, 1, dtype) for dtype in dtypes]


def throughput(directory: Path, batch_size: int, seq_len: int, rounds: int, title: str) -> None:
    """Print a table of all kinds of loaders, and one of the same with steps."""
    kinds = {
        "plain": {},
        "documents=True": {"documents": True},
        'cut="document"': {"cut": "document"},
        'cut="document", documents=True': {"cut": "document", "documents": True},
        'cut="pack"': {"cut": "pack"},
    }
    make = partial(tdstream.loader, directory, seq_len=seq_len, batch_size=batch_size, shuffle=True)
    alone = {
        name: partial(rate, endless(partial(make, **kind)), seconds=0.05, clock=time.process_time)
        for name, kind in kinds.items()
    }
    for name, dtypes in FIELDS.items():
        bound = with_fields(make(), dtypes, (batch_size, seq_len))
        alone[f"plain, and {name} filled"] = partial(rate, bound, seconds=0.05, clock=time.process_time)
    table(f"{title}, alone", alternate(alone, rounds), "Mtok/s", ["plain"], batch_size * seq_len / 1e6)
    step = small_step()
    stepped = {
        name: partial(rate, with_step(make(**kind), step), seconds=0.4, clock=time.process_time, warm_up=3)
        for name, kind in kinds.items()
    }
    results = alternate(stepped, max(rounds // 2, 3))
    table(f"{title}, with a step of 5 ms", results, "batches/s", ["plain"])


def main() -> None:
    """Measure and print."""
    flags = options(__doc__)
    plans(1_000_000 if flags.quick else 4_000_000, flags.dir)
    for shards in (1, 16):
        with corpus(64_000_000, shards, flags.dir) as directory:
            for batch_size, seq_len in ((8, 2048), (64, 1024)):
                title = f"B={batch_size}, T={seq_len}, shards: {shards}"
                throughput(directory, batch_size, seq_len, 5 if flags.quick else 21, title)
            if shards == 1:
                scan(directory)


if __name__ == "__main__":
    main()
