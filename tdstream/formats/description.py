"""What a format says of its files: where tokens lie, of which type, and where documents end."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tdstream.core.checks import check_bool, check_int
from tdstream.core.errors import ConfigError, CorpusError

Ends = NDArray[np.int64]

STORED_AS: dict[str, np.dtype[Any]] = {
    "uint8": np.dtype("<u1"),
    "int8": np.dtype("<u1"),
    "uint16": np.dtype("<u2"),
    "int16": np.dtype("<u2"),
    "uint32": np.dtype("<u4"),
    "int32": np.dtype("<u4"),
    "uint64": np.dtype("<i8"),
    "int64": np.dtype("<i8"),
}
"""The type as which tokens of a stored type are read: ids from 0 up have the same bits in both."""
CONVERT = "Run tdstream convert, which writes them as a corpus."


class Piece(NamedTuple):
    """Consecutive tokens in one file."""

    path: str
    """Absolute path."""
    offset: int
    """Bytes before the first token."""
    tokens: int
    size: int
    """Bytes of the file when it was described."""
    mtime_ns: int = 0
    """Its modification time then."""


@dataclass(frozen=True, slots=True)
class IndexedEnds:
    """Document ends that an index tells."""

    read: Callable[[int], Ends]
    """Returns the ends in a piece, ascending, as numbers of its tokens; may repeat one. Picklable."""
    num_documents: int
    """How many there are at most, to know what reading them costs."""
    files: tuple[str, ...]
    """What they are read from."""


@dataclass(frozen=True, slots=True)
class DelimiterEnds:
    """Document ends that a token marks."""

    token_id: int
    first: bool
    """Whether the token is the first of each document instead of the last."""


@dataclass(frozen=True, slots=True)
class UnknownEnds:
    """No document ends."""

    ask: str
    """A sentence that says what is missing, and what to pass."""


EndsRule = IndexedEnds | DelimiterEnds | UnknownEnds


@dataclass(frozen=True, kw_only=True, slots=True)
class FormatOptions:
    """What a caller says of files that do not tell it themselves."""

    format: str | None = None
    """Name of the format; None recognizes it."""
    dtype: str | None = None
    """Stored type of the tokens."""
    eos_token_id: int | None = None
    """The token that marks documents."""
    eos_first: bool | None = None
    """Whether it stands first in each document; None is the format's habit."""

    @classmethod
    def of(cls, format: Any, dtype: Any, eos_token_id: Any, eos_first: Any) -> FormatOptions:  # noqa: A002
        """Return options; raise ConfigError for one of a wrong type."""
        if format is not None and not isinstance(format, str):
            raise ConfigError(f"format must be a name, got {format!r}.")
        return cls(
            format=format,
            dtype=None if dtype is None else check_stored_dtype(dtype),
            eos_token_id=None
            if eos_token_id is None
            else check_int("eos_token_id", eos_token_id, at_least=0),
            eos_first=None if eos_first is None else check_bool("eos_first", eos_first),
        )


NOTHING_TOLD = FormatOptions()
"""Files that tell everything themselves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """Token files of one format, as one stream."""

    format: str
    path: str
    """What was asked for."""
    evidence: str
    """Why it is this format, as the end of a sentence."""
    stored_dtype: str
    """Type of the tokens in the files."""
    pieces: tuple[Piece, ...]
    """In the order of the stream."""
    ends: EndsRule
    digest: str = ""
    """A digest of the index or header that describes the tokens; "" if there is none."""
    ends_with_token: bool = True
    """Whether a token of its own ends (or begins) each document."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What else the files tell: eos_token_id, vocab_size, tokenizer_name_or_path."""
    checksums: dict[str, str] = field(default_factory=dict)
    """Path -> "sha256:..." of the file's bytes, if they are known."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type as which tokens are read."""
        return STORED_AS[self.stored_dtype]

    @property
    def signed(self) -> bool:
        """Whether the files could hold negative ids."""
        return not self.stored_dtype.startswith("u")


def check_pieces(path: str, pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Return pieces; raise CorpusError if they hold no token."""
    if not sum(piece.tokens for piece in pieces):
        raise CorpusError(f"{path} holds no token.")
    return tuple(pieces)


def count_tokens(path: Path, size: int, offset: int, itemsize: int) -> int:
    """Return how many tokens follow an offset; raise CorpusError if the last one was cut."""
    tokens, rest = divmod(size - offset, itemsize)
    if rest or tokens < 0:
        raise CorpusError(
            f"{path} has {size - offset:,} bytes, not a multiple of the {itemsize} of a token. It was "
            f"probably cut while it was copied, or has another dtype."
        )
    return tokens


def check_stored_dtype(dtype: Any) -> str:
    """Return the name of a type of whole numbers, or raise ConfigError."""
    try:
        name = str(np.dtype(dtype).name)
    except TypeError:
        name = ""
    if name not in STORED_AS:
        raise ConfigError(f"dtype must be one of {', '.join(STORED_AS)}, got {dtype!r}.")
    return name


def check_same_dtype(asked: str | None, found: str, path: object) -> None:
    """Raise ConfigError if the caller names another type than the files; int32 is as good as uint32."""
    if asked is not None and STORED_AS[asked] != STORED_AS[found]:
        raise ConfigError(f"dtype={asked!r} contradicts {path}, which says {found!r}. Leave dtype out.")


def make_piece(file: Path, offset: int, tokens: int, dtype: str) -> Piece:
    """Return the tokens after a file's header; raise CorpusError if they are not all that the file holds."""
    size, promised = size_of(file), offset + tokens * STORED_AS[dtype].itemsize
    if tokens < 0 or size != promised:
        raise CorpusError(
            f"{file} has {size:,} bytes; its header promises {promised:,} ({tokens:,} tokens). It was "
            f"probably cut while it was copied; copy it again."
        )
    return Piece(str(file), offset, tokens, size)


def choose_dtype(path: Path, dtypes: set[str], asked: str | None) -> str:
    """Return the one type of files; refuse several, and another that the caller names."""
    if len(dtypes) > 1:
        raise CorpusError(f"{path} holds files of {' and '.join(sorted(dtypes))}. Name those of one type.")
    (dtype,) = dtypes
    check_same_dtype(asked, dtype, path)
    return dtype


def read_head(path: str | Path, num_bytes: int = 1024) -> bytes:
    """Return the first bytes of a file."""
    with open(path, "rb") as file:
        return file.read(num_bytes)


def size_of(path: str | Path) -> int:
    """Return the bytes of a file."""
    return os.stat(path).st_size


def delimiter(options: FormatOptions, eos_token_id: int | None, *, first: bool | None, what: str) -> EndsRule:
    """Return the rule of files in which only a token marks documents; `first` is the format's habit."""
    token_id = options.eos_token_id if options.eos_token_id is not None else eos_token_id
    first = options.eos_first if options.eos_first is not None else first
    if token_id is None:
        return UnknownEnds(
            f"{what} does not tell where documents end. Pass eos_token_id=..., the token that marks them."
        )
    if first is None:
        return UnknownEnds(
            f"{what} does not tell whether token {token_id} stands first or last in a document. Pass "
            f"eos_first=True or False."
        )
    return DelimiterEnds(token_id, first)
