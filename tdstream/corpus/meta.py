"""Read and write meta.json, the list of a corpus's shards and how they were made.

The format, in the directory of a corpus::

    chunk_000000.bin ...   token ids, raw little-endian uint16 or uint32, no header
    chunk_000000.ends ...  the document index: for each document that ends in the chunk of that name, the
                           place in the chunk just behind its end-of-text token (1 to the chunk's tokens),
                           ascending; raw little-endian int64, as token positions are everywhere here
    meta.json              the keys below; written last, so a directory that has it is complete
    val/                   only where documents were held out: these, as a corpus of their own
    .preparing/            only while a preparation runs: shards that are not yet part of the corpus

Keys that every reader of the format knows: created_at_unix, tokenizer_name_or_path, is_fast, dtype,
eos_token_id, tokens_per_chunk, chunks (a list of {file, tokens}), total_tokens. Keys that tdstream adds
and that other readers ignore: format_version, tokenizer_fingerprint, vocab_size, encoder, num_documents,
chunk_checksums (file name -> "sha256:..." of its bytes). Where there is a document index, also: doc_index
({"version": 1, "suffix": ".ends", "dtype": "int64"}), chunk_documents (file name of the chunk -> documents
that end in it) and doc_index_checksums (file name of the chunk -> "sha256:..." of its index). Where documents
were held out, also: holdout ({"version": 1, "part": "train" or "val", and what was asked for}).
Where documents were appended, also: appended (a list of {first_chunk, documents, source}). What a preparation
has written also has made_from (name of what decided its documents -> a short hash of that; not of what was
appended).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tdstream.core.errors import CorpusError

META_FILE = "meta.json"
STAGING_DIR = ".preparing"
HOLDOUT_VERSION = 1
"""The version of the rule by which documents are held out; it rises when another one chooses others."""
VAL_DIR = "val"
"""Where the documents lie that were held out of a corpus, as a corpus of their own."""
FORMAT_VERSION = 1
DOC_INDEX: dict[str, Any] = {"version": 1, "suffix": ".ends", "dtype": "int64"}
"""What meta.json says where each chunk has a document index. Other versions are as if there were none."""
DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
"""The storage types, by the name that meta.json uses."""


def chunk_name(number: int) -> str:
    """Return the file name of a corpus's shard: chunk_000000.bin, chunk_000001.bin, ..."""
    return f"chunk_{number:06d}.bin"


def storage_dtype(vocab_size: int) -> str:
    """Return the narrowest storage type for a vocabulary: "uint16" up to 65,536 ids, else "uint32"."""
    return "uint16" if vocab_size <= 65_536 else "uint32"


