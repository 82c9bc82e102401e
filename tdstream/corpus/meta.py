"""meta.json: the list of a corpus's shards, and how they were made.

The files in the directory of a corpus::

    chunk_000000.bin ...   token ids, raw little-endian uint16 or uint32, no header
    chunk_000000.ends ...  the document index: for each document that ends in the shard, the place in the
                           shard just after its end-of-text token (1 to the shard's tokens), ascending; raw
                           little-endian int64
    meta.json              the keys below; written last, so a directory that has it is complete
    val/                   held-out documents, a corpus of their own
    .preparing/            shards that are not yet part of the corpus, only while a preparation runs

Keys that every reader of the format knows: created_at_unix, tokenizer_name_or_path, is_fast, dtype,
eos_token_id, tokens_per_chunk, chunks (a list of {file, tokens}), total_tokens.

Keys that tdstream adds and other readers ignore: format_version, tokenizer_fingerprint, vocab_size, encoder,
num_documents, chunk_checksums (shard -> "sha256:..." of its bytes). Where each document begins with a BOS
token: bos_token_id. With a document index: doc_index ({"version": 1, "suffix": ".ends", "dtype": "int64"}),
chunk_documents (shard -> documents that end in it) and doc_index_checksums (shard -> "sha256:..." of its
index). With held-out documents: holdout ({"version": 1, "part": "train" or "val", and the options}). With
appended documents: appended (a list of {first_chunk, documents, source}). From a preparation: made_from
(option or input that decides the documents -> a short hash of it, without appended documents), input_files (a
record of each file that was read, for appended ones too). From a conversion: converted_from (the identity of
the source, or its format).
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
"""The version of the holdout rule; it rises when the rule chooses other documents."""
VAL_DIR = "val"
"""The directory of the held-out documents, a corpus of their own."""
FORMAT_VERSION = 1
DOC_INDEX: dict[str, Any] = {"version": 1, "suffix": ".ends", "dtype": "int64"}
"""The entry of a corpus with a document index. Other versions count as none."""
UNKNOWN_FILES = "?"
"""Stands among the records of input files for those that an earlier version read without a record."""
DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
"""The storage types, by their names in meta.json."""


def chunk_name(number: int) -> str:
    """Return the file name of a corpus's shard: chunk_000000.bin, chunk_000001.bin, ..."""
    return f"chunk_{number:06d}.bin"


def storage_dtype(vocab_size: int) -> str:
    """Return the narrowest storage type for a vocabulary: "uint16" up to 65,536 ids, else "uint32"."""
    return "uint16" if vocab_size <= 65_536 else "uint32"


class Shard(NamedTuple):  # up to 10^5 in a corpus: a tuple is made much faster than a dataclass
    """One shard as meta.json lists it."""

    file: str
    """File name inside the corpus directory."""
    tokens: int
    """Tokens that the file holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusMeta:
    """The content of a meta.json; a key that an older corpus lacks has its default."""

    dtype: str
    chunks: tuple[Shard, ...]
    eos_token_id: int | None = None
    bos_token_id: int | None = None
    """The id with which each document begins; None if documents begin with their text."""
    tokenizer_name_or_path: str = ""
    is_fast: bool = False
    tokens_per_chunk: int = 0
    created_at_unix: int = 0
    format_version: int = 0
    """0 for a corpus of the reference tool, which does not write it."""
    tokenizer_fingerprint: str = ""
    vocab_size: int = 0
    encoder: str = ""
    """hf (the tokenizer itself), the name of a package, or several of them joined by "+"; "" if unknown."""
    num_documents: int = -1
    """-1 if unknown."""
    chunk_checksums: dict[str, str] = field(default_factory=dict)
    doc_index: dict[str, Any] = field(default_factory=dict)
    """`DOC_INDEX`; this and the next two are empty without an index."""
    chunk_documents: dict[str, int] = field(default_factory=dict)
    """Shard -> documents that end in it."""
    doc_index_checksums: dict[str, str] = field(default_factory=dict)
    """Shard -> checksum of its index."""
    holdout: dict[str, Any] = field(default_factory=dict)
    """How documents were held out of this corpus, or this corpus out of another; empty if not."""
    appended: list[dict[str, Any]] = field(default_factory=list)
    """For each append: first_chunk, documents, and a hash of their source."""
    made_from: dict[str, str] = field(default_factory=dict)
    """Option or input that decides the documents, appended ones excepted -> a hash; empty if unknown."""
    input_files: list[str] = field(default_factory=list)
    """A record of each input file, appended ones included; empty if unknown, or if there was none."""
    converted_from: dict[str, Any] = field(default_factory=dict)
    """Identity of the other tool's files that this corpus was converted from; empty if it was not."""

    @property
    def total_tokens(self) -> int:
        """Tokens in all shards."""
        return sum(chunk.tokens for chunk in self.chunks)

    def to_json(self) -> dict[str, Any]:
        """Return the content of meta.json, the keys of the reference format first."""
        content = {name: getattr(self, name) for name in _KEYS}
        content["chunks"] = [chunk._asdict() for chunk in self.chunks]
        index = {name: getattr(self, name) for name in _INDEX_KEYS if self.doc_index}
        bos = {} if self.bos_token_id is None else {"bos_token_id": self.bos_token_id}
        later = {
            name: getattr(self, name)
            for name in ("holdout", "appended", "made_from", "input_files", "converted_from")
        }
        return {**content, **bos, **index, **{name: value for name, value in later.items() if value}}


_KEYS = (
    *("created_at_unix", "tokenizer_name_or_path", "is_fast", "dtype", "eos_token_id", "tokens_per_chunk"),
    *("chunks", "total_tokens", "format_version", "tokenizer_fingerprint", "vocab_size", "encoder"),
    *("num_documents", "chunk_checksums"),
)
_INDEX_KEYS = ("doc_index", "chunk_documents", "doc_index_checksums")


def read_meta(path: Path) -> CorpusMeta:
    """Return the content of a meta.json; raise CorpusError if it is damaged, inconsistent or too new."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CorpusError(
            f"{path} cannot be read: {error.strerror}. Check its permissions, or read a copy."
        ) from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CorpusError(
            f"{path} is not JSON ({error}); it was probably cut. Prepare the corpus again."
        ) from None
    if isinstance(content, dict) and "pieces" in content and "chunks" not in content:
        raise CorpusError(
            f"{path} is of adopted files of other tools, which tdstream.build and tdstream.loader read."
        )
    try:
        meta = _parse(content)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise CorpusError(
            f"{path} does not describe a corpus ({type(error).__name__}: {error}); expected "
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
            f"{path} promises total_tokens {promised:,}, its shards add up to {meta.total_tokens:,}. "
            f"Prepare the corpus again."
        )
    if len({chunk.file for chunk in meta.chunks}) < len(meta.chunks):
        raise CorpusError(f"{path} lists a shard twice; its tokens would be served twice. Prepare it again.")
    for chunk in meta.chunks:
        if chunk.tokens < 0 or not isinstance(chunk.file, str) or os.sep in chunk.file:
            raise CorpusError(
                f"{path} lists a shard {chunk.file!r} with {chunk.tokens:,} tokens, which is impossible."
            )


def write_meta(path: Path, meta: CorpusMeta) -> None:
    """Write a meta.json durably; readers see the old file or the new one."""
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
