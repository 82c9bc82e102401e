"""tdstream's own corpora, described as the files of other tools are."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

import numpy as np

from tdstream.core.errors import CorpusError
from tdstream.corpus.document_index import ENDS_DTYPE, ends_name, has_doc_index
from tdstream.corpus.mapped_array import check_size, list_versions, map_array
from tdstream.corpus.meta import DTYPES, META_FILE, CorpusMeta, read_meta
from tdstream.formats.description import (
    DelimiterEnds,
    Description,
    Ends,
    EndsRule,
    IndexedEnds,
    Piece,
    UnknownEnds,
    check_pieces,
)

NAME = "tdstream"


def describe(directory: Path) -> Description:
    """Return a piece for each shard of a corpus.

    Raises as `read_meta` does, and if a file is missing or has another size than promised.
    """
    path = directory / META_FILE
    meta = read_meta(path)
    if meta.dtype not in DTYPES:
        raise CorpusError(f'{path} has dtype {meta.dtype!r}; tdstream reads "uint16" and "uint32".')
    dtype, versions = DTYPES[meta.dtype], list_versions(directory)
    pieces = []
    for file, tokens in meta.chunks:
        found = versions.get(file)
        check_size(directory / file, None if found is None else found.size, tokens, dtype)
        if found is not None:
            pieces.append(Piece(str(directory / file), 0, tokens, found.size, found.mtime_ns))
    facts = {
        "eos_token_id": meta.eos_token_id,
        "vocab_size": meta.vocab_size or None,
        "tokenizer_name_or_path": meta.tokenizer_name_or_path,
    }
    return Description(
        format=NAME,
        path=str(directory),
        evidence=f"it has a {META_FILE}",
        stored_dtype=meta.dtype,
        pieces=check_pieces(str(directory), pieces),
        ends=_find_ends(directory, meta),
        digest=digest_checksums(meta),
        facts={name: value for name, value in facts.items() if value not in (None, "")},
    )


def digest_checksums(meta: CorpusMeta) -> str:
    """Return a digest of all shards' checksums, "" if one is missing."""
    checksums = [meta.chunk_checksums.get(chunk.file, "") for chunk in meta.chunks]
    return hashlib.sha256("\n".join(checksums).encode()).hexdigest()[:16] if all(checksums) else ""


def _find_ends(directory: Path, meta: CorpusMeta) -> EndsRule:
    if has_doc_index(meta):
        paths = tuple(str(directory / ends_name(chunk.file)) for chunk in meta.chunks)
        counts = tuple(meta.chunk_documents[chunk.file] for chunk in meta.chunks)
        for path, count in zip(paths, counts, strict=True):
            size = Path(path).stat().st_size if Path(path).exists() else None
            check_size(Path(path), size, count, ENDS_DTYPE, "ends of documents")
        return IndexedEnds(partial(_read_ends, paths, counts), sum(counts), paths)
    if meta.eos_token_id is None:
        return UnknownEnds(
            f"{directory}: {META_FILE} names no eos_token_id, so the ends of its documents are unknown. "
            f"Add it there, or prepare the corpus again."
        )
    return DelimiterEnds(meta.eos_token_id, first=False)


def _read_ends(paths: tuple[str, ...], counts: tuple[int, ...], piece: int) -> Ends:
    ends: Ends = np.asarray(map_array(Path(paths[piece]), ENDS_DTYPE, counts[piece], "ends of documents"))
    return ends
