"""The nodes of one source: from its tokens to samples in order, or of a live stream."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tdstream.core.errors import ConfigError, CorpusError, TdstreamError, as_argument
from tdstream.core.user_cache import user_cache
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.corpus.pack_plan import PackOptions
from tdstream.distributed.topology import Topology
from tdstream.formats.description import NOTHING_TOLD, FormatOptions
from tdstream.nodes.base import DocumentSource, ReaderNode, TokenSource
from tdstream.nodes.collate import Collate
from tdstream.nodes.document_marks import DocumentMarks
from tdstream.nodes.document_windows import DocumentWindows
from tdstream.nodes.epoch_permutation import EpochPermutation
from tdstream.nodes.memmap_reader import MemmapReader
from tdstream.nodes.packed_documents import PackedDocuments
from tdstream.nodes.sample_range import SampleRange
from tdstream.nodes.shard_source import ShardSource, open_source
from tdstream.nodes.text_tokens import TextTokens
from tdstream.pipelines.views import View, select_samples
from tdstream.schedule.windows import DocumentCut, SampleSpec
from tdstream.streams.cut import StreamCut, StreamDocumentCut
from tdstream.streams.shuffle_buffer import ShuffleBuffer
from tdstream.streams.stream_pass import StreamNodes
from tdstream.streams.stream_pipeline import StreamPipeline
from tdstream.text.options import TextOptions
from tdstream.text.text_stream import open_stream
from tdstream.text.tokenize import make_tokenize

SHUFFLED_DOCUMENTS = 10_000
"""Documents of a live stream's shuffle buffer with shuffle=True and no shuffle_buffer."""

IndexedNodes = tuple[TokenSource, ReaderNode, EpochPermutation]
"""From left to right; a splitter reads the last one."""


def compose_corpus(
    source: str | Path | View | TokenSource, spec: SampleSpec, files: FormatOptions = NOTHING_TOLD
) -> IndexedNodes:
    """Return the nodes of a corpus, of a part of one, or of a token source."""
    if isinstance(source, TokenSource):
        return compose_nodes(source, spec)
    view, directory = (source, source.directory) if isinstance(source, View) else (None, source)
    return compose_nodes(open_source(directory, files), spec, view)


def compose_memory(text: TextOptions, spec: SampleSpec, *, quiet: bool) -> IndexedNodes:
    """Return the nodes of a list or a dataset, all of which is tokenized here; with a bar unless quiet."""
    tokenize = make_tokenize(text)
    return compose_nodes(TextTokens(open_stream(text, in_memory=True), tokenize, quiet=quiet), spec)


def compose_nodes(source: TokenSource, spec: SampleSpec, view: View | None = None) -> IndexedNodes:
    """Return a source, the reader that cuts samples from its tokens, and their order."""
    reader = _make_reader(source, spec, view if view is not None and view.by == "documents" else None)
    by_samples = view if view is not None and view.by == "samples" else None
    if by_samples is not None or spec.samples is not None:
        first, last = by_samples.range_of(len(reader)) if by_samples else (0, len(reader))
        reader = SampleRange(reader, *select_samples(spec.samples, first, last))
    order = EpochPermutation(
        reader, shuffle=spec.shuffle, seed=spec.seed, order=spec.order, block_samples=spec.block_samples
    )
    return source, reader, order


def _make_reader(source: TokenSource, spec: SampleSpec, view: View | None) -> ReaderNode:
    """Return what cuts samples from a source, or from a view of its documents."""
    if spec.cut == "stream" and not spec.documents and view is None:
        return MemmapReader(source, seq_len=spec.seq_len, stride=spec.stride)
    if not isinstance(source, DocumentSource):
        raise ConfigError(
            f'cut="document", cut="pack" and documents=True need to know where documents end, and '
            f"{source.what} has no ends() and pad_id. Add them to {type(source).__name__}, or leave these "
            f"options out."
        )
    ends = source.ends()
    documents = view.range_of(ends.num_documents) if view else None
    if documents is not None and documents[0] == documents[1]:
        raise ConfigError(f"a part of {source.what} has none of its {ends.num_documents:,} documents.")
    return _READERS[spec.cut](source, spec, ends, documents)


def _read_stream(
    source: DocumentSource, spec: SampleSpec, ends: DocumentEnds, documents: tuple[int, int] | None
) -> ReaderNode:
    part = None if documents is None else ends.token_range(*documents)
    reader = MemmapReader(source, seq_len=spec.seq_len, stride=spec.stride, part=part)
    return DocumentMarks(reader, ends) if spec.documents else reader


