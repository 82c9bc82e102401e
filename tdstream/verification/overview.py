"""Overview of a corpus: its shards, its documents, their lengths, and some excerpts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tdstream.corpus.derived import list_derived
from tdstream.corpus.document_index import has_doc_index, read_ends
from tdstream.corpus.meta import DTYPES, CorpusMeta
from tdstream.corpus.shard_reader import PIECE_BYTES, TokenFiles
from tdstream.verification.contents import Document, DocumentScan, LengthStatistics

SHOWN_TOKENS = 200
"""Tokens shown of a document."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Excerpt:
    """The beginning of a document."""

    number: int
    first_token: int
    tokens: int
    """Length of the whole document."""
    ids: list[int]
    """At most SHOWN_TOKENS."""
    text: str | None
    """The decoded ids; None without a tokenizer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    """Facts about a corpus, and excerpts of its documents."""

    directory: str
    meta: CorpusMeta
    lengths: LengthStatistics | None
    """None if the end-of-text id is unknown."""
    open_tokens: int
    """Tokens after the last end-of-text token; they count as a document."""
    excerpts: list[Excerpt]
    """The first document and some random ones; the first tokens if the end-of-text id is unknown."""
    kept: dict[str, int]
    """Path of a file derived from the corpus -> its bytes."""

    def to_json(self, tokenizer_problem: str) -> dict[str, Any]:
        """Return the overview in JSON types; the problem is why there are no texts, empty if there are."""
        meta = self.meta
        return {
            "directory": self.directory,
            "dtype": meta.dtype,
            "tokens": meta.total_tokens,
            "bytes": meta.total_tokens * DTYPES[meta.dtype].itemsize,
            "chunks": [shard._asdict() for shard in meta.chunks],
            "tokenizer": meta.tokenizer_name_or_path,
            "tokenizer_fingerprint": meta.tokenizer_fingerprint,
            "tokenizer_problem": tokenizer_problem,
            "vocab_size": meta.vocab_size,
            "encoder": meta.encoder,
            "eos_token_id": meta.eos_token_id,
            **({} if meta.bos_token_id is None else {"bos_token_id": meta.bos_token_id}),
            "num_documents": meta.num_documents if meta.num_documents >= 0 else None,
            "doc_index": has_doc_index(meta),
            "open_tokens": self.open_tokens,
            "lengths": None if self.lengths is None else asdict(self.lengths),
            "documents": [asdict(excerpt) for excerpt in self.excerpts],
            "kept": self.kept,
        }


def overview(
    directory: Path,
    meta: CorpusMeta,
    *,
    documents: int,
    seed: int,
    tokenizer: Any = None,
    piece_bytes: int = PIECE_BYTES,
    advance: Callable[[int], object] | None = None,
) -> Overview:
    """Read a corpus of the right sizes once, or only its index, in bounded memory.

    Shows the first document and `documents` random ones. `advance` is called with the bytes of each piece.
    """
    files = TokenFiles(directory, DTYPES[meta.dtype], meta.chunks)
    if meta.eos_token_id is None:
        shown = [Document(0, 0, meta.total_tokens)]
        lengths, rest = None, meta.total_tokens
    else:
        scan = DocumentScan(meta.eos_token_id, samples=documents, seed=seed)
        for num_bytes in _feed(scan, files, meta, piece_bytes):
            if advance is not None:
                advance(num_bytes)
        rest = scan.rest
        scan.finish()
        first = [] if scan.first_document is None else [scan.first_document]
        shown = list(dict.fromkeys([*first, *scan.chosen]))
        lengths = scan.lengths.statistics()
    return Overview(
        directory=str(directory),
        meta=meta,
        lengths=lengths,
        open_tokens=rest,
        excerpts=[_make_excerpt(files, document, tokenizer) for document in shown],
        kept={str(path): size for path, size in list_derived(directory).items()},
    )


def _feed(scan: DocumentScan, files: TokenFiles, meta: CorpusMeta, piece_bytes: int) -> Iterator[int]:
    """Scan a corpus; yield the bytes of each piece."""
    if has_doc_index(meta):
        for shard in meta.chunks:
            scan.feed_ends(read_ends(files.directory, meta, shard.file) - 1, shard.tokens)
            yield shard.tokens * files.dtype.itemsize
        return
    for piece in files.pieces(piece_bytes):
        scan.feed(piece)
        yield piece.nbytes


def _make_excerpt(files: TokenFiles, document: Document, tokenizer: Any) -> Excerpt:
    ids = files.read(document.first, min(document.tokens, SHOWN_TOKENS)).tolist()
    return Excerpt(
        number=document.number,
        first_token=document.first,
        tokens=document.tokens,
        ids=ids,
        text=None if tokenizer is None else str(tokenizer.decode(ids, clean_up_tokenization_spaces=False)),
    )
