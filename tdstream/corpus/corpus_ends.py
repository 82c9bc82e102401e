"""Where the documents of a corpus end: from its index, and where it has none, from its end-of-text tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.corpus.doc_index import ends_name, has_doc_index
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.corpus.ends_files import EndsFiles, check_sizes
from tdstream.corpus.eos_scan import Scan, scanned_ends
from tdstream.corpus.meta import META_FILE, CorpusMeta, read_meta
from tdstream.errors import ConfigError


def corpus_ends(
    directory: Path, files: Sequence[str], offsets: NDArray[np.int64], dtype: np.dtype[Any]
) -> DocumentEnds:
    """Return the ends of a corpus's documents; without an index of them all shards are read, once.

    Args:
        directory: The corpus.
        files: Its shards, in order.
        offsets: int64 [num_shards + 1], where they begin in the stream of tokens.
        dtype: Their storage type.

    Raises:
        ConfigError: If there is neither an index nor a known end-of-text token.
        OutputError: If what was found can be kept nowhere.
    """
    meta = _meta(directory)
    if meta is not None and has_doc_index(meta):
        return _indexed(directory, meta, offsets)
    if meta is None:
        raise ConfigError(
            f"{directory} does not tell where its documents end: it has no {META_FILE}. Prepare the corpus, "
            f"or read it as one stream: without documents=True, and with no cut but the default."
        )
    if meta.eos_token_id is None:
        raise ConfigError(
            f"{directory} does not tell where its documents end: {META_FILE} names no eos_token_id. "
            f"Add it there, or prepare the corpus again."
        )
    scan = Scan(
        directory=directory, files=files, dtype=dtype, eos_token_id=meta.eos_token_id,
        checksums=meta.chunk_checksums,
    )  # fmt: skip
    return scanned_ends(scan, offsets)


def _indexed(directory: Path, meta: CorpusMeta, offsets: NDArray[np.int64]) -> DocumentEnds:
    """Return the ends that the preparation wrote down.

    Raises:
        CorpusNotFoundError: If an index is missing.
        CorpusError: If one is shorter or longer than promised.
    """
    files = [chunk.file for chunk in meta.chunks]
    counts = np.array([meta.chunk_documents[file] for file in files], np.int64)
    names = [ends_name(file) for file in files]
    check_sizes(directory, names, counts)
    told = [
        f"{file} {meta.doc_index_checksums.get(file) or (directory / name).stat().st_mtime_ns}"
        for file, name in zip(files, names, strict=True)
    ]
    key = hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]
    return DocumentEnds(offsets, counts, EndsFiles(directory, names, counts), key=key)


def pad_id_of(directory: Path) -> int:
    """Return the id that stands at padding: the corpus's end-of-text token, or 0 where it is unknown."""
    meta = _meta(directory)
    return 0 if meta is None or meta.eos_token_id is None else meta.eos_token_id


def _meta(directory: Path) -> CorpusMeta | None:
    path = directory / META_FILE
    return read_meta(path) if path.exists() else None