def _read_documents(
    source: DocumentSource, spec: SampleSpec, ends: DocumentEnds, documents: tuple[int, int] | None
) -> ReaderNode:
    cut = DocumentCut.of(spec.seq_len, spec.stride, spec.min_tail_len)
    counts = None
    if isinstance(source, ShardSource):  # which keeps them on disk
        counts = source.window_counts(ends, cut, documents or (0, ends.num_documents))
    return DocumentWindows(
        source,
        ends,
        cut,
        counts=counts,
        pad_id=source.pad_id if spec.pad_id is None else spec.pad_id,
        documents=documents,
        mark_ends=spec.documents,
    )


def _read_packed(
    source: DocumentSource, spec: SampleSpec, ends: DocumentEnds, documents: tuple[int, int] | None
) -> ReaderNode:
    if ends.num_documents == 0:
        raise CorpusError(f"{source.what} holds no tokens; there is nothing to pack.")
    options = PackOptions(seq_len=spec.seq_len, documents=documents or (0, ends.num_documents))
    plan = source.pack_plan(ends, options) if isinstance(source, ShardSource) else None
    pad_id = source.pad_id if spec.pad_id is None else spec.pad_id
    return PackedDocuments(source, ends, options, plan=plan, pad_id=pad_id)


_READERS = {"stream": _read_stream, "document": _read_documents, "pack": _read_packed}


def make_stream_pipeline(
    text: TextOptions,
    spec: SampleSpec,
    collate: Collate,
    shuffle_buffer: int | None,
    *,
    batch_size: int | None,
    topology: Topology,
    strict: bool,
) -> StreamPipeline:
    """Return the dataset of a live stream: an IterableDataset, a function, or anything iterable again."""
    tokenize = make_tokenize(text)
    cut: StreamCut | StreamDocumentCut
    if spec.cut == "document":
        cut = StreamDocumentCut(
            seq_len=spec.seq_len,
            stride=spec.stride,
            min_tail_len=spec.min_tail_len,
            pad_token_id=tokenize.pad_token_id,
            dtype=tokenize.dtype,
        )
    else:
        cut = StreamCut(seq_len=spec.seq_len, stride=spec.stride, dtype=tokenize.dtype)
    shuffled = SHUFFLED_DOCUMENTS if spec.shuffle else 0
    shuffle = ShuffleBuffer(shuffled if shuffle_buffer is None else shuffle_buffer, spec.seed)
    return StreamPipeline(
        StreamNodes(open_stream(text), tokenize, cut, shuffle),
        collate,
        batch_size=batch_size,
        topology=topology,
        strict=strict,
        count_samples=partial(_recall_samples, replace(text, given_tokenizer=tokenize.tokenizer), cut),
        forget_count=partial(_forget_samples, replace(text, given_tokenizer=tokenize.tokenizer), cut),
    )


def _recall_samples(text: TextOptions, cut: StreamCut | StreamDocumentCut, warns: bool) -> int | None:
    """Return the samples that a text gives, if `tdstream.count` has counted them."""
    try:
        if next(user_cache("counts").glob("count-*.json"), None) is None:
            return None
    except (OSError, RuntimeError):  # RuntimeError: there is no home directory
        return None
    # Loads datasets, which takes a second that only users of `count` wait for.
    from tdstream.preparation.count_cache import known_samples  # noqa: PLC0415

    return known_samples(text, cut=cut.document_cut, seq_len=cut.seq_len, stride=cut.stride, warns=warns)


def _forget_samples(text: TextOptions, cut: StreamCut | StreamDocumentCut) -> None:
    """Remove the count that `_recall_samples` found."""
    from tdstream.preparation.count_cache import forget_count  # noqa: PLC0415

    with suppress(TdstreamError):
        forget_count(text, cut.document_cut)


_OPTIONS = ("text_field", "encoder", "num_proc", "prepend_bos")  # of a preparation that `build` takes as well


def add_pad_id(spec: SampleSpec, text: TextOptions) -> SampleSpec:
    """Return the spec with the tokenizer's own pad id, which a corpus does not store."""
    return spec if spec.cut == "stream" else replace(spec, pad_id=make_tokenize(text).pad_token_id)


def corpus_in_cache(text: TextOptions, cache_dir: Any, topology: Topology) -> Path:
    """Return the corpus of a text, after preparing it or waiting for it; rank 0 goes first."""
    # Loads datasets and transformers, which takes seconds that a reader of a corpus does not wait.
    from tdstream.preparation.cache import cached_corpus  # noqa: PLC0415
    from tdstream.preparation.result import Bar  # noqa: PLC0415

    is_first = topology.dp_rank == 0
    try:
        with Bar(visible=is_first) as bar:
            return cached_corpus(text, Path(cache_dir).absolute(), goes_first=is_first, observe=lambda: bar)
    except TdstreamError as error:
        error.spell(_as_argument)
        raise


def _as_argument(name: str, value: str) -> str:
    """Spell an option; one that `build` does not have is an argument of `tdstream.prepare`."""
    return as_argument(name, value) + ("" if name in _OPTIONS else " to tdstream.prepare")
