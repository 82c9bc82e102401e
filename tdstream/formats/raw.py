"""Files that hold tokens and nothing else, such as nanoGPT's ``train.bin``: the caller names their type."""

from __future__ import annotations

from pathlib import Path

from tdstream.core.errors import ConfigError, CorpusError
from tdstream.formats.description import (
    STORED_AS,
    Description,
    FormatOptions,
    Piece,
    check_pieces,
    count_tokens,
    delimiter,
    size_of,
)
from tdstream.formats.file_sets import find_set

NAME = "raw"


def recognize(path: Path) -> str | None:
    """Return the evidence that a path may be of this format, else None; only what no other format knows."""
    files = find_set(path, "*.bin")
    return f"{len(files):,} .bin files without a header" if files else None


def describe(path: Path, evidence: str, options: FormatOptions) -> Description:
    """Return a piece for each file."""
    if options.dtype is None:
        raise ConfigError(
            f"{path} holds .bin files without a header or a meta.json, so the type of their tokens is "
            f"unknown. "
            f'Pass dtype="uint16" (nanoGPT\'s), "uint32" or "int32".'
        )
    itemsize = STORED_AS[options.dtype].itemsize
    pieces = []
    for file in find_set(path, "*.bin"):
        size = size_of(file)
        pieces.append(Piece(str(file), 0, count_tokens(file, size, 0, itemsize), size))
    if not pieces:
        raise CorpusError(f"{path} has no .bin file.")
    return Description(
        format=NAME,
        path=str(path),
        evidence=evidence,
        stored_dtype=options.dtype,
        pieces=check_pieces(str(path), pieces),
        ends=delimiter(options, None, first=False, what=str(path)),
    )
