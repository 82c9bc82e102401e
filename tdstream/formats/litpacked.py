"""Packed datasets of lit-gpt and TinyLlama: a header with the magic LITPKDS, then tokens.

The header is LITPKDS, uint64 version 1, uint8 code of the type, uint64 tokens in the file. The last file of a
run is filled up with the separator, which stands first in each document.
"""

from __future__ import annotations

import struct
from pathlib import Path

from tdstream.core.errors import CorpusError
from tdstream.formats.description import (
    STORED_AS,
    Description,
    FormatOptions,
    check_pieces,
    choose_dtype,
    delimiter,
    make_piece,
    read_head,
)
from tdstream.formats.file_sets import find_set

NAME = "litpacked"
MAGIC = b"LITPKDS"
HEADER = 24  # bytes
_CODES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float32", 7: "float64", 8: "uint16"}


def recognize(path: Path) -> str | None:
    """Return the evidence that a path is of this format, else None."""
    files = find_set(path, "*.bin")
    return f"{files[0].name} begins with LITPKDS" if files and read_head(files[0], 7) == MAGIC else None


def describe(path: Path, evidence: str, options: FormatOptions) -> Description:
    """Return a piece for each file."""
    pieces, dtypes = [], set()
    for file in find_set(path, "*.bin"):
        head = read_head(file, HEADER)
        if head[:7] != MAGIC or len(head) < HEADER:
            raise CorpusError(
                f"{file} does not begin with LITPKDS, as others in {path} do. Move it elsewhere, or name the "
                f"files by a pattern."
            )
        version, code, tokens = struct.unpack_from("<QBQ", head, 7)
        dtype = _CODES.get(code, "an unknown type")
        if version != 1 or dtype not in STORED_AS:
            raise CorpusError(
                f"{file} has version {version} and {dtype}; expected version 1 and whole numbers."
            )
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
