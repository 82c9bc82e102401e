"""Megatron's indexed datasets: ``P.bin`` with the tokens, ``P.idx`` with the sequences and documents.

``P.idx`` is, little-endian::

    bytes 0-8    MMIDIDX, two zero bytes
    uint64       version, 1
    uint8        code of the type
    uint64       n, sequences
    uint64       d, documents + 1
    int32 [n]    tokens of each sequence
    int64 [n]    first byte of each sequence in P.bin
    int64 [d]    first sequence of each document, and n
    int8 [n]     modes, only of multimodal datasets

NeMo, GPT-NeoX, NeMo Curator and datatrove write the same.
"""

from __future__ import annotations

import hashlib
import struct
from functools import partial
from pathlib import Path

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

NAME = "megatron"
MAGIC = b"MMIDIDX\0\0"
_LEGACY = b"TNTIDX\0\0"
_HEADER = 34  # bytes
_CODES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float64", 7: "float32", 8: "uint16"}
_DIGESTED = 1 << 20  # bytes at each end of an index


def find_prefixes(path: Path) -> list[Path]:
    """Return the prefixes P that a path names: itself, P.bin, P.idx, or a directory of them; sorted."""
    if path.is_dir():
        return [file.with_suffix("") for file in sorted(path.glob("*.idx"))]
    if path.suffix in (".bin", ".idx") and path.with_suffix(".idx").is_file():
        return [path.with_suffix("")]
    return [path] if _with(path, ".idx").is_file() else []


def recognize(path: Path) -> str | None:
    """Return the evidence that a path is of this format, else None."""
    prefixes = find_prefixes(path)
    if not prefixes:
        return None
    first = _with(prefixes[0], ".idx")
    head = read_head(first, len(MAGIC))
    if head.startswith(_LEGACY):
        raise CorpusError(
            f"{first} is an index of Megatron's old lazy or cached dataset (TNTIDX), which is not read. "
            f"Prepare it again with a current Megatron, or from its text."
        )
    return f"{first.name} begins with {MAGIC[:7].decode()}" if head == MAGIC else None


def describe(path: Path, evidence: str, options: FormatOptions) -> Description:
    """Return the pieces, one for each prefix, with the documents of their indices."""
    prefixes = find_prefixes(path)
    indices = [_Index(prefix) for prefix in prefixes]
    dtypes = {index.dtype for index in indices}
    if len(dtypes) > 1:
        raise CorpusError(
            f"{path} holds tokens of several types: {', '.join(sorted(dtypes))}. Mix them as sources of a "
            f"mixture, each by its own prefix."
        )
    dtype = indices[0].dtype
    check_same_dtype(options.dtype, dtype, path)
    pieces = [Piece(str(index.bin), 0, index.tokens, size_of(index.bin)) for index in indices]
    paths = tuple(str(index.path) for index in indices)
    return Description(
        format=NAME,
        path=str(path),
        evidence=evidence,
        stored_dtype=dtype,
        pieces=check_pieces(str(path), pieces),
        ends=IndexedEnds(partial(_read_ends, paths), sum(index.documents for index in indices), paths),
        digest=hashlib.sha256("".join(map(_digest, paths)).encode()).hexdigest()[:16],
        ends_with_token=options.eos_token_id is not None,
    )


def _with(prefix: Path, ending: str) -> Path:
    """Return prefix + ending; a prefix may hold dots."""
    return prefix.with_name(prefix.name + ending)


