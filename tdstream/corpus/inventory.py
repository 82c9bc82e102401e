"""Compare the files of a corpus directory with those that should be there, by name and size."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from tdstream.corpus.meta import DTYPES, META_FILE, STAGING_DIR, VAL_DIR, Chunk, CorpusMeta
from tdstream.corpus.output import CHUNK_PATTERN
from tdstream.corpus.promise import read_promise
from tdstream.corpus.report import Findings
from tdstream.errors import ConfigError, CorpusNotFoundError


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
    chunks = tuple(Chunk(name, sizes[name] // itemsize) for name in shards)
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
