"""Compose the nodes over text that is tokenized into memory."""

from __future__ import annotations

from typing import Any

from tdstream.corpus.pack_plan import PackOptions, plan_in_memory
from tdstream.node import ReaderNode
from tdstream.nodes.document_chunks import DocumentChunks
from tdstream.nodes.document_marks import DocumentMarks
from tdstream.nodes.memmap_reader import MemmapReader
from tdstream.nodes.packed_documents import PackedDocuments
from tdstream.sources.chain import Chain, Cut, ordered, part
from tdstream.sources.kinds import is_dataset
from tdstream.sources.text_options import Text, records_of
from tdstream.text.known_tokenizer import tokenize_with
from tdstream.text.text_source import TextSource
from tdstream.text.text_tokens import TextTokens
from tdstream.text.tokenize import Tokenize
from tdstream.windows import DocumentCut


def memory_chain(source: Any, text: Text, tokenize: Tokenize, cut: Cut, *, quiet: bool) -> Chain:
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
    reader = part(_reader(tokens, tokenize, cut), cut)
    return tokens, reader, ordered(reader, cut)


def memory_tokenizer(text: Text, cut: Cut) -> Tokenize:
    """Return what makes tokens of the text."""
    return tokenize_with(text.tokenizer, encoder=text.encoder, strips=cut.cut == "document")


def _quickest(source: Any) -> Any:
    """Return what gives the same records; a dataset does it fastest as a stream, which takes no format."""
    if not is_dataset(source, "Dataset") or source.format["type"] == "custom":  # a transform changes texts
        return source
    return source.with_format(None).to_iterable_dataset()


def _reader(tokens: TextTokens, tokenize: Tokenize, cut: Cut) -> ReaderNode:
    if cut.cut == "document":
        how = DocumentCut.of(cut.seq_len, cut.stride, cut.min_tail_len)
        pad_id = tokenize.pad_token_id
        return DocumentChunks(tokens.open(), tokens.ends(), how, pad_id=pad_id, mark_ends=cut.documents)
    if cut.cut == "pack":
        ends, pad_id = tokens.ends(), tokenize.pad_token_id
        options = PackOptions(seq_len=cut.seq_len, documents=(0, ends.num_documents))
        return PackedDocuments(tokens.open(), ends, plan_in_memory(ends, options), options, pad_id=pad_id)
    reader = MemmapReader(tokens, seq_len=cut.seq_len, stride=cut.stride)
    return DocumentMarks(reader, tokens.ends()) if cut.documents else reader
