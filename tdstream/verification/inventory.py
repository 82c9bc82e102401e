"""Compare the files of a corpus directory with those that should be there, by name and size."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeGuard

from tdstream.core.errors import ConfigError, CorpusError, CorpusNotFoundError
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
from tdstream.writing.publish import CHUNK_PATTERN

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


def _chunks(content: dict[str, Any], findings: Findings) -> tuple[Shard, ...]:
    listed = content.get("chunks")
    if not isinstance(listed, list):
        findings.fault("meta", META_FILE, f"has chunks {_shown(listed)}; expected a list.")
        return ()
    chunks = []
    for number, entry in enumerate(listed):
        if _is_chunk(entry):
            chunks.append(Shard(entry["file"], entry["tokens"]))
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


def file_sizes(directory: Path) -> dict[str, int]:
    """Return the size in bytes of each file in a directory, by name.

    Raises:
        CorpusNotFoundError: If it is no directory.
    """
    if not directory.is_dir():
        raise CorpusNotFoundError(
            f"{directory} is not a directory; expected one with {META_FILE} and shards."
        )
    with os.scandir(directory) as entries:
        return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}


def promised(
    directory: Path, sizes: dict[str, int], dtype: str | None, eos_token_id: int | None, findings: Findings
) -> CorpusMeta | None:
    """Return what the corpus should be: what its meta.json says, or its bare shards.

    Args:
        directory: The corpus directory.
        sizes: Its files.
        dtype: The storage type of bare shards.
        eos_token_id: The end-of-text id of bare shards.
        findings: Told what is wrong with meta.json.

    Returns:
        None where that cannot be known.

    Raises:
        ConfigError: If dtype or eos_token_id contradict meta.json.
        CorpusNotFoundError: If there is nothing of a corpus.
    """
    if dtype is not None and dtype not in DTYPES:
        raise ConfigError(f'dtype must be "uint16" or "uint32", got {dtype!r}.')
    if META_FILE in sizes:
        meta = read_promise(directory / META_FILE, findings)
        if meta is not None:
            _refuse_contradiction("dtype", dtype, meta.dtype or None)
            _refuse_contradiction("eos", eos_token_id, meta.eos_token_id)
        return meta
    shards = sorted(name for name in sizes if name.endswith(".bin"))
    if not shards and not (directory / STAGING_DIR).exists():
        raise CorpusNotFoundError(f"{directory} has no {META_FILE} and no *.bin file; it is not a corpus.")
    if dtype is None:
        bare = " If these are bare shards, say of which type they are (--dtype)." if shards else ""
        findings.fault("meta", META_FILE, f"is missing.{bare}")
        return None
    findings.unchecked.append(f"names and sizes of all shards: there is no {META_FILE} that lists them")
    return _bare(shards, sizes, dtype, eos_token_id, findings)


def _refuse_contradiction(name: str, asked: object, said: object) -> None:
    if asked is not None and said is not None and asked != said:
        raise ConfigError(f"{name} {asked!r} was asked for, {META_FILE} says {said!r}. Leave it out.")


def _bare(
    shards: list[str], sizes: dict[str, int], dtype: str, eos_token_id: int | None, findings: Findings
) -> CorpusMeta:
    itemsize = DTYPES[dtype].itemsize
    for name in shards:
        if sizes[name] % itemsize:
            findings.fault("odd_size", name, f"has {sizes[name]:,} bytes{_not_a_multiple(itemsize)}.")
    numbers = [int(name[6:-4]) for name in shards if CHUNK_PATTERN.fullmatch(name)]
    for before, after in pairwise([-1, *sorted(numbers)] if numbers else []):
        if after > before + 1:
            gap = f"the shard before it is missing: {after - before - 1:,} between them by their numbers."
            findings.fault("missing", f"chunk_{after:06d}.bin", gap)
    chunks = tuple(Shard(name, sizes[name] // itemsize) for name in shards)
    return CorpusMeta(dtype=dtype, chunks=chunks, eos_token_id=eos_token_id)


def check_staging(directory: Path, findings: Findings) -> None:
    """Look for what a preparation left behind, or is still writing.

    Args:
        directory: The corpus directory.
        findings: Told about it.
    """
    staging = directory / STAGING_DIR
    if (staging / META_FILE).exists():
        left = "holds a complete corpus that was not moved to its place. Start its preparation again."
        findings.fault("unfinished", STAGING_DIR, left)
    elif staging.exists():
        left = "is a preparation that has not finished. Wait for it, or start it again."
        findings.fault("unfinished", STAGING_DIR, left)


def check_held_out(directory: Path, meta: CorpusMeta, findings: Findings) -> None:
    """Say that documents which were held out are a corpus of their own.

    Args:
        directory: The corpus directory.
        meta: What is promised.
        findings: Told that they were not looked at.
    """
    if meta.holdout.get("part") != "train":
        return
    val = directory / VAL_DIR
    what = "are a corpus of their own" if (val / META_FILE).exists() else f"are not in {val}, where they were"
    findings.unchecked.append(f"the documents that were held out: they {what}; verify them by themselves")


def check_dtype(meta: CorpusMeta, sizes: dict[str, int], findings: Findings) -> CorpusMeta:
    """See whether all shards have the size of the other storage type.

    Args:
        meta: What is promised.
        sizes: The files that there are.
        findings: Told if so.

    Returns:
        What is promised, with the type that the shards have.
    """
    for other, dtype in DTYPES.items():
        fits = all(sizes.get(file) == tokens * dtype.itemsize for file, tokens in meta.chunks)
        if meta.dtype and other != meta.dtype and fits and meta.total_tokens:
            wrong = f"says dtype {meta.dtype}, but every chunk has the size that its tokens have as {other}."
            findings.fault("dtype", META_FILE, wrong)
            return replace(meta, dtype=other)
    return meta


def check_sizes(meta: CorpusMeta, sizes: dict[str, int], findings: Findings) -> set[str]:
    """Compare each shard's size with what is promised, and look for shards that nobody promised.

    Args:
        meta: What is promised.
        sizes: The files that there are.
        findings: Told about differences.

    Returns:
        The names of shards that are missing or have another size.
    """
    if META_FILE not in sizes:
        return {fault.file for fault in findings.faults if fault.kind == "odd_size"}
    damaged = set()
    for file, tokens in dict.fromkeys(meta.chunks):
        if file not in sizes:
            damaged.add(file)
            findings.fault("missing", file, f"is missing; {META_FILE} promises {tokens:,} tokens in it.")
        elif meta.dtype and sizes[file] != tokens * DTYPES[meta.dtype].itemsize:
            damaged.add(file)
            _size_differs(file, tokens, sizes[file], DTYPES[meta.dtype].itemsize, findings)
    for name in sorted(sizes.keys() - {chunk.file for chunk in meta.chunks}):
        if name.endswith(".bin"):
            findings.fault("stray", name, f"is not listed in {META_FILE}; readers leave it out.")
    _check_order(meta, findings)
    return damaged


def _check_order(meta: CorpusMeta, findings: Findings) -> None:
    """Look for a shard whose number is below that of the shard before it."""
    names = [name for name, _ in dict.fromkeys(meta.chunks) if CHUNK_PATTERN.fullmatch(name)]
    for before, after in pairwise(names):
        if int(after[6:-4]) < int(before[6:-4]):
            wrong = f"is listed behind {before} in {META_FILE}; readers follow the list, not the numbers."
            findings.fault("order", after, wrong)


def _size_differs(file: str, tokens: int, size: int, itemsize: int, findings: Findings) -> None:
    kind = "truncated" if size < tokens * itemsize else "extended"
    odd = _not_a_multiple(itemsize) if size % itemsize else ""
    promise = f"{META_FILE} promises {tokens * itemsize:,} bytes ({tokens:,} tokens)"
    findings.fault(kind, file, f"is {kind}: it has {size:,} bytes{odd}; {promise}.")


def _not_a_multiple(itemsize: int) -> str:
    return f", not a multiple of the {itemsize} bytes of a token"
