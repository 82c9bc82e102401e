"""Token files of datatrove: ``X.ds``, with the ends of documents in ``X.ds.index``.

``X.ds`` is tokens of 2 or 4 bytes. ``X.ds.index`` is uint64, an end in tokens for each document. The first
line of ``X.ds.metadata`` is the tokenizer and, after a bar, the bytes of a token. ``X.ds.loss`` is not read.
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

import numpy as np

from tdstream.core.errors import ConfigError, CorpusError
from tdstream.formats.description import (
    STORED_AS,
    Description,
    Ends,
    FormatOptions,
    IndexedEnds,
    Piece,
    check_pieces,
    choose_dtype,
    count_tokens,
    delimiter,
    size_of,
)
from tdstream.formats.file_sets import find_set

NAME = "datatrove"
_TYPES = {2: "uint16", 4: "uint32"}


def recognize(path: Path) -> str | None:
    """Return the evidence that a path is of this format, else None."""
    files = find_set(path, "*.ds")
    return f"{files[0].name} is named as datatrove's token files are" if files else None


def describe(path: Path, evidence: str, options: FormatOptions) -> Description:
    """Return a piece for each file, with the documents of the indices."""
    files = find_set(path, "*.ds")
    # An empty file fits every type.
    dtypes = {_find_dtype(file, options) for file in files if size_of(file)} or {
        _find_dtype(files[0], options)
    }
    dtype = choose_dtype(path, dtypes, options.dtype)
    sizes = [size_of(file) for file in files]
    pieces = [
        Piece(str(file), 0, count_tokens(file, size, 0, STORED_AS[dtype].itemsize), size)
        for file, size in zip(files, sizes, strict=True)
    ]
    indices = [_beside(file, ".index") for file in files]
    known = all(index.is_file() for index in indices)
    if known:
        paths = tuple(map(str, indices))
        ends = IndexedEnds(partial(_read_ends, paths), sum(size_of(index) // 8 for index in indices), paths)
        digest = hashlib.sha256("".join(map(_digest, paths)).encode()).hexdigest()[:16]
    tokenizer = _read_metadata(files[0])[0]
    return Description(
        format=NAME,
        path=str(path),
        evidence=evidence,
        stored_dtype=dtype,
        pieces=check_pieces(str(path), pieces),
        ends=ends if known else delimiter(options, None, first=False, what=str(path)),
        digest=digest if known else "",
        ends_with_token=not known or options.eos_token_id is not None,
        facts={"tokenizer_name_or_path": tokenizer} if tokenizer else {},
    )


def _beside(file: Path, ending: str) -> Path:
    return file.with_name(file.name + ending)


def _find_dtype(file: Path, options: FormatOptions) -> str:
    """Return the type of a file's tokens: its size is the last end in its index times the bytes of one."""
    size, index = size_of(file), _beside(file, ".index")
    _, width = _read_metadata(file)
    if index.is_file():
        last = _last_end(index)
        fitting = [width for width in _TYPES if last * width == size]
        if not fitting:
            raise CorpusError(
                f"{file} has {size:,} bytes, but {index.name} promises {last:,} tokens, of 2 or 4 bytes. One "
                f"of them was cut, or they are of different runs; copy both again."
            )
        if width and width not in fitting and size:
            raise CorpusError(
                f"{file}: its metadata says {width} bytes a token, its index and size say {fitting[0]}. Copy "
                f"the files again."
            )
        width = width or fitting[0]
    if width:
        return _TYPES[width]
    if options.dtype is None:
        raise ConfigError(
            f"{file} has neither an index nor metadata beside it, so the type of its tokens is unknown. Pass "
            f'dtype="uint16" or "uint32".'
        )
    return options.dtype


def _last_end(index: Path) -> int:
    size = size_of(index)
    if size % 8:
        raise CorpusError(f"{index} has {size:,} bytes, not a multiple of 8. It was cut; copy it again.")
    return int(np.fromfile(index, "<u8", 1, offset=size - 8)[0]) if size else 0


def _read_metadata(file: Path) -> tuple[str, int]:
    """Return the tokenizer's name and the bytes of a token; "" and 0 where unknown."""
    try:
        lines = _beside(file, ".metadata").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return "", 0
    name, _, width = (lines[0] if lines else "").rpartition("|")
    if width not in ("2", "4"):
        return "", 0
    return name, int(width)


def _read_ends(paths: tuple[str, ...], piece: int) -> Ends:
    return np.fromfile(paths[piece], "<i8")


def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
