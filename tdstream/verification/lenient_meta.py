"""Lenient meta.json parser for `verify`: names every fault, and returns what can be used nevertheless."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeGuard

from tdstream.core.errors import CorpusError
from tdstream.corpus.meta import (
    DTYPES,
    FORMAT_VERSION,
    META_FILE,
    CorpusMeta,
    Shard,
    read_meta,
    storage_dtype,
)
from tdstream.verification.verify_report import Findings

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
_PER_SHARD = {
    "chunk_checksums": "a checksum",
    "chunk_documents": "a number of documents",
    "doc_index_checksums": "a checksum of an index",
}
_TYPE_NAMES = {int: "a whole number", str: "a text", dict: "an object", list: "a list"}

_AddFault = Callable[[str], None]


def read_lenient_meta(path: Path, findings: Findings) -> CorpusMeta | None:
    """Return the usable part of a meta.json, its dtype empty if unknown; None if nothing can be used."""

    def fault(message: str) -> None:
        findings.fault("meta", META_FILE, message)

    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        fault(f"is not JSON ({error}); it was probably truncated.")
        return None
    if not isinstance(content, dict):
        fault(f"holds {_show(content)}, not an object.")
        return None
    version = content.get("format_version")
    if _is_int(version) and version > FORMAT_VERSION:
        fault(
            f"has format_version {version}, this tdstream reads up to {FORMAT_VERSION}. Install a newer one."
        )
        return None
    meta = CorpusMeta(
        dtype=_read_dtype(content, fault), chunks=_read_chunks(content, fault), **_read_fields(content, fault)
    )
    if not meta.chunks and content.get("chunks") == []:
        findings.fault("empty", META_FILE, "lists no chunk; a corpus holds at least one token.")
    _check_consistency(content, meta, fault)
    _check_vocabulary(meta, fault, findings)
    if not any(found.kind in ("meta", "empty") for found in findings.faults):
        try:
            read_meta(path)  # what the reader of training refuses is a fault in any case
        except CorpusError as error:
            fault(str(error))
    return meta


def _read_dtype(content: dict[str, Any], fault: _AddFault) -> str:
    dtype = content.get("dtype")
    if isinstance(dtype, str) and dtype in DTYPES:
        return dtype
    fault(f'has dtype {_show(dtype)}; expected "uint16" or "uint32".')
    return ""


def _read_chunks(content: dict[str, Any], fault: _AddFault) -> tuple[Shard, ...]:
    listed = content.get("chunks")
    if not isinstance(listed, list):
        fault(f"has chunks {_show(listed)}; expected a list.")
        return ()
    shards = []
    for number, entry in enumerate(listed):
        if _is_shard(entry):
            shards.append(Shard(entry["file"], entry["tokens"]))
        else:
            expected = '{"file": a file name, "tokens": a whole number}'
            fault(f"lists chunk {number} as {_show(entry)}; expected {expected}.")
    return tuple(shards)


def _is_shard(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    file, tokens = entry.get("file"), entry.get("tokens")
    named = isinstance(file, str) and file not in ("", ".", "..") and os.sep not in file and "\0" not in file
    return bool(named and _is_int(tokens) and tokens >= 0)


def _read_fields(content: dict[str, Any], fault: _AddFault) -> dict[str, Any]:
    """Return the optional fields that have the right type."""
    fields = {}
    for name, kind in _FIELDS.items():
        value = content.get(name)
        if _is(value, kind):
            fields[name] = value
        elif value is not None:
            fault(f"has {name} {_show(value)}; expected {_TYPE_NAMES[kind]}.")
    return fields


def _check_consistency(content: dict[str, Any], meta: CorpusMeta, fault: _AddFault) -> None:
    times_listed = Counter(shard.file for shard in meta.chunks)
    for file, times in times_listed.items():
        if times > 1:
            fault(f"lists {file} {times} times.")
    total = content.get("total_tokens", meta.total_tokens)
    if total != meta.total_tokens or not _is_int(total):
        fault(f"says total_tokens {_show(total)}, but its chunks add up to {meta.total_tokens:,}.")
    for name, what in _PER_SHARD.items():
        for file in sorted(getattr(meta, name).keys() - times_listed):
            fault(f"has {what} for {file}, which it does not list.")


def _check_vocabulary(meta: CorpusMeta, fault: _AddFault, findings: Findings) -> None:
    """Compare the size of the vocabulary with the storage type and with the end-of-text id."""
    size, eos = meta.vocab_size, meta.eos_token_id
    if size < 0:
        fault(f"has vocab_size {size:,}; expected a number of ids.")
    elif meta.dtype == "uint16" and storage_dtype(size) != "uint16":
        fault(f"has dtype {meta.dtype} for a vocab_size of {size:,}, whose ids need {storage_dtype(size)}.")
    elif size and meta.dtype == "uint32" and storage_dtype(size) == "uint16":
        findings.notes.append(f"A vocab_size of {size:,} would fit uint16; {META_FILE} says uint32.")
    limit = size if size > 0 else 256 ** DTYPES[meta.dtype].itemsize if meta.dtype else None
    if eos is not None and (eos < 0 or (limit is not None and eos >= limit)):
        fault(f"has eos_token_id {eos:,}, which is no id of a vocabulary of {limit or 0:,}.")


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _is_int(value: Any) -> TypeGuard[int]:
    return _is(value, int)


def _show(value: Any) -> str:
    if _is_int(value):
        return f"{value:,}"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
