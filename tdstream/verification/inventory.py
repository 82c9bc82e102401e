"""Comparison of a corpus directory with its meta.json by file names and sizes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from tdstream.core.errors import ConfigError, CorpusNotFoundError
from tdstream.corpus.mapped_array import find_size_fault, list_sizes
from tdstream.corpus.meta import DTYPES, META_FILE, STAGING_DIR, VAL_DIR, CorpusMeta, Shard
from tdstream.verification.lenient_meta import read_lenient_meta
from tdstream.verification.verify_report import Findings
from tdstream.writing.publish import CHUNK_PATTERN


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
    """Return the usable part of meta.json, or one made for bare shards of this dtype; None if there is none.

    Raises ConfigError if dtype or eos_token_id contradict meta.json, CorpusNotFoundError if there is no
    corpus.
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
    elif staging.exists():
        unfinished = "is a preparation that has not finished. Wait for it, or start it again."
        findings.fault("unfinished", STAGING_DIR, unfinished)


def check_held_out(directory: Path, meta: CorpusMeta, findings: Findings) -> None:
    """Report that held-out documents are not examined: they are a corpus of their own."""
    if meta.holdout.get("part") != "train":
        return
    val = directory / VAL_DIR
    where = "are a corpus of their own" if (val / META_FILE).exists() else f"are no longer in {val}"
    findings.unchecked.append(f"the held-out documents: they {where}; verify them separately")


def check_dtype(meta: CorpusMeta, sizes: dict[str, int], findings: Findings) -> CorpusMeta:
    """Return meta with the other storage type if all shards have the sizes of that one, which is a fault."""
    for other, dtype in DTYPES.items():
        fits = all(sizes.get(file) == tokens * dtype.itemsize for file, tokens in meta.chunks)
        if meta.dtype and other != meta.dtype and fits and meta.total_tokens:
            wrong = f"says dtype {meta.dtype}, but every chunk has the size of its tokens as {other}."
            findings.fault("dtype", META_FILE, wrong)
            return replace(meta, dtype=other)
    return meta


def check_sizes(meta: CorpusMeta, sizes: dict[str, int], findings: Findings) -> set[str]:
    """Report shards that are missing, unlisted or of another size; return the listed ones among them."""
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
    _check_order(meta, findings)
    findings.checked.append(f"sizes: {len(meta.chunks) - len(damaged):,} of {len(meta.chunks):,} chunks")
    return damaged


def _check_order(meta: CorpusMeta, findings: Findings) -> None:
    """Report a shard whose number is below that of the shard before it."""
    names = [name for name, _ in dict.fromkeys(meta.chunks) if CHUNK_PATTERN.fullmatch(name)]
    for before, after in pairwise(names):
        if int(after[6:-4]) < int(before[6:-4]):
            wrong = f"is listed after {before} in {META_FILE}; readers follow the list, not the numbers."
            findings.fault("order", after, wrong)
