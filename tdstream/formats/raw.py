"""Files that hold tokens and nothing else, such as nanoGPT's ``train.bin``: the caller names their type."""

from __future__ import annotations

from pathlib import Path

from tdstream.core.errors import ConfigError
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
    """Return the evidence that a path may be of this format, else None: what no other format knows."""
    return "its .bin files begin with no magic number" if find_set(path, "*.bin") else None


def describe(path: Path, evidence: str, options: FormatOptions) -> Description:
    """Return a piece for each file."""
    if options.dtype is None:
        raise ConfigError(
            f"{path} has no meta.json, and its .bin files no header, so the type of its tokens is unknown. "
            f"Pass "
            f'dtype="uint16" or dtype="uint32".'
        )
    itemsize = STORED_AS[options.dtype].itemsize
    pieces = []
    for file in find_set(path, "*.bin"):
        size = size_of(file)
        pieces.append(Piece(str(file), 0, count_tokens(file, size, 0, itemsize), size))
    return Description(
        format=NAME,
        path=str(path),
        evidence=evidence,
        stored_dtype=options.dtype,
        pieces=check_pieces(str(path), pieces),
        ends=delimiter(options, None, first=False, what=f"{path}, which has no meta.json,"),
    )
