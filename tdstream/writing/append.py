"""Appending to a corpus: the checks before, and the meta.json after."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tdstream.core.errors import OutputError
from tdstream.corpus.document_index import file_names
from tdstream.corpus.mapped_array import find_size_fault, list_sizes
from tdstream.corpus.meta import DTYPES, META_FILE, UNKNOWN_FILES, CorpusMeta, read_meta
from tdstream.writing.journal import JournalEntry, complete_meta, join_encoders
from tdstream.writing.publish import CHUNK_PATTERN, check_staged


def check_base(output: Path) -> CorpusMeta:
    """Return the meta.json of a corpus that can be appended to; refuse any other directory.

    Unrelated files are allowed, since nothing is removed.
    """
    path = output / META_FILE
    if not path.exists():
        raise OutputError(
            f"{output} holds no complete corpus to append to.", "Leave {append} out to make one."
        )
    check_staged(output)
    meta = read_meta(path)
    if meta.holdout.get("part") == "val":
        raise OutputError(
            f"{output} holds documents that were held out; appended documents are not. Append to the "
            f"corpus that they were held out of, or make another one."
        )
    found = {path.name for path in output.iterdir() if CHUNK_PATTERN.fullmatch(path.name)}
    strays = sorted(found - file_names(meta))
    if strays:
        raise OutputError(f"{output} holds {strays[0]}, which {META_FILE} does not list. Move it away first.")
    sizes = list_sizes(output)
    for file, tokens in meta.chunks:
        fault = find_size_fault(sizes.get(file), tokens, DTYPES[meta.dtype])
        if fault is not None:
            raise OutputError(
                f"{output / file} {fault.text} Nothing can be appended after it. For more, run: "
                f"tdstream verify {output}"
            )
    return meta


def next_number(base: CorpusMeta | None) -> int:
    """Return the number of the first new shard: one above the highest of the base, 0 without a base."""
    files = () if base is None else base.chunks
    numbers = [int(chunk.file[6:-4]) for chunk in files if CHUNK_PATTERN.fullmatch(chunk.file)]
    return max(numbers, default=-1) + 1


def base_identity(base: CorpusMeta) -> dict[str, Any]:
    """Return the identity of a base corpus, for the journal of the preparation that appends to it."""
    content = json.dumps([base.to_json()["chunks"], base.chunk_checksums, base.appended])
    return {
        "chunks": len(base.chunks),
        "tokens": base.total_tokens,
        "sha256": hashlib.sha256(content.encode()).hexdigest()[:16],
    }


def _join_files(base: CorpusMeta, new: CorpusMeta) -> list[str]:
    """Return the records of all input files, UNKNOWN_FILES first if the base lacks some."""
    recorded = base.input_files or not (base.appended or not base.made_from or "files" in base.made_from)
    return [*([] if recorded else [UNKNOWN_FILES]), *base.input_files, *new.input_files]


def appended_meta(
    base: CorpusMeta, plan: CorpusMeta, entries: list[JournalEntry], num_documents: int, source: str
) -> CorpusMeta:
    """Return the meta.json of the base with new shards; `source` is the hash of their source."""
    new = complete_meta(plan, entries, num_documents)
    part = {"first_chunk": new.chunks[0].file, "documents": num_documents, "source": source}
    return replace(
        base,
        chunks=(*base.chunks, *new.chunks),
        chunk_checksums={**base.chunk_checksums, **new.chunk_checksums},
        chunk_documents={**base.chunk_documents, **new.chunk_documents},
        doc_index_checksums={**base.doc_index_checksums, **new.doc_index_checksums},
        num_documents=base.num_documents + num_documents if base.num_documents >= 0 else -1,
        encoder=join_encoders([base.encoder, new.encoder]) if base.encoder else "",
        created_at_unix=new.created_at_unix,
        appended=[*base.appended, part],
        input_files=_join_files(base, new),
    )
