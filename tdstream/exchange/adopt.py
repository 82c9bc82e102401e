"""`tdstream.adopt`: a meta.json for token files of other tools, which stay where they are."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tdstream.core.errors import ConfigError, OutputError
from tdstream.core.progress_bar import ProgressBar
from tdstream.corpus.derived import whole_file
from tdstream.corpus.meta import DTYPES, META_FILE, STAGING_DIR, fsync_directory
from tdstream.formats import adopted
from tdstream.formats.description import (
    Description,
    FormatOptions,
    Piece,
    check_same_dtype,
)
from tdstream.formats.identity import identify
from tdstream.writing.publish import explain_os_errors

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def adopt(
    sources: Paths,
    directory: str | os.PathLike[str],
    *,
    dtype: Any = None,
    eos_token_id: int | None = None,
    eos_first: bool | None = None,
    format: str | None = None,  # noqa: A002 - as build's
    tokenizer: str = "",
    checksums: bool = False,
    progress: bool = False,
) -> Path:
    """Write a meta.json that names token files of other tools, as ``tdstream adopt`` does.

    The files stay where they are. What they do not tell themselves is said once, and several become one
    corpus in this order. The directory is then read like any corpus.

    Args:
        sources: A path or several: what `build` reads, each.
        directory: Directory for meta.json; made if it is missing.
        dtype: Type of the tokens, if the files do not tell.
        eos_token_id: The token that marks documents.
        eos_first: Whether it stands first in each document; None is the format's habit.
        format: Format of the files, if they could be of several.
        tokenizer: Name or path of the tokenizer, to be noted.
        checksums: Read all files once and note their checksums: states then compare contents, and ``verify``
            checks them.
        progress: Whether to show a progress bar on stderr.

    Returns:
        The directory.

    Raises:
        ConfigError: If an option is wrong, or the files do not tell what has to be known.
        CorpusError: If the files are damaged or of different types, or one is named twice.
        CorpusNotFoundError: If there is nothing at a path.
        OutputError: If the directory has a meta.json, or cannot be written.
    """
    named = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    if not named:
        raise ConfigError("adopt needs at least one source.")
    place = Path(os.path.realpath(directory))
    _check_free(place)
    told = FormatOptions.of(format, dtype, eos_token_id, eos_first)
    paths = [_make_absolute(name) for name in named]
    options = [_choose_told(path, told) for path in paths]
    found = [adopted.describe_source(path, one) for path, one in zip(paths, options, strict=True)]
    for path, one in zip(paths, found, strict=True):
        check_same_dtype(told.dtype, one.stored_dtype, path)
    known: dict[str, str] = {}
    whole = adopted.combine(place, found, {})  # refuses what does not fit, before files are read
    if checksums:
        known = _hash_files(whole, progress)
    content = {
        **_describe_tokens(place, whole, known),
        **_find_facts(found, told, tokenizer),
        adopted.KEY: {
            "version": adopted.VERSION,
            "sources": [
                {"path": _name(place, path), "told": asdict(one), "identity": identify(source)}
                for path, one, source in zip(paths, options, found, strict=True)
            ],
            "checksums": {_name(place, Path(path)): value for path, value in known.items()},
        },
    }
    with explain_os_errors(place):
        place.mkdir(parents=True, exist_ok=True)
        _check_free(place)
        with whole_file(place / META_FILE) as file:
            file.write(json.dumps(content, indent=2).encode() + b"\n")
        fsync_directory(place)
    return place


def _check_free(place: Path) -> None:
    """Refuse a directory that is a corpus, or will be one."""
    if os.path.lexists(place) and not place.is_dir():
        raise OutputError(f"{place} is a file, not a directory. Choose another directory.")
    for name in (META_FILE, STAGING_DIR):
        if (place / name).exists():
            raise OutputError(
                f"{place} holds {name}, so it is a corpus. Choose another directory; nothing was changed."
            )


def _make_absolute(name: str | os.PathLike[str]) -> Path:
    if not isinstance(name, (str, os.PathLike)):
        raise ConfigError(f"a source is named by its path, got {type(name).__name__}.")
    path = Path(os.path.abspath(name))
    if adopted.is_adopted(path):
        raise ConfigError(f"{path} is adopted itself. Name its files instead.")
    return path


def _choose_told(path: Path, told: FormatOptions) -> FormatOptions:
    """Return what is told of a source: nothing, if it is a corpus, which tells all itself."""
    return FormatOptions() if (path / META_FILE).exists() else told


def _name(place: Path, path: Path) -> str:
    """Return a path as it is noted: relative if it is below the directory."""
    inside = path == place or place in path.parents
    return os.path.relpath(path, place) if inside else str(path)


def _hash_files(whole: Description, progress: bool) -> dict[str, str]:
    files = {piece.path: piece.size for piece in whole.pieces}
    with ProgressBar(
        total=sum(files.values()), unit="B", unit_scale=True, dynamic_ncols=True, desc="Reading",
        disable=not progress,
    ) as bar:  # fmt: skip
        return {path: adopted.hash_file(Path(path), bar.update) for path in files}


def _find_facts(found: list[Description], told: FormatOptions, tokenizer: str) -> dict[str, Any]:
    """Return the facts on which all sources agree, or that are told."""
    facts: dict[str, Any] = {}
    for name in ("eos_token_id", "tokenizer_name_or_path"):
        values = {source.facts.get(name) for source in found}
        facts[name] = values.pop() if len(values) == 1 else None
    if told.eos_token_id is not None:
        facts["eos_token_id"] = told.eos_token_id
    return {**facts, "tokenizer_name_or_path": tokenizer or facts["tokenizer_name_or_path"] or ""}


def _describe_tokens(place: Path, whole: Description, checksums: dict[str, str]) -> dict[str, Any]:
    """Return the keys that say where the tokens are: chunks that every reader knows, if that is possible."""
    total = sum(piece.tokens for piece in whole.pieces)
    facts = {
        "created_at_unix": int(time.time()),
        "is_fast": False,
        "dtype": whole.dtype.name,
        "tokens_per_chunk": max(piece.tokens for piece in whole.pieces),
        "total_tokens": total,
    }
    if all(_is_shard(place, piece, whole) for piece in whole.pieces) and whole.dtype.name in DTYPES:
        chunks = [{"file": Path(piece.path).name, "tokens": piece.tokens} for piece in whole.pieces]
        sums = {Path(path).name: value for path, value in checksums.items()}
        return {**facts, "chunks": chunks, "format_version": 1, **({"chunk_checksums": sums} if sums else {})}
    pieces = [
        {"path": _name(place, Path(piece.path)), "offset": piece.offset, "tokens": piece.tokens}
        for piece in whole.pieces
    ]
    return {**facts, "pieces": pieces, "format_version": 2}


def _is_shard(place: Path, piece: Piece, whole: Description) -> bool:
    """Return whether a piece is a whole file in the directory itself."""
    is_whole = piece.offset == 0 and piece.size == piece.tokens * whole.dtype.itemsize
    return is_whole and Path(piece.path).parent == place
