"""Shards of llm.c and modded-nanogpt: a header of 256 int32, then tokens.

The header is the magic number, the version, and the number of tokens; the rest is 0. Documents begin with the
end-of-text token.
"""

from __future__ import annotations

import struct
from pathlib import Path

from tdstream.core.errors import CorpusError
from tdstream.formats.description import (
    Description,
    FormatOptions,
    check_pieces,
    choose_dtype,
    delimiter,
    make_piece,
    read_head,
)
from tdstream.formats.file_sets import find_set

NAME = "llmc"
HEADER = 1024  # bytes
MAGICS = {20240520: (1, "uint16"), 20240801: (7, "uint32")}
"""Magic number -> version and type of the tokens."""
_EVALUATION = 20240522


def recognize(path: Path) -> str | None:
    """Return the evidence that a path is of this format, else None."""
    files = find_set(path, "*.bin")
    magic = _read_magic(files[0]) if files else None
    if magic == _EVALUATION:
        raise CorpusError(
            f"{files[0]} is an evaluation file of llm.c (magic {magic}): questions with answers, not one "
            f"stream of tokens."
        )
    return (
        f"{files[0].name} begins with {magic}, the magic number of llm.c's shards"
        if magic in MAGICS
        else None
    )


def describe(path: Path, evidence: str, options: FormatOptions) -> Description:
    """Return a piece for each shard."""
    pieces, dtypes = [], set()
    for file in find_set(path, "*.bin"):
        magic, version, tokens = struct.unpack_from("<3i", read_head(file, HEADER).ljust(12, b"\0"))
        if magic not in MAGICS:
            raise CorpusError(
                f"{file} does not begin with the magic number of llm.c's shards, as others in {path} do. "
                f"Move it elsewhere, or name the shards by a pattern."
            )
        expected, dtype = MAGICS[magic]
        if version != expected:
            raise CorpusError(f"{file} has version {version} of its format; {expected} is read.")
        pieces.append(make_piece(file, HEADER, tokens, dtype))
        dtypes.add(dtype)
    dtype = choose_dtype(path, dtypes, options.dtype)
    return Description(
        format=NAME,
        path=str(path),
        evidence=evidence,
        stored_dtype=dtype,
        pieces=check_pieces(str(path), pieces),
        ends=delimiter(options, None, first=True, what=str(path)),
    )


def _read_magic(file: Path) -> int | None:
    head = read_head(file, 4)
    return int(struct.unpack("<i", head)[0]) if len(head) == 4 else None