class Shard(NamedTuple):  # a corpus has up to 10^5 of them, and a tuple is made much faster than a dataclass
    """One shard as meta.json lists it."""

    file: str
    """File name inside the corpus directory."""
    tokens: int
    """Tokens that the file holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusMeta:
    """What meta.json says; keys that are missing in older corpora have their empty value."""

    dtype: str
    chunks: tuple[Shard, ...]
    eos_token_id: int | None = None
    tokenizer_name_or_path: str = ""
    is_fast: bool = False
    tokens_per_chunk: int = 0
    created_at_unix: int = 0
    format_version: int = 0
    """0 for a corpus of the existing tool, which does not say."""
    tokenizer_fingerprint: str = ""
    vocab_size: int = 0
    encoder: str = ""
    """What turned text into ids: hf (the tokenizer itself), the name of a package, or several of these with
    "+" between them where another one had to go on; "" where unknown."""
    num_documents: int = -1
    """-1 where unknown."""
    chunk_checksums: dict[str, str] = field(default_factory=dict)
    doc_index: dict[str, Any] = field(default_factory=dict)
    """`DOC_INDEX`, or empty where there is no index of document ends."""
    chunk_documents: dict[str, int] = field(default_factory=dict)
    """Chunk -> documents that end in it; of a corpus with an index."""
    doc_index_checksums: dict[str, str] = field(default_factory=dict)
    """Chunk -> checksum of its index; of a corpus with an index."""

    holdout: dict[str, Any] = field(default_factory=dict)
    """How documents were held out of the corpus, or it of another one; empty where none were."""
    appended: list[dict[str, Any]] = field(default_factory=list)
    """For each time that documents were appended: first_chunk, documents, and a hash of their source."""
    made_from: dict[str, str] = field(default_factory=dict)
    """Name of what decided the documents, but those appended later -> a hash of it; empty where unknown."""

    @property
    def total_tokens(self) -> int:
        """Tokens in all shards together."""
        return sum(chunk.tokens for chunk in self.chunks)

    def to_json(self) -> dict[str, Any]:
        """Return the content of meta.json, the keys of the existing format first."""
        return {
            "created_at_unix": self.created_at_unix,
            "tokenizer_name_or_path": self.tokenizer_name_or_path,
            "is_fast": self.is_fast,
            "dtype": self.dtype,
            "eos_token_id": self.eos_token_id,
            "tokens_per_chunk": self.tokens_per_chunk,
            "chunks": [{"file": chunk.file, "tokens": chunk.tokens} for chunk in self.chunks],
            "total_tokens": self.total_tokens,
            "format_version": self.format_version,
            "tokenizer_fingerprint": self.tokenizer_fingerprint,
            "vocab_size": self.vocab_size,
            "encoder": self.encoder,
            "num_documents": self.num_documents,
            "chunk_checksums": dict(self.chunk_checksums),
            **({name: dict(getattr(self, name)) for name in _INDEX_KEYS} if self.doc_index else {}),
            **({"holdout": dict(self.holdout)} if self.holdout else {}),
            **({"appended": [dict(part) for part in self.appended]} if self.appended else {}),
            **({"made_from": dict(self.made_from)} if self.made_from else {}),
        }


_INDEX_KEYS = ("doc_index", "chunk_documents", "doc_index_checksums")


def read_meta(path: Path) -> CorpusMeta:
    """Read a meta.json.

    Args:
        path: The file.

    Raises:
        CorpusError: If it is not JSON, lacks a key that reading needs, contradicts itself, or was
            written by a newer version of the format.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CorpusError(
            f"{path} is not JSON ({error}); it was probably cut. Prepare the corpus again."
        ) from None
    try:
        meta = _parse(content)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise CorpusError(
            f"{path} lacks or misstates what describes a corpus ({type(error).__name__}: {error}); expected "
            f'"dtype" and "chunks": [{{"file": ..., "tokens": ...}}]. Prepare the corpus again.'
        ) from None
    _check(path, content, meta)
    return meta


def _parse(content: dict[str, Any]) -> CorpusMeta:
    known = {name: content[name] for name in CorpusMeta.__dataclass_fields__ if content.get(name) is not None}
    chunks = tuple([Shard(chunk["file"], chunk["tokens"]) for chunk in content["chunks"]])
    for name in ("chunk_checksums", "doc_index_checksums"):
        if not all(isinstance(value, str) for value in (content.get(name) or {}).values()):
            raise TypeError(f"{name} are texts")
    documents = (content.get("chunk_documents") or {}).values()
    numbers = [*(chunk.tokens for chunk in chunks), *documents, content.get("format_version") or 0]
    if not all(type(number) is int for number in [*numbers, content.get("total_tokens") or 0]):
        raise TypeError("tokens, total_tokens and format_version are whole numbers")
    return CorpusMeta(**{**known, "dtype": str(content["dtype"]), "chunks": chunks})


def _check(path: Path, content: dict[str, Any], meta: CorpusMeta) -> None:
    if meta.format_version > FORMAT_VERSION:
        raise CorpusError(
            f"{path} has format_version {meta.format_version}, this tdstream reads up to {FORMAT_VERSION}. "
            f"Install a newer tdstream."
        )
    promised = content.get("total_tokens")
    if promised is not None and promised != meta.total_tokens:
        raise CorpusError(
            f"{path} promises total_tokens {promised:,}, its chunks add up to {meta.total_tokens:,}. "
            f"Prepare the corpus again."
        )
    if len({chunk.file for chunk in meta.chunks}) < len(meta.chunks):
        raise CorpusError(f"{path} lists a chunk twice; its tokens would be served twice. Prepare it again.")
    for chunk in meta.chunks:
        if chunk.tokens < 0 or not isinstance(chunk.file, str) or os.sep in chunk.file:
            raise CorpusError(
                f"{path} lists a chunk {chunk.file!r} with {chunk.tokens:,} tokens, which cannot be."
            )


def write_meta(path: Path, meta: CorpusMeta) -> None:
    """Write a meta.json durably: temporary name, fsync, rename. Readers see the old file or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(meta.to_json(), file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    fsync_directory(path.parent)


def fsync_directory(directory: Path) -> None:
    """Make renames inside a directory survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
