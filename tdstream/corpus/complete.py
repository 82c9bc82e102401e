"""Say what a corpus is whose last shard has been written."""

from __future__ import annotations

import time
from dataclasses import replace

from tdstream.corpus.entries import Entry
from tdstream.corpus.meta import FORMAT_VERSION, CorpusMeta


def meta_of(plan: CorpusMeta, entries: list[Entry], num_documents: int) -> CorpusMeta:
    """Return the meta.json of a corpus that is complete.

    Args:
        plan: What was known beforehand.
        entries: Its shards.
        num_documents: Documents that their tokens came from.
    """
    encoder = joined_encoders([str(entry.note.get("encoder", "")) for entry in entries])
    indices = {entry.chunk.file: entry.index for entry in entries if entry.index is not None}
    return replace(
        plan,
        chunks=tuple(entry.chunk for entry in entries),
        chunk_checksums={entry.chunk.file: entry.checksum for entry in entries},
        chunk_documents={file: index.documents for file, index in indices.items()},
        doc_index_checksums={file: index.checksum for file, index in indices.items()},
        num_documents=num_documents,
        encoder=encoder or plan.encoder,
        created_at_unix=int(time.time()),
        format_version=FORMAT_VERSION,
    )


def val_meta_of(plan: CorpusMeta, entries: list[Entry], num_documents: int) -> CorpusMeta:
    """Return the meta.json of the documents that were held out of a corpus.

    Args:
        plan: What was known of that corpus.
        entries: The shards of these documents.
        num_documents: How many they are.
    """
    return meta_of(replace(plan, holdout={**plan.holdout, "part": "val"}), entries, num_documents)


def joined_encoders(names: list[str]) -> str:
    """Return which encoders wrote a corpus, in the order of their first use: "gigatoken+hf".

    Args:
        names: Those that wrote its parts, each spelled in the same way.
    """
    return "+".join(dict.fromkeys(part for name in names for part in name.split("+") if part))
