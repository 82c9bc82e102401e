"""Read the index of document ends that lies beside each shard of a corpus."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tdstream.corpus.meta import DOC_INDEX, META_FILE, CorpusMeta
from tdstream.errors import CorpusError, CorpusNotFoundError

ENDS_SUFFIX = str(DOC_INDEX["suffix"])
ENDS_DTYPE = np.dtype("<i8")
"""Token positions are int64 everywhere: none has to be converted before it is added to a shard's offset."""


def ends_name(chunk_file: str) -> str:
    """Return the file name of a shard's index: chunk_000000.bin -> chunk_000000.ends.

    Args:
        chunk_file: The file name of the shard.
    """
    return Path(chunk_file).stem + ENDS_SUFFIX


def has_doc_index(meta: CorpusMeta) -> bool:
    """Return whether each shard of a corpus has an index of a version that can be read.

    Args:
        meta: What its meta.json says.
    """
    known = meta.doc_index.get("version") == DOC_INDEX["version"]
    return known and all(chunk.file in meta.chunk_documents for chunk in meta.chunks)


def read_ends(directory: Path, meta: CorpusMeta, chunk_file: str) -> NDArray[np.int64]:
    """Return where the documents that end in a shard do so, memory-mapped and read-only.

    Args:
        directory: The corpus directory.
        meta: What its meta.json says; it has an index.
        chunk_file: The file name of the shard.

    Returns:
        int64 [documents], ascending: places in the shard, each just behind a document's end-of-text token.
        A document that ends in a later shard is not among them; there may be none.

    Raises:
        CorpusNotFoundError: If the index is missing.
        CorpusError: If it is shorter or longer than promised.
    """
    path, documents = directory / ends_name(chunk_file), meta.chunk_documents[chunk_file]
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise CorpusNotFoundError(
            f"{path} is missing; {META_FILE} promises {documents:,} ends of documents in it."
        ) from None
    if size != documents * ENDS_DTYPE.itemsize:
        raise CorpusError(
            f"{path} has {size:,} bytes, {META_FILE} promises {documents * ENDS_DTYPE.itemsize:,} "
            f"({documents:,} ends of documents). It was probably cut or changed while copying; copy it again."
        )
    if documents == 0:  # An empty file cannot be mapped.
        return np.empty(0, ENDS_DTYPE)
    return np.memmap(path, ENDS_DTYPE, mode="r")


def file_names(meta: CorpusMeta, chunk_files: Iterable[str] | None = None) -> set[str]:
    """Return the names of the files that a corpus consists of, but for meta.json.

    Args:
        meta: What its meta.json says.
        chunk_files: Of these shards only.
    """
    files = {chunk.file for chunk in meta.chunks} if chunk_files is None else set(chunk_files)
    return files | ({ends_name(file) for file in files} if meta.doc_index else set())
