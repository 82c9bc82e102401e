"""Folders of litData whose items are tokens (``TokensLoader``): index.json, and chunks with a table of items.

A chunk is uint32 N, uint32 [N + 1] the first byte of each item and the end of the last, then the tokens.
"""

from __future__ import annotations

import hashlib
import json
import struct
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tdstream.core.errors import CorpusError
from tdstream.formats.description import (
    CONVERT,
    STORED_AS,
    Description,
    Ends,
    FormatOptions,
    IndexedEnds,
    Piece,
    check_pieces,
    check_same_dtype,
    read_head,
    size_of,
)

NAME = "litdata"
INDEX = "index.json"
_TYPES = {
    "no_header_numpy": {
        "0": "int8",
        "1": "int16",
        "2": "int32",
        "3": "int64",
        "4": "uint8",
        "5": "uint16",
        "6": "uint32",
        "7": "uint64",
    },
    "no_header_tensor": {
        "11": "uint8",
        "12": "int8",
        "13": "int16",
        "14": "int16",
        "15": "int32",
        "16": "int32",
        "17": "int64",
        "18": "int64",
        "20": "uint16",
    },
}
"""The codes of types, as litData numbers those of numpy and torch."""


def recognize(path: Path) -> str | None:
    """Return the evidence that a path is of this format, else None."""
    index = read_index(path)
    return (
        f"its {INDEX} has chunks and config"
        if index is not None and {"chunks", "config"} <= index.keys()
        else None
    )


def describe(path: Path, evidence: str, options: FormatOptions) -> Description:
    """Return a piece for each chunk, with an item as a document."""
    index: dict[str, Any] = read_index(path) or {}
    config, chunks = index["config"], index["chunks"]
    dtype = check_config(path, config)
    check_same_dtype(options.dtype, dtype, path)
    itemsize = STORED_AS[dtype].itemsize
    pieces, items = [], 0
    for chunk in chunks:
        piece, count = _describe_chunk(path / str(chunk["filename"]), chunk, itemsize)
        pieces.append(piece)
        items += count
    paths = tuple(piece.path for piece in pieces)
    return Description(
        format=NAME,
        path=str(path),
        evidence=evidence,
        stored_dtype=dtype,
        pieces=check_pieces(str(path), pieces),
        ends=IndexedEnds(partial(_read_ends, paths, itemsize), items, paths),
        digest=hashlib.sha256((path / INDEX).read_bytes()).hexdigest()[:16],
        ends_with_token=options.eos_token_id is not None,
    )


def read_index(path: Path) -> dict[str, Any] | None:
    """Return the index.json of a directory; None if there is none, or it holds something else."""
    try:
        content = json.loads((path / INDEX).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def check_config(path: Path, config: dict[str, Any]) -> str:
    """Return the type of the tokens; refuse what is no plain stream of them."""
    if config.get("encryption"):
        raise CorpusError(f"{path} is encrypted, and is not read. Write it again without encryption.")
    if config.get("compression"):
        raise CorpusError(f"{path} is compressed ({config['compression']}), and cannot be mapped. {CONVERT}")
    loader = config.get("item_loader") or "PyTreeLoader"
    formats = config.get("data_format") or []
    kind, _, code = str(formats[0] if len(formats) == 1 else "").partition(":")
    if loader != "TokensLoader" or kind not in _TYPES:
        raise CorpusError(
            f"{path} was written for {loader} with the fields {', '.join(map(str, formats)) or 'unknown'}; "
            f"only folders written for TokensLoader are a stream of tokens. {CONVERT}"
        )
    if code not in _TYPES[kind]:
        raise CorpusError(f"{path} holds numbers of the type {formats[0]}; token ids are whole numbers.")
    return _TYPES[kind][code]


def _describe_chunk(file: Path, chunk: dict[str, Any], itemsize: int) -> tuple[Piece, int]:
    """Return the tokens of a chunk, and its number of items."""
    if not file.is_file():
        raise CorpusError(f"{file} is missing; {INDEX} lists it. Copy it again.")
    head, size = read_head(file, 4), size_of(file)
    items = struct.unpack("<I", head)[0] if len(head) == 4 else 0
    offset = 4 * (items + 2)
    last = 0
    if size >= offset:
        last = int(np.fromfile(file, "<u4", 1, offset=offset - 4)[0])
    tokens, rest = divmod(size - offset, itemsize)
    if last != size or rest or items != chunk.get("chunk_size") or tokens != chunk.get("dim", tokens):
        raise CorpusError(
            f"{file} does not hold the {chunk.get('dim'):,} tokens in {chunk.get('chunk_size'):,} items that "
            f"{INDEX} promises. It was probably cut while it was copied; copy it again."
        )
    return Piece(str(file), offset, tokens, size), items


def _read_ends(paths: tuple[str, ...], itemsize: int, piece: int) -> Ends:
    """Return the ends of items: with first bytes 20, 24, 30 and the end 36 of uint16, they are 2, 5 and 8."""
    (items,) = struct.unpack("<I", read_head(paths[piece], 4))
    bytes_of_items = np.fromfile(paths[piece], "<u4", items + 1, offset=4).astype(np.int64)
    ends: Ends = (bytes_of_items[1:] - bytes_of_items[0]) // itemsize
    return ends
