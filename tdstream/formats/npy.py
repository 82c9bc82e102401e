"""Files of ``numpy.save``, and raw tokens that are named ``.npy``, as dolma writes them for OLMo.

A real .npy has a header with its type. Raw ones have none: the documents in ``X.csv.gz`` (start, end, id,
source, place), which dolma writes beside ``X.npy``, tell the bytes of a token by the file's size, else the
caller does.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tdstream.core.errors import ConfigError, CorpusError
from tdstream.formats.description import (
    CONVERT,
    STORED_AS,
    Description,
    Ends,
    EndsRule,
    FormatOptions,
    IndexedEnds,
    Piece,
    check_pieces,
    choose_dtype,
    count_tokens,
    delimiter,
    make_piece,
    read_head,
    size_of,
)
from tdstream.formats.file_sets import find_set

NPY, OLMO = "npy", "olmo"
_MAGIC = b"\x93NUMPY"


def recognize(path: Path) -> str | None:
    """Return the evidence that a path holds files of numpy.save, else None."""
    files = find_set(path, "*.npy")
    return f"{files[0].name} has the header of numpy.save" if files and _is_real(files[0]) else None


def recognize_raw(path: Path) -> str | None:
    """Return the evidence that a path holds raw tokens named .npy, else None."""
    files = find_set(path, "*.npy")
    return f"{files[0].name} has no header of numpy.save" if files and not _is_real(files[0]) else None


def describe(path: Path, evidence: str, options: FormatOptions) -> Description:
    """Return a piece for each file of numpy.save; the rows of a table are one stream."""
    pieces, dtypes = [], set()
    for file in find_set(path, "*.npy"):
        if not _is_real(file):
            raise CorpusError(
                f"{file} has no header of numpy.save, as others in {path} do. Name those by a pattern."
            )
        dtype, offset, tokens = _read_header(file)
        pieces.append(make_piece(file, offset, tokens, dtype))
        dtypes.add(dtype)
    dtype = choose_dtype(path, dtypes, options.dtype)
    return Description(
        format=NPY,
        path=str(path),
        evidence=evidence,
        stored_dtype=dtype,
        pieces=check_pieces(str(path), pieces),
        ends=delimiter(options, None, first=None, what=str(path)),
    )


def describe_raw(path: Path, evidence: str, options: FormatOptions) -> Description:
    """Return a piece for each raw file, with the documents of its table."""
    files = find_set(path, "*.npy")
    tables = [_table_of(file) for file in files]
    known = all(table is not None for table in tables)
    last_ends = [_last_end(table) for table in tables if table is not None] if known else []
    dtype = options.dtype or _prove_dtype(path, files, last_ends)
    itemsize = STORED_AS[dtype].itemsize
    pieces = []
    for number, file in enumerate(files):
        size = size_of(file)
        pieces.append(Piece(str(file), 0, count_tokens(file, size, 0, itemsize), size))
        if known and last_ends[number] != pieces[-1].tokens:
            raise CorpusError(
                f"{file} has {pieces[-1].tokens:,} tokens of {dtype}, but {tables[number]} ends at "
                f"{last_ends[number]:,}. One of them was cut, or the dtype is another."
            )
    ends: EndsRule
    if known:
        paths = tuple(str(table) for table in tables)
        ends = IndexedEnds(partial(_read_ends, paths), sum(_count_lines(path) for path in paths), paths)
    else:
        ends = delimiter(options, None, first=False, what=str(path))
    digests = "".join(hashlib.sha256(Path(str(table)).read_bytes()).hexdigest() for table in tables if known)
    return Description(
        format=OLMO,
        path=str(path),
        evidence=evidence + (", and its table of documents tells the bytes of a token" if last_ends else ""),
        stored_dtype=dtype,
        pieces=check_pieces(str(path), pieces),
        ends=ends,
        digest=hashlib.sha256(digests.encode()).hexdigest()[:16] if known else "",
    )


def _is_real(file: Path) -> bool:
    return read_head(file, len(_MAGIC)) == _MAGIC


def _read_header(file: Path) -> tuple[str, int, int]:
    """Return the type, the first token's byte, and the number of tokens."""
    with file.open("rb") as opened:
        try:
            version = np.lib.format.read_magic(opened)
            read: Any = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            shape, fortran, dtype = read(opened)
        except (ValueError, EOFError) as error:
            raise CorpusError(f"{file} has a damaged header of numpy.save: {error}. Copy it again.") from None
        offset = opened.tell()
    if dtype.hasobject:
        raise CorpusError(
            f"{file} holds Python objects, which are pickled and are not read. Save whole numbers."
        )
    if dtype.byteorder == ">" or dtype.name not in STORED_AS:
        raise CorpusError(f"{file} holds {dtype}; token ids are little-endian whole numbers. {CONVERT}")
    if fortran and len(shape) > 1:
        raise CorpusError(
            f"{file} is stored by columns (Fortran order), so its rows are not one stream. {CONVERT}"
        )
    return str(dtype.name), offset, int(np.prod(shape, dtype=np.int64))


def _table_of(file: Path) -> Path | None:
    table = file.with_name(f"{file.stem}.csv.gz")
    return table if table.is_file() else None


def _prove_dtype(path: Path, files: Sequence[Path], last_ends: Sequence[int]) -> str:
    """Return the type of raw tokens whose tables of documents tell how many there are."""
    if last_ends:
        sizes = [size_of(file) for file in files]
        for width, dtype in ((2, "uint16"), (4, "uint32"), (1, "uint8"), (8, "int64")):
            if all(size == last * width for size, last in zip(sizes, last_ends, strict=True)):
                return dtype
    raise ConfigError(
        f"{path} holds .npy files without a header, as dolma writes them for OLMo, so the type of their "
        f"tokens is "
        f'unknown. Pass dtype="uint16" or "uint32".'
    )


def _read_ends(paths: tuple[str, ...], piece: int) -> Ends:
    with gzip.open(paths[piece], "rt", newline="") as file:
        return np.array([int(row[1]) for row in csv.reader(file) if row], np.int64)


def _count_lines(path: str) -> int:
    with gzip.open(path, "rb") as file:
        return sum(1 for _ in file)


def _last_end(table: Path) -> int:
    with gzip.open(table, "rb") as file:
        last = next(iter(deque(file, maxlen=1)), b"")
    try:
        return int(last.split(b",")[1]) if last else 0
    except (IndexError, ValueError):
        raise CorpusError(
            f"{table} does not list documents as dolma does: start, end, id, source, place. Move it "
            f"elsewhere, and pass dtype=..."
        ) from None
