"""Token files of any size that take no room on a disk: zeros, but for some tokens that tell their place.

A marked place p holds mark(p); all other tokens are 0. `truncate` makes files as long as they must be without
writing what lies between, so that 10^11 tokens cost some KB.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

LONGEST = (1 << 31) - 1  # a sequence of Megatron, and a shard of llm.c, has an int32 for its tokens
MAGICS = {"uint16": (20240520, 1), "uint32": (20240801, 7)}
CODES = {"int32": 4, "uint16": 8}


@dataclass(frozen=True)
class Sparse:
    """A sparse set."""

    path: Path
    """What a user passes: a prefix, or a directory."""
    dtype: str
    num_tokens: int
    marks: dict[int, int]
    """Tokens that are not 0, by their place in the stream."""
    ends: np.ndarray
    """Where documents end in the stream, int64; empty where no index tells."""


def mark(place: int) -> int:
    """Return the token at a place: from 1 to 65,521, with no period that is a power of two."""
    return place % 65521 + 1


def marked_places(num_tokens: int, itemsize: int, more: Iterable[int] = ()) -> list[int]:
    """Return the places of tokens around the first and last byte, and bytes 2^31, 2^32 and 2^33."""
    around = [0, num_tokens - 1, *more]
    around += [(1 << bits) // itemsize for bits in (31, 32, 33)] + [1 << 31, 1 << 32]
    places = {place + step for place in around for step in range(-3, 4)}
    return sorted(place for place in places if 0 <= place < num_tokens)


def write_marks(
    file: Path, places: Sequence[int], dtype: str, *, offset: int, start: int, num_tokens: int
) -> None:
    """Make a file of tokens from `start` of the stream, with the marks that fall into it."""
    kind = np.dtype(dtype).newbyteorder("<")
    with file.open("r+b" if file.exists() else "wb") as opened:
        for place in places:
            if start <= place < start + num_tokens:
                opened.seek(offset + (place - start) * kind.itemsize)
                opened.write(np.array(mark(place), kind).tobytes())
    os.truncate(file, offset + num_tokens * kind.itemsize)


def make_sparse_megatron(
    prefix: Path, num_tokens: int = 10**11, dtype: str = "uint16", num_documents: int = 100
) -> Sparse:
    """Make P.bin and P.idx of equally long documents of one sequence each; 20 bytes of index for each."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    itemsize = np.dtype(dtype).itemsize
    short, rest = divmod(num_tokens, num_documents)
    lengths = np.full(num_documents, short, np.int64)
    lengths[:rest] += 1
    borders = np.concatenate([[0], np.cumsum(lengths)])
    if lengths.max() > LONGEST:
        raise ValueError(f"{num_tokens:,} tokens need at least {-(-num_tokens // LONGEST)} documents")
    places = marked_places(num_tokens, itemsize, borders[[1, num_documents // 2, -2]].tolist())
    write_marks(Path(f"{prefix}.bin"), places, dtype, offset=0, start=0, num_tokens=num_tokens)
    with open(f"{prefix}.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, CODES[dtype], num_documents, num_documents + 1))
        file.write(lengths.astype("<i4").tobytes())
        file.write((borders[:-1] * itemsize).astype("<i8").tobytes())
        file.write(np.arange(num_documents + 1, dtype="<i8").tobytes())
    return Sparse(prefix, dtype, num_tokens, {place: mark(place) for place in places}, borders[1:])


def make_sparse_llmc(
    directory: Path, num_tokens: int = 10**10, dtype: str = "uint16", shard_tokens: int = LONGEST
) -> Sparse:
    """Make a directory of shards of llm.c, as long as their header can tell."""
    directory.mkdir(parents=True, exist_ok=True)
    borders = [*range(0, num_tokens, shard_tokens), num_tokens]
    places = marked_places(num_tokens, np.dtype(dtype).itemsize, borders)
    for number, (start, end) in enumerate(pairwise(borders)):
        header = np.zeros(256, "<i4")
        header[:3] = *MAGICS[dtype], end - start
        file = directory / f"fineweb_train_{number + 1:06d}.bin"
        file.write_bytes(header.tobytes())
        write_marks(file, places, dtype, offset=1024, start=start, num_tokens=end - start)
    return Sparse(
        directory, dtype, num_tokens, {place: mark(place) for place in places}, np.zeros(0, np.int64)
    )
