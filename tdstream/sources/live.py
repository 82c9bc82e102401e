"""Compose the nodes of a live stream."""

from __future__ import annotations

from typing import Any

from tdstream.nodes.collate import Collate
from tdstream.sources.chain import Cut
from tdstream.sources.text_options import Text, records_of
from tdstream.streams.pipeline import StreamPipeline
from tdstream.streams.stream_pass import StreamNodes
from tdstream.text.chunk import Chunk
from tdstream.text.document_chunk import DocumentChunk
from tdstream.text.known_count import known_samples
from tdstream.text.known_tokenizer import tokenize_with
from tdstream.text.shuffle_buffer import ShuffleBuffer
from tdstream.text.text_source import TextSource
from tdstream.topology import Topology

SHUFFLED_DOCUMENTS = 10_000
"""Documents of the shuffle buffer where shuffle=True, and none was asked for."""


def live_pipeline(
    source: Any,
    text: Text,
    cut: Cut,
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
    chunk: Chunk | DocumentChunk
    if is_document:
        chunk = DocumentChunk(
            seq_len=cut.seq_len,
            stride=cut.stride,
            min_tail_len=cut.min_tail_len,
            pad_token_id=tokenize.pad_token_id,
            dtype=tokenize.dtype,
        )
    else:
        chunk = Chunk(seq_len=cut.seq_len, stride=cut.stride, dtype=tokenize.dtype)
    nodes = StreamNodes(
        TextSource(records_of(source), text_field=text.text_field),
        tokenize,
        chunk,
        ShuffleBuffer(_buffer(cut.shuffle, text.shuffle_buffer), cut.seed),
    )
    collate = Collate(batched=batch_size is not None, labels=labels)
    pipeline = StreamPipeline(nodes, collate, batch_size=batch_size, topology=topology, strict=strict)
    if batch_size is not None:
        samples = known_samples(source, tokenize.tokenizer, text.text_field, chunk)
        pipeline.counted_batches = samples and samples // (batch_size * topology.dp_world_size)
    return pipeline


def _buffer(shuffle: bool | str, shuffle_buffer: int | None) -> int:
    if shuffle_buffer is not None:
        return shuffle_buffer
    return SHUFFLED_DOCUMENTS if shuffle else 0
