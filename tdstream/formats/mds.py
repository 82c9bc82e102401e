"""Folders of MosaicML streaming whose rows are tokens of one fixed length: index.json and .mds shards.

A shard is uint32 N, uint32 [N + 1] the first byte of each row and the end of the last, a JSON header, then
the rows. The rows of a single column ``ndarray:T:L`` have no header of their own: they are one run of tokens.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import Any

import numpy as np

from tdstream.core.errors import CorpusError
from tdstream.formats.description import (
    CONVERT,
    STORED_AS,
    Description,
    FormatOptions,
    Piece,
    check_pieces,
    check_same_dtype,
    delimiter,
    read_head,
    size_of,
)
from tdstream.formats.litdata import INDEX, read_index

NAME = "mds"


def recognize(path: Path) -> str | None:
    """Return the evidence that a path is of this format, else None."""
    index = read_index(path)
    shards = index.get("shards") if index else None
    if not isinstance(shards, list) or not shards or not isinstance(shards[0], dict):
        return None
    return f"its {INDEX} lists shards of the format mds" if shards[0].get("format") == "mds" else None


def describe(path: Path, evidence: str, options: FormatOptions) -> Description:
    """Return a piece for each shard."""
    shards: list[dict[str, Any]] = (read_index(path) or {})["shards"]
    columns = {_check_columns(path, shard) for shard in shards}
    if len(columns) > 1:
        raise CorpusError(f"{path} has shards with different columns. {CONVERT}")
    dtype, row_bytes = columns.pop()
    check_same_dtype(options.dtype, dtype, path)
    pieces = [_describe_shard(path, shard, row_bytes, STORED_AS[dtype].itemsize) for shard in shards]
    return Description(
        format=NAME,
        path=str(path),
        evidence=evidence,
        stored_dtype=dtype,
        pieces=check_pieces(str(path), pieces),
        ends=delimiter(options, None, first=None, what=f"{path}, whose rows are blocks of one length,"),
        digest=hashlib.sha256((path / INDEX).read_bytes()).hexdigest()[:16],
    )


def _check_columns(path: Path, shard: dict[str, Any]) -> tuple[str, int]:
    """Return the type of the tokens and the bytes of a row."""
    encodings, names = shard.get("column_encodings") or [], shard.get("column_names") or []
    parts = str(encodings[0]).split(":") if len(encodings) == 1 else []
    if shard.get("zip_data") or shard.get("compression"):
        raise CorpusError(
            f"{path} is compressed ({shard.get('compression')}), and cannot be mapped. {CONVERT}"
        )
    if len(parts) != 3 or parts[0] != "ndarray" or parts[1] not in STORED_AS:
        columns = ", ".join(f"{name} ({encoding})" for name, encoding in zip(names, encodings, strict=False))
        raise CorpusError(
            f"{path} has the columns {columns or 'unknown'}; only rows of a single column of whole numbers "
            f"of a fixed length, such as ndarray:int32:2048, can be mapped. {CONVERT}"
        )
    length = int(np.prod([int(part) for part in parts[2].split(",")]))
    return parts[1], length * STORED_AS[parts[1]].itemsize


def _describe_shard(path: Path, shard: dict[str, Any], row_bytes: int, itemsize: int) -> Piece:
    file = path / str((shard.get("raw_data") or {}).get("basename"))
    if not file.is_file():
        raise CorpusError(f"{file} is missing; {INDEX} lists it. Copy it again.")
    size, promised, rows = size_of(file), shard["raw_data"].get("bytes"), int(shard["samples"])
    head = read_head(file, 8)
    count, first = struct.unpack("<II", head) if len(head) == 8 else (0, 0)
    if size != promised or count != rows or first + rows * row_bytes != size:
        raise CorpusError(
            f"{file} has {size:,} bytes and {count:,} rows; {INDEX} promises {promised:,} and {rows:,}. It "
            f"was probably cut while it was copied; copy it again."
        )
    return Piece(str(file), first, rows * row_bytes // itemsize, size)
