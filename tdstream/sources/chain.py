"""Compose the indexed nodes of one source, from what lies on disk to an order of samples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from numpy.typing import DTypeLike

from tdstream.checks import flag, whole
from tdstream.corpus.corpus_ends import corpus_ends, pad_id_of
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.corpus.pack_plan import PackOptions, plan_of
from tdstream.corpus.window_counts import counts_of
from tdstream.errors import ConfigError, CorpusError
from tdstream.node import Node, ReaderNode
from tdstream.nodes.document_chunks import DocumentChunks
from tdstream.nodes.document_marks import DocumentMarks
from tdstream.nodes.epoch_permutation import EpochPermutation
from tdstream.nodes.memmap_reader import MemmapReader
from tdstream.nodes.packed_documents import PackedDocuments
from tdstream.nodes.sample_range import SampleRange
from tdstream.nodes.shard_source import ShardSource
from tdstream.views import View, part_of
from tdstream.windows import DocumentCut

CUTS = ("stream", "document", "pack")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """How samples are cut from a source and ordered; the fields are `build`'s arguments.

    Raises:
        ConfigError: If two of them do not go together.
    """

    seq_len: int
    stride: int | None = None
    cut: str = "stream"
    min_tail_len: int | None = None
    pad_id: int | None = None
    documents: bool = False
    samples: slice | None = None
    shuffle: bool | str = False
    seed: int = 42
    order: str = "feistel"
    block_samples: int = 1024

    def __post_init__(self) -> None:
        for name, least in (("seq_len", 1), ("stride", 1), ("min_tail_len", 0)):
            value = getattr(self, name)
            if value is not None or name == "seq_len":
                object.__setattr__(self, name, whole(name, value, at_least=least))  # frozen from now on
        flag("documents", self.documents)
        if self.cut not in CUTS:
            raise ConfigError(f'cut must be "stream", "document" or "pack", got {self.cut!r}.')
        if self.stride is not None and self.cut == "pack":
            raise ConfigError('stride has no meaning with cut="pack": its rows never overlap. Leave it out.')
        if self.min_tail_len is not None and self.cut != "document":
            raise ConfigError(f'min_tail_len belongs to cut="document", not to cut="{self.cut}".')

    @property
    def marks_ends(self) -> bool:
        """Whether rows say where documents end."""
        return self.documents or self.cut == "pack"


Chain = tuple[Node, ReaderNode, EpochPermutation]


def shard_chain(source: str | Path | View, cut: Cut, *, dtype: DTypeLike | None = None) -> Chain:
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
    reader = part(_reader(shards, cut, view), cut, view)
    return shards, reader, ordered(reader, cut)


def ordered(reader: ReaderNode, cut: Cut) -> EpochPermutation:
    """Return the samples in the order that was asked for."""
    return EpochPermutation(
        reader, shuffle=cut.shuffle, seed=cut.seed, order=cut.order, block_samples=cut.block_samples
    )


def _reader(shards: ShardSource, cut: Cut, view: View | None) -> ReaderNode:
    by_documents = view if view is not None and view.by == "documents" else None
    if cut.cut == "stream" and not cut.documents and by_documents is None:
        return MemmapReader(shards, seq_len=cut.seq_len, stride=cut.stride)
    ends = corpus_ends(shards.directory, shards.files, shards.offsets, shards.dtype)
    documents = by_documents.range_of(ends.num_documents) if by_documents else None
    if documents is not None and documents[0] == documents[1]:
        raise ConfigError(f"a part of {shards.directory} holds none of its {ends.num_documents:,} documents.")
    return _READERS[cut.cut](shards, cut, ends, documents)


def _stream(
    shards: ShardSource, cut: Cut, ends: DocumentEnds, documents: tuple[int, int] | None
) -> ReaderNode:
    part = None if documents is None else ends.tokens_of(*documents)
    reader = MemmapReader(shards, seq_len=cut.seq_len, stride=cut.stride, part=part)
    return DocumentMarks(reader, ends) if cut.documents else reader


def _document(
    shards: ShardSource, cut: Cut, ends: DocumentEnds, documents: tuple[int, int] | None
) -> ReaderNode:
    how = DocumentCut.of(cut.seq_len, cut.stride, cut.min_tail_len)
    return DocumentChunks(
        shards.open(),
        ends,
        how,
        counts=counts_of(shards.directory, ends, how, documents or (0, ends.num_documents)),
        pad_id=_pad_id(shards, cut),
        documents=documents,
        mark_ends=cut.documents,
    )


def _pack(shards: ShardSource, cut: Cut, ends: DocumentEnds, documents: tuple[int, int] | None) -> ReaderNode:
    if ends.num_documents == 0:
        raise CorpusError(f"{shards.directory} holds no tokens; there is nothing to pack.")
    options = PackOptions(seq_len=cut.seq_len, documents=documents or (0, ends.num_documents))
    plan = plan_of(shards.directory, ends, options)
    return PackedDocuments(shards.open(), ends, plan, options, pad_id=_pad_id(shards, cut))


def _pad_id(shards: ShardSource, cut: Cut) -> int:
    return pad_id_of(shards.directory) if cut.pad_id is None else cut.pad_id


_READERS = {"stream": _stream, "document": _document, "pack": _pack}


def part(reader: ReaderNode, cut: Cut, view: View | None = None) -> ReaderNode:
    """Return the samples that were asked for."""
    by_samples = view is not None and view.by == "samples"
    if not by_samples and cut.samples is None:
        return reader
    first, last = view.range_of(len(reader)) if view is not None and by_samples else (0, len(reader))
    return SampleRange(reader, *part_of(cut.samples, first, last))
