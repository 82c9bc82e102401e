"""Read a meta.json that may be damaged: as much of it as can be trusted, and all that is wrong with it."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any, TypeGuard

from tdstream.corpus.meta import (
    DTYPES,
    FORMAT_VERSION,
    META_FILE,
    Chunk,
    CorpusMeta,
    read_meta,
    storage_dtype,
)
from tdstream.corpus.report import Findings
from tdstream.errors import CorpusError

_FIELDS: dict[str, type] = {
    "eos_token_id": int,
    "tokenizer_name_or_path": str,
    "tokens_per_chunk": int,
    "format_version": int,
    "tokenizer_fingerprint": str,
    "vocab_size": int,
    "encoder": str,
    "num_documents": int,
    "chunk_checksums": dict,
    "doc_index": dict,
    "chunk_documents": dict,
    "doc_index_checksums": dict,
    "holdout": dict,
    "appended": list,
    "made_from": dict,
}
_PER_CHUNK = {
    "chunk_checksums": "a checksum",
    "chunk_documents": "a number of documents",
    "doc_index_checksums": "a checksum of an index",
}
_TYPE_NAMES = {int: "a whole number", str: "a text", dict: "an object", list: "a list"}


def read_promise(path: Path, findings: Findings) -> CorpusMeta | None:
    """Return what a meta.json says, leaving out what is not of the format.

    Args:
        path: The file.
        findings: Told all that is wrong with it.

    Returns:
        What can be trusted; its dtype is empty where that is unknown. None if nothing can.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        findings.fault("meta", META_FILE, f"is not JSON ({error}); it was probably cut.")
        return None
    if not isinstance(content, dict):
        findings.fault("meta", META_FILE, f"holds {_shown(content)}, not an object.")
        return None
    version = content.get("format_version")
    if _is_whole(version) and version > FORMAT_VERSION:
        newer = (
            f"has format_version {version}, this tdstream reads up to {FORMAT_VERSION}. Install a newer one."
        )
        findings.fault("meta", META_FILE, newer)
        return None
    meta = CorpusMeta(
        dtype=_dtype(content, findings), chunks=_chunks(content, findings), **_fields(content, findings)
    )
    _contradictions(content, meta, findings)
    _anything_else(path, findings)
    return meta


def _dtype(content: dict[str, Any], findings: Findings) -> str:
    dtype = content.get("dtype")
    if isinstance(dtype, str) and dtype in DTYPES:
        return dtype
    findings.fault("meta", META_FILE, f'has dtype {_shown(dtype)}; expected "uint16" or "uint32".')
    return ""


def _chunks(content: dict[str, Any], findings: Findings) -> tuple[Chunk, ...]:
    listed = content.get("chunks")
    if not isinstance(listed, list):
        findings.fault("meta", META_FILE, f"has chunks {_shown(listed)}; expected a list.")
        return ()
    chunks = []
    for number, entry in enumerate(listed):
        if _is_chunk(entry):
            chunks.append(Chunk(entry["file"], entry["tokens"]))
        else:
            wanted = '{"file": a file name, "tokens": a whole number}'
            findings.fault("meta", META_FILE, f"lists chunk {number} as {_shown(entry)}; expected {wanted}.")
    if not listed:
        findings.fault("empty", META_FILE, "lists no chunk; a corpus holds at least one token.")
    return tuple(chunks)


def _is_chunk(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    file, tokens = entry.get("file"), entry.get("tokens")
    named = isinstance(file, str) and file not in ("", ".", "..") and os.sep not in file and "\0" not in file
    return bool(named and _is_whole(tokens) and tokens >= 0)


def _fields(content: dict[str, Any], findings: Findings) -> dict[str, Any]:
    """Return the optional fields that have the type they should have."""
    fields = {}
    for name, kind in _FIELDS.items():
        value = content.get(name)
        if _is(value, kind):
            fields[name] = value
        elif value is not None:
            wrong = f"has {name} {_shown(value)}; expected {_TYPE_NAMES[kind]}."
            findings.fault("meta", META_FILE, wrong)
    return fields


def _contradictions(content: dict[str, Any], meta: CorpusMeta, findings: Findings) -> None:
    def wrong(message: str) -> None:
        findings.fault("meta", META_FILE, message)

    for file, times in Counter(chunk.file for chunk in meta.chunks).items():
        if times > 1:
            wrong(f"lists {file} {times} times.")
    total = content.get("total_tokens", meta.total_tokens)
    if total != meta.total_tokens or not _is_whole(total):
        wrong(f"promises total_tokens {_shown(total)}, its chunks add up to {meta.total_tokens:,}.")
    listed = {chunk.file for chunk in meta.chunks}
    for name, what in _PER_CHUNK.items():
        for file in sorted(getattr(meta, name).keys() - listed):
            wrong(f"has {what} for {file}, which it does not list.")
    _vocabulary(meta, wrong, findings)


def _vocabulary(meta: CorpusMeta, wrong: Any, findings: Findings) -> None:
    """Compare the size of the vocabulary with the storage type and with the end-of-text id."""
    size, eos = meta.vocab_size, meta.eos_token_id
    if size < 0:
        wrong(f"has vocab_size {size:,}; expected a number of ids.")
    elif meta.dtype == "uint16" and storage_dtype(size) != "uint16":
        wrong(f"has dtype {meta.dtype} for a vocab_size of {size:,}, whose ids need {storage_dtype(size)}.")
    elif size and meta.dtype == "uint32" and storage_dtype(size) == "uint16":
        findings.notes.append(f"A vocab_size of {size:,} would fit uint16; {META_FILE} says uint32.")
    limit = size if size > 0 else 256 ** DTYPES[meta.dtype].itemsize if meta.dtype else None
    if eos is not None and (eos < 0 or (limit is not None and eos >= limit)):
        wrong(f"has eos_token_id {eos:,}, which is no id of a vocabulary of {limit or 0:,}.")


def _anything_else(path: Path, findings: Findings) -> None:
    """Ask the reader that training uses, so that what it refuses is a fault in any case."""
    if any(fault.kind in ("meta", "empty") for fault in findings.faults):
        return
    try:
        read_meta(path)
    except CorpusError as error:
        findings.fault("meta", META_FILE, str(error))


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _is_whole(value: Any) -> TypeGuard[int]:
    return _is(value, int)


def _shown(value: Any) -> str:
    if _is_whole(value):
        return f"{value:,}"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
