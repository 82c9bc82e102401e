"""Compose the indexed nodes of one source, from what lies on disk to an order of samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import DTypeLike

from tdstream.core.errors import ConfigError, CorpusError
from tdstream.core.user_cache import user_cache
from tdstream.corpus.derived import counts_of
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.corpus.document_index import corpus_ends, pad_id_of
from tdstream.corpus.pack_plan import PackOptions, plan_in_memory, plan_of
from tdstream.distributed.topology import Topology
from tdstream.nodes.base import Node, ReaderNode
from tdstream.nodes.collate import Collate
from tdstream.nodes.document_marks import DocumentMarks
from tdstream.nodes.document_windows import DocumentWindows
from tdstream.nodes.epoch_permutation import EpochPermutation
from tdstream.nodes.memmap_reader import MemmapReader
from tdstream.nodes.packed_documents import PackedDocuments
from tdstream.nodes.sample_range import SampleRange
from tdstream.nodes.shard_source import ShardSource
from tdstream.nodes.text_tokens import TextTokens
from tdstream.pipelines.source_kind import Text, is_dataset, records_of
from tdstream.pipelines.views import View, part_of
from tdstream.schedule.sample_spec import SampleSpec
from tdstream.schedule.windows import DocumentCut
from tdstream.streams.cut import StreamCut, StreamDocumentCut
from tdstream.streams.shuffle_buffer import ShuffleBuffer
from tdstream.streams.stream_pass import StreamNodes
from tdstream.streams.stream_pipeline import StreamPipeline
from tdstream.text.text_source import TextSource
from tdstream.text.tokenize import Tokenize, tokenize_with

Chain = tuple[Node, ReaderNode, EpochPermutation]


def shard_chain(source: str | Path | View, cut: SampleSpec, *, dtype: DTypeLike | None = None) -> Chain:
    """Return the nodes of a corpus directory, from left to right; the last one is read by a splitter.

    Args:
        source: The corpus, or a part of it.
        cut: How its samples are cut and ordered.
        dtype: "uint16" or "uint32", where it has no meta.json.

    Raises:
        TdstreamError: As `build`.
    """
    view, directory = (source, source.directory) if isinstance(source, View) else (None, source)
    shards = ShardSource(directory, dtype=dtype)
    reader = part(_shard_reader(shards, cut, view), cut, view)
    return shards, reader, ordered(reader, cut)


def ordered(reader: ReaderNode, cut: SampleSpec) -> EpochPermutation:
    """Return the samples in the order that was asked for."""
    return EpochPermutation(
        reader, shuffle=cut.shuffle, seed=cut.seed, order=cut.order, block_samples=cut.block_samples
    )


def _shard_reader(shards: ShardSource, cut: SampleSpec, view: View | None) -> ReaderNode:
    by_documents = view if view is not None and view.by == "documents" else None
    if cut.cut == "stream" and not cut.documents and by_documents is None:
        return MemmapReader(shards, seq_len=cut.seq_len, stride=cut.stride)
    ends = corpus_ends(shards.directory, shards.files, shards.offsets, shards.dtype)
    documents = by_documents.range_of(ends.num_documents) if by_documents else None
    if documents is not None and documents[0] == documents[1]:
        raise ConfigError(f"a part of {shards.directory} holds none of its {ends.num_documents:,} documents.")
    return _READERS[cut.cut](shards, cut, ends, documents)


def _stream(
    shards: ShardSource, cut: SampleSpec, ends: DocumentEnds, documents: tuple[int, int] | None
) -> ReaderNode:
    part = None if documents is None else ends.tokens_of(*documents)
    reader = MemmapReader(shards, seq_len=cut.seq_len, stride=cut.stride, part=part)
    return DocumentMarks(reader, ends) if cut.documents else reader


def _document(
    shards: ShardSource, cut: SampleSpec, ends: DocumentEnds, documents: tuple[int, int] | None
) -> ReaderNode:
    how = DocumentCut.of(cut.seq_len, cut.stride, cut.min_tail_len)
    return DocumentWindows(
        shards.open(),
        ends,
        how,
        counts=counts_of(shards.directory, ends, how, documents or (0, ends.num_documents)),
        pad_id=_pad_id(shards, cut),
        documents=documents,
        mark_ends=cut.documents,
    )


def _pack(
    shards: ShardSource, cut: SampleSpec, ends: DocumentEnds, documents: tuple[int, int] | None
) -> ReaderNode:
    if ends.num_documents == 0:
        raise CorpusError(f"{shards.directory} holds no tokens; there is nothing to pack.")
    options = PackOptions(seq_len=cut.seq_len, documents=documents or (0, ends.num_documents))
    plan = plan_of(shards.directory, ends, options)
    return PackedDocuments(shards.open(), ends, plan, options, pad_id=_pad_id(shards, cut))


def _pad_id(shards: ShardSource, cut: SampleSpec) -> int:
    return pad_id_of(shards.directory) if cut.pad_id is None else cut.pad_id


_READERS = {"stream": _stream, "document": _document, "pack": _pack}


def part(reader: ReaderNode, cut: SampleSpec, view: View | None = None) -> ReaderNode:
    """Return the samples that were asked for."""
    by_samples = view is not None and view.by == "samples"
    if not by_samples and cut.samples is None:
        return reader
    first, last = view.range_of(len(reader)) if view is not None and by_samples else (0, len(reader))
    return SampleRange(reader, *part_of(cut.samples, first, last))


SHUFFLED_DOCUMENTS = 10_000
"""Documents of the shuffle buffer where shuffle=True, and none was asked for."""


def live_pipeline(
    source: Any,
    text: Text,
    cut: SampleSpec,
    *,
    batch_size: int | None,
    labels: str,
    topology: Topology,
    strict: bool,
) -> StreamPipeline:
    """Return the dataset of a live stream.

    Args:
        source: An IterableDataset, a function that returns an iterator, or anything iterable again and again.
        text: How text becomes tokens.
        cut: How samples are cut from it and ordered.
        batch_size: B, samples per rank and step.
        labels: As Collate's.
        topology: This rank, and how many there are.
        strict: Whether states of other text or settings are refused.

    Raises:
        ConfigError: If an argument is out of range.
        TokenizerError: If there is no usable tokenizer.
    """
    is_document = cut.cut == "document"
    tokenize = tokenize_with(text.tokenizer, encoder=text.encoder, strips=is_document)
    chunk: StreamCut | StreamDocumentCut
    if is_document:
        chunk = StreamDocumentCut(
            seq_len=cut.seq_len,
            stride=cut.stride,
            min_tail_len=cut.min_tail_len,
            pad_token_id=tokenize.pad_token_id,
            dtype=tokenize.dtype,
        )
    else:
        chunk = StreamCut(seq_len=cut.seq_len, stride=cut.stride, dtype=tokenize.dtype)
    nodes = StreamNodes(
        TextSource(records_of(source), text_field=text.text_field),
        tokenize,
        chunk,
        ShuffleBuffer(_buffer(cut.shuffle, text.shuffle_buffer), cut.seed),
    )
    collate = Collate(batched=batch_size is not None, labels=labels)
    pipeline = StreamPipeline(nodes, collate, batch_size=batch_size, topology=topology, strict=strict)
    if batch_size is not None:
        samples = _known_samples(source, tokenize, text.text_field, chunk)
        pipeline.counted_batches = samples and samples // (batch_size * topology.dp_world_size)
    return pipeline


def _buffer(shuffle: bool | str, shuffle_buffer: int | None) -> int:
    if shuffle_buffer is not None:
        return shuffle_buffer
    return SHUFFLED_DOCUMENTS if shuffle else 0


def memory_chain(source: Any, text: Text, tokenize: Tokenize, cut: SampleSpec, *, quiet: bool) -> Chain:
    """Return the nodes over a list or a dataset, from left to right; all of it is tokenized here.

    Args:
        source: It.
        text: How text is read.
        tokenize: Makes tokens of it.
        cut: How samples are cut and ordered.
        quiet: Whether no bar is shown.

    Raises:
        SourceError: If a record holds no text.
        CorpusError: If there is not enough text for one sample.
    """
    records = records_of(_quickest(source))
    tokens = TextTokens(TextSource(records, text_field=text.text_field), tokenize, quiet=quiet)
    reader = part(_memory_reader(tokens, tokenize, cut), cut)
    return tokens, reader, ordered(reader, cut)


def memory_tokenizer(text: Text, cut: SampleSpec) -> Tokenize:
    """Return what makes tokens of the text."""
    return tokenize_with(text.tokenizer, encoder=text.encoder, strips=cut.cut == "document")


def _quickest(source: Any) -> Any:
    """Return what gives the same records; a dataset does it fastest as a stream, which takes no format."""
    if not is_dataset(source, "Dataset") or source.format["type"] == "custom":  # a transform changes texts
        return source
    return source.with_format(None).to_iterable_dataset()


def _memory_reader(tokens: TextTokens, tokenize: Tokenize, cut: SampleSpec) -> ReaderNode:
    if cut.cut == "document":
        how = DocumentCut.of(cut.seq_len, cut.stride, cut.min_tail_len)
        pad_id = tokenize.pad_token_id
        return DocumentWindows(tokens.open(), tokens.ends(), how, pad_id=pad_id, mark_ends=cut.documents)
    if cut.cut == "pack":
        ends, pad_id = tokens.ends(), tokenize.pad_token_id
        options = PackOptions(seq_len=cut.seq_len, documents=(0, ends.num_documents))
        return PackedDocuments(tokens.open(), ends, plan_in_memory(ends, options), options, pad_id=pad_id)
    reader = MemmapReader(tokens, seq_len=cut.seq_len, stride=cut.stride)
    return DocumentMarks(reader, tokens.ends()) if cut.documents else reader


def _known_samples(
    source: Any, tokenize: Tokenize, text_field: str, chunk: StreamCut | StreamDocumentCut
) -> int | None:
    """Return the samples that a source gives, if they were counted before."""
    try:
        if next(user_cache("counts").glob("count-*.json"), None) is None:
            return None
    except (OSError, RuntimeError):  # RuntimeError: nobody's home.
        return None
    # Loads datasets, which takes a second that only who has counted waits.
    from tdstream.preparation.count import known_samples  # noqa: PLC0415

    cut = chunk.cut if isinstance(chunk, StreamDocumentCut) else None
    stride = chunk.cut.stride if isinstance(chunk, StreamDocumentCut) else chunk.stride
    return known_samples(
        source, tokenize.tokenizer, text_field, cut=cut, seq_len=chunk.seq_len, stride=stride
    )
