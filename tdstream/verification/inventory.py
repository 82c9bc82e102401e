"""Lenient reading of meta.json, and its comparison with the files of a corpus, for `verify`."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeGuard

from tdstream.core.errors import ConfigError, CorpusError, CorpusNotFoundError
from tdstream.corpus.mapped_array import find_size_fault, list_sizes
from tdstream.corpus.meta import (
    DTYPES,
    FORMAT_VERSION,
    META_FILE,
    STAGING_DIR,
    VAL_DIR,
    CorpusMeta,
    Shard,
    read_meta,
    storage_dtype,
)
from tdstream.verification.verify_report import Findings
from tdstream.writing.publish import CHUNK_PATTERN, is_leftover

_FIELDS: dict[str, type] = {
    "eos_token_id": int,
    "bos_token_id": int,
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
    "converted_from": dict,
}
_PER_SHARD = {
    "chunk_checksums": "a checksum",
    "chunk_documents": "a number of documents",
    "doc_index_checksums": "a checksum of an index",
}
_TYPE_NAMES = {int: "a whole number", str: "a text", dict: "an object", list: "a list"}

_AddFault = Callable[[str], None]


def file_sizes(directory: Path) -> dict[str, int]:
    """Return the size in bytes of each file in a directory, by name."""
    if not directory.is_dir():
        raise CorpusNotFoundError(
            f"{directory} is not a directory; expected one with {META_FILE} and shards."
        )
    return list_sizes(directory)


def find_meta(
    directory: Path, sizes: dict[str, int], dtype: str | None, eos_token_id: int | None, findings: Findings
) -> CorpusMeta | None:
    """Return the usable part of meta.json, or a made-up one for bare shards of `dtype`; None if unusable.

    Raises ConfigError if `dtype` or `eos_token_id` contradict meta.json, CorpusNotFoundError without corpus.
    """
    if dtype is not None and dtype not in DTYPES:
        raise ConfigError(f'dtype must be "uint16" or "uint32", got {dtype!r}.')
    if META_FILE in sizes:
        meta = read_lenient_meta(directory / META_FILE, findings)
        if meta is not None:
            _check_argument("dtype", dtype, meta.dtype or None)
            _check_argument("eos", eos_token_id, meta.eos_token_id)
        return meta
    shards = sorted(name for name in sizes if name.endswith(".bin"))
    if not shards and not (directory / STAGING_DIR).exists():
        raise CorpusNotFoundError(f"{directory} has no {META_FILE} and no *.bin file; it is not a corpus.")
    if dtype is None:
        bare = " If these are bare shards, pass their type (--dtype)." if shards else ""
        findings.fault("meta", META_FILE, f"is missing.{bare}")
        return None
    findings.unchecked.append(f"names and sizes of all shards: there is no {META_FILE} that lists them")
    return _make_bare_meta(shards, sizes, dtype, eos_token_id, findings)


def _check_argument(name: str, given: object, stored: object) -> None:
    if given is not None and stored is not None and given != stored:
        raise ConfigError(f"{name} {given!r} was given, but {META_FILE} says {stored!r}. Leave it out.")


def _make_bare_meta(
    shards: list[str], sizes: dict[str, int], dtype: str, eos_token_id: int | None, findings: Findings
) -> CorpusMeta:
    itemsize = DTYPES[dtype].itemsize
    for name in shards:
        if sizes[name] % itemsize:
            odd = f"has {sizes[name]:,} bytes, not a multiple of the {itemsize} bytes of a token."
            findings.fault("odd_size", name, odd)
    numbers = sorted(int(name[6:-4]) for name in shards if CHUNK_PATTERN.fullmatch(name))
    for before, after in pairwise([-1, *numbers] if numbers else []):
        if after > before + 1:
            gap = f"the shard before it is missing: its number leaves a gap of {after - before - 1:,}."
            findings.fault("missing", f"chunk_{after:06d}.bin", gap)
    chunks = tuple(Shard(name, sizes[name] // itemsize) for name in shards)
    return CorpusMeta(dtype=dtype, chunks=chunks, eos_token_id=eos_token_id)


def check_staging(directory: Path, findings: Findings) -> None:
    """Report an unfinished preparation."""
    staging = directory / STAGING_DIR
    if (staging / META_FILE).exists():
        unmoved = "holds a complete corpus that was not moved to its place. Start its preparation again."
        findings.fault("unfinished", STAGING_DIR, unmoved)
    elif staging.exists() and not is_leftover(directory):
        unfinished = "is a preparation that has not finished. Wait for it, or start it again."
        findings.fault("unfinished", STAGING_DIR, unfinished)


def check_held_out(directory: Path, meta: CorpusMeta, findings: Findings) -> None:
    """Note that held-out documents are not examined, being a separate corpus."""
    if meta.holdout.get("part") != "train":
        return
    val = directory / VAL_DIR
    where = "are a separate corpus" if (val / META_FILE).exists() else f"are no longer in {val}"
    findings.unchecked.append(f"the held-out documents: they {where}; verify them separately")


def check_dtype(meta: CorpusMeta, sizes: dict[str, int], findings: Findings) -> CorpusMeta:
    """Report a wrong dtype, if all sizes fit the other one; return meta with the dtype that fits."""
    for other, dtype in DTYPES.items():
        fits = all(sizes.get(file) == tokens * dtype.itemsize for file, tokens in meta.chunks)
        if meta.dtype and other != meta.dtype and fits and meta.total_tokens:
            wrong = f"says dtype {meta.dtype}, but every shard has the size of its tokens as {other}."
            findings.fault("dtype", META_FILE, wrong)
            return replace(meta, dtype=other)
    return meta


def check_sizes(meta: CorpusMeta, sizes: dict[str, int], findings: Findings) -> set[str]:
    """Report missing, unlisted and wrongly sized shards; return the listed ones among them."""
    if META_FILE not in sizes:
        return {fault.file for fault in findings.faults if fault.kind == "odd_size"}
    damaged = set()
    for file, tokens in dict.fromkeys(meta.chunks):
        fault = find_size_fault(sizes.get(file), tokens, DTYPES[meta.dtype or "uint16"])
        if fault is not None and (meta.dtype or fault.kind == "missing"):  # else the right size is unknown
            damaged.add(file)
            findings.fault(fault.kind, file, fault.text)
    for name in sorted(sizes.keys() - {shard.file for shard in meta.chunks}):
        if name.endswith(".bin"):
            findings.fault("stray", name, f"is not listed in {META_FILE}; readers ignore it.")
    names = [name for name, _ in dict.fromkeys(meta.chunks) if CHUNK_PATTERN.fullmatch(name)]
    for before, after in pairwise(names):
        if int(after[6:-4]) < int(before[6:-4]):
            wrong = f"is listed after {before} in {META_FILE}; readers follow the list, not the numbers."
            findings.fault("order", after, wrong)
    findings.check_share("sizes", len(meta.chunks) - len(damaged), len(meta.chunks))
    return damaged


def read_lenient_meta(path: Path, findings: Findings) -> CorpusMeta | None:
    """Return the usable part of a meta.json, dtype "" if unknown; report every fault. None if unusable."""

    def fault(message: str) -> None:
        findings.fault("meta", META_FILE, message)

    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        findings.fault("unreadable", META_FILE, f"cannot be read: {error.strerror}.")
        return None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
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
        findings.fault("empty", META_FILE, "lists no shard; a corpus holds at least one token.")
    _check_consistency(content, meta, fault)
    _check_vocabulary(meta, fault, findings)
    if not any(found.kind in ("meta", "empty") for found in findings.faults):
        try:
            read_meta(path)  # whatever training refuses is a fault
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
            fault(f"lists shard {number} as {_show(entry)}; expected {expected}.")
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
        fault(f"says total_tokens {_show(total)}, but its shards add up to {meta.total_tokens:,}.")
    for name, what in _PER_SHARD.items():
        for file in sorted(getattr(meta, name).keys() - times_listed):
            fault(f"has {what} for {file}, which it does not list.")


def _check_vocabulary(meta: CorpusMeta, fault: _AddFault, findings: Findings) -> None:
    """Compare the vocabulary size with the storage type and the end-of-text id."""
    size = meta.vocab_size
    if size < 0:
        fault(f"has vocab_size {size:,}; expected a number of ids.")
    elif meta.dtype == "uint16" and storage_dtype(size) != "uint16":
        fault(f"has dtype {meta.dtype} for a vocab_size of {size:,}, whose ids need {storage_dtype(size)}.")
    elif size and meta.dtype == "uint32" and storage_dtype(size) == "uint16":
        findings.notes.append(f"A vocab_size of {size:,} would fit uint16; {META_FILE} says uint32.")
    limit = size if size > 0 else 256 ** DTYPES[meta.dtype].itemsize if meta.dtype else None
    for name in ("eos_token_id", "bos_token_id"):
        token_id = getattr(meta, name)
        if token_id is not None and (token_id < 0 or (limit is not None and token_id >= limit)):
            fault(f"has {name} {token_id:,}, which is no id of a vocabulary of {limit or 0:,}.")


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _is_int(value: Any) -> TypeGuard[int]:
    return _is(value, int)


def _show(value: Any) -> str:
    if _is_int(value):
        return f"{value:,}"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