class _Index:
    """The header of an index, checked against its own size and that of its tokens."""

    def __init__(self, prefix: Path) -> None:
        self.path, self.bin = _with(prefix, ".idx"), _with(prefix, ".bin")
        if not self.bin.is_file():
            raise CorpusError(f"{self.bin} is missing; {self.path.name} lists its documents.")
        head, size = read_head(self.path, _HEADER), size_of(self.path)
        if head[:9] != MAGIC or len(head) < _HEADER:
            raise CorpusError(
                f"{self.path} does not begin as an index of Megatron does. It was probably cut; copy it "
                f"again."
            )
        version, code, self.sequences, entries = struct.unpack_from("<QBQQ", head, 9)
        if version != 1 or code not in _CODES:
            raise CorpusError(
                f"{self.path} has version {version} and type code {code}; expected 1, and 1 to 8."
            )
        self.dtype, self.documents = _CODES[code], max(entries - 1, 0)
        if self.dtype not in STORED_AS:
            raise CorpusError(
                f"{self.path} says that its numbers are {self.dtype}; token ids are whole numbers."
            )
        promised = _HEADER + 12 * self.sequences + 8 * entries
        if size not in (promised, promised + self.sequences):
            raise CorpusError(
                f"{self.path} has {size:,} bytes; its header promises {promised:,} ({self.sequences:,} "
                f"sequences, {self.documents:,} documents). It was probably cut while it was copied; copy it "
                f"again."
            )
        if size > promised:
            self._check_modes(promised)
        itemsize = STORED_AS[self.dtype].itemsize
        self.tokens = self._find_last_byte() // itemsize
        found = size_of(self.bin)
        if found != self.tokens * itemsize:
            raise CorpusError(
                f"{self.bin} has {found:,} bytes; {self.path.name} promises {self.tokens * itemsize:,}. It "
                f"was cut, or the two are of different runs; copy both again."
            )

    def _find_last_byte(self) -> int:
        """Return where the last sequence ends in the file of tokens."""
        if not self.sequences:
            return 0
        itemsize = STORED_AS[self.dtype].itemsize
        lengths, pointers = _map(str(self.path), "<i4", _HEADER, self.sequences), self._pointers()
        return int(pointers[-1]) + int(lengths[-1]) * itemsize

    def _pointers(self) -> Ends:
        return _map(str(self.path), "<i8", _HEADER + 4 * self.sequences, self.sequences)

    def _check_modes(self, first: int) -> None:
        modes = _map(str(self.path), "<i1", first, self.sequences)
        if modes.any():
            raise CorpusError(
                f"{self.path} is of a multimodal dataset: {int((modes != 0).sum()):,} of its sequences are "
                f"no text. {CONVERT}"
            )


def _read_ends(paths: tuple[str, ...], piece: int) -> Ends:
    """Return where the documents of a piece end.

    Document k is sequences first[k] .. first[k + 1] - 1, so it ends where sequence first[k + 1] begins. With
    sequences at bytes 0, 10, 14 of uint16, 20 bytes, and first = 0 2 3, the ends are 7 and 10.
    """
    path = paths[piece]
    _, code, sequences, entries = struct.unpack_from("<QBQQ", read_head(path, _HEADER), 9)
    itemsize = STORED_AS[_CODES[code]].itemsize
    lengths = _map(path, "<i4", _HEADER, sequences)
    pointers = _map(path, "<i8", _HEADER + 4 * sequences, sequences)
    first = _map(path, "<i8", _HEADER + 12 * sequences, entries)[1:]
    if len(first) and (first[-1] != sequences or first.min() < 0 or first.max() > sequences):
        raise CorpusError(
            f"{path} lists documents of sequences that do not exist. It was damaged; copy it again."
        )
    begins = np.append(pointers, pointers[-1:] + lengths[-1:].astype(np.int64) * itemsize)
    ends: Ends = begins[first] // itemsize if sequences else np.zeros(0, np.int64)
    return ends


def _map(path: str, dtype: str, offset: int, count: int) -> Ends:
    if not count:
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, "r", offset=offset, shape=(count,))


def _digest(path: str) -> str:
    """Return a digest of an index: of its ends, if it is long, and its size."""
    size = size_of(path)
    with open(path, "rb") as file:
        found = hashlib.sha256(file.read(_DIGESTED) + str(size).encode())
        file.seek(max(size - _DIGESTED, 0))
        found.update(file.read())
    return found.hexdigest()
