"""Compose the nodes of a live stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tdstream.chain import Cut
from tdstream.errors import ConfigError
from tdstream.kinds import is_dataset
from tdstream.nodes.collate import Collate
from tdstream.stream_pass import StreamNodes
from tdstream.streaming import StreamPipeline
from tdstream.text.chunk import Chunk
from tdstream.text.counted_records import CountedRecords
from tdstream.text.dataset_records import DatasetRecords
from tdstream.text.document_chunk import DocumentChunk
from tdstream.text.indexed_records import IndexedRecords
from tdstream.text.known_tokenizer import tokenize_with
from tdstream.text.records import Records
from tdstream.text.shuffle_buffer import ShuffleBuffer
from tdstream.text.text_source import TextSource
from tdstream.topology import Topology

SHUFFLED_DOCUMENTS = 10_000
"""Documents of the shuffle buffer where shuffle=True, and none was asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """How text becomes tokens; the fields are `build`'s arguments."""

    tokenizer: Any
    text_field: str = "text"
    encoder: str = "auto"
    shuffle_buffer: int | None = None


def live_pipeline(
    source: Any,
    text: Text,
    cut: Cut,
    *,
    batch_size: int | None,
    labels: str,
    tail: str,
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
        tail: "drop"; there is nothing to fill the last batch of a stream from.
        topology: This rank, and how many there are.
        strict: Whether states of other text or settings are refused.

    Raises:
        ConfigError: If an argument is out of range, or a live stream cannot follow it.
        TokenizerError: If there is no usable tokenizer.
    """
    if tail != "drop":
        raise ConfigError(
            f'a live stream takes only tail="drop", got {tail!r}; its beginning is gone by then.'
        )
    if cut.cut == "pack" or cut.documents or cut.samples is not None:
        raise ConfigError(
            'cut="pack", documents=True and samples= need all documents at hand, and a live stream has seen '
            "only its past. Prepare the text once, with cache_dir=..."
        )
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
    return StreamPipeline(nodes, collate, batch_size=batch_size, topology=topology, strict=strict)


def records_of(source: Any) -> Records:
    """Return the records of a source that is read from its beginning to its end."""
    if is_dataset(source, "IterableDataset"):
        return DatasetRecords(source)
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return IndexedRecords(source)
    return CountedRecords(source)


def _buffer(shuffle: bool | str, shuffle_buffer: int | None) -> int:
    if shuffle not in (True, False):
        raise ConfigError(f"shuffle must be True or False for a live stream, got {shuffle!r}.")
    if shuffle_buffer is not None:
        return shuffle_buffer
    return SHUFFLED_DOCUMENTS if shuffle else 0
