"""Encoders: the Hugging Face tokenizer itself, and faster packages that may stand in for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from tdstream.core.errors import ConfigError, TokenizerError
from tdstream.core.read_ahead import ReadAhead
from tdstream.text.network import in_one_line
from tdstream.text.tokenizer_checks import check_calls

EXACT_ENCODERS = 'Use {encoder:"auto" or "hf"}.'
"""The hint where a fast encoder cannot be used."""

_PROBES = [
    "",
    " ",
    "Hello, world!  It's 3.14\n\n\tok",
    "na\u00efve \u65e5\u672c\u8a9e \U0001f600 e\u0301",
    "\0 \ufeff\u200d x",
]
_HIGHEST_ID = 2**32 - 1
_PIECE = 128  # documents encoded at once: the encodings are many times as large
_CALLS = ("__call__", "_call_one", "_encode_plus", "_batch_encode_plus", "set_truncation_and_padding")


@dataclass(frozen=True, slots=True)
class Encoded:
    """The token ids of some documents, one after the other."""

    ids: NDArray[np.integer[Any]]
    """Not negative. Shape [num_tokens]."""
    offsets: NDArray[np.int64]
    """Shape [num_documents + 1]; document d is ids[offsets[d]:offsets[d + 1]]."""


class Encoder(Protocol):
    """Anything that turns texts into token ids without special tokens."""

    @property
    def name(self) -> str:
        """``hf``, or the package that does the work."""
        ...

    def encode(self, texts: list[str]) -> Encoded:
        """Return the ids of some texts, in their order."""
        ...


class HfEncoder:
    """Encodes with a Hugging Face tokenizer: ``tokenizer(texts, add_special_tokens=False)``, never truncated.

    A fast tokenizer's backend is called directly, without the masks and spans that are not used here. A
    tokenizer whose class changes how it is called, or that disagrees with its backend, is called as a whole.
    """

    name = "hf"

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._backend = _find_backend(tokenizer)
        probes = [*_PROBES, f"a{tokenizer.eos_token}b"]
        if self._backend is not None and self._by_backend(probes) != self._by_call(probes):
            self._backend = None
        if self._backend is None:
            check_calls(tokenizer, self._by_call)

    @property
    def backend(self) -> Any:
        """The part of a fast tokenizer that decides the ids; None if it does not decide all of them."""
        return self._backend

    def encode(self, texts: list[str]) -> Encoded:
        """Return the ids of some texts, in their order; a special token's string becomes that token's id."""
        if self._backend is None:
            return concatenate(self._by_call(texts))
        if len(texts) <= _PIECE:
            return concatenate(self._by_backend(texts))
        return self._in_pieces(texts)

    def _in_pieces(self, texts: list[str]) -> Encoded:
        """Convert the encodings of some texts while the next ones are encoded on all cores."""
        pieces = (texts[begin : begin + _PIECE] for begin in range(0, len(texts), _PIECE))
        with ReadAhead(map(self._encodings, pieces), depth=1) as encoded:
            parts = [concatenate([encoding.ids for encoding in encodings]) for encodings in encoded]
        offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(np.concatenate([np.diff(part.offsets) for part in parts]), out=offsets[1:])
        return Encoded(np.concatenate([part.ids for part in parts]), offsets)

    def _by_backend(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._encodings(texts)]

    def _encodings(self, texts: list[str]) -> Any:
        backend: Any = self._backend
        return backend.encode_batch_fast(texts, add_special_tokens=False)

    def _by_call(self, texts: list[str]) -> list[list[int]]:
        try:
            encoded = self._tokenizer(
                texts,
                add_special_tokens=False,
                truncation=False,
                padding=False,
                return_attention_mask=False,
                verbose=False,
            )
            rows = [list(row) for row in encoded["input_ids"]]
        except Exception as error:  # whatever its code raises
            raise TokenizerError(f"The tokenizer failed: {in_one_line(error)}.") from error
        _check_ids(rows)
        return rows


def _check_ids(rows: list[list[Any]]) -> None:
    """Raise TokenizerError for an id that no corpus can hold."""
    for row in rows:
        for wrong in (token_id for token_id in row if not _is_id(token_id)):
            raise TokenizerError(
                f"The tokenizer gave the id {wrong!r}; expected a whole number of 0 to {_HIGHEST_ID:,}. Does "
                f"it have an unk_token for what is not in its vocabulary?"
            )


def _is_id(token_id: Any) -> bool:
    return isinstance(token_id, (int, np.integer)) and 0 <= int(token_id) <= _HIGHEST_ID


def concatenate(rows: list[list[int]]) -> Encoded:
    """Return the ids of documents, one after the other: [[5, 6], [7]] has offsets [0, 2, 3]."""
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    ids = np.fromiter(chain.from_iterable(rows), np.int64, count=int(offsets[-1]))
    return Encoded(ids, offsets)


def _find_backend(tokenizer: Any) -> Any:
    """Return a fast tokenizer's backend, without truncation and padding; None if its ids may differ."""
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        return None
    plain = all(
        getattr(type(tokenizer), name, None) is getattr(PreTrainedTokenizerFast, name, None)
        for name in _CALLS
    )
    backend: Any = tokenizer._tokenizer
    if not plain or not hasattr(backend, "encode_batch_fast"):
        return None
    backend.no_truncation()
    backend.no_padding()
    return backend


FAST_ENCODERS = ("fastokens", "gigatoken")
"""Names of packages, in the order in which they are tried."""
_RENEW_CHARACTERS = 256_000_000
_NOT_WRAPPED = (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)


class EncoderFailedError(Exception):
    """A fast encoder raised, or returned what cannot be token ids."""


@contextmanager
def wrap_failures() -> Iterator[None]:
    """Turn what a package raises into an EncoderFailedError; its panics are not even Exceptions."""
    try:
        yield
    except _NOT_WRAPPED:
        raise
    except BaseException as error:
        raise EncoderFailedError(f"{type(error).__name__}: {in_one_line(error, 200)}") from error


class FastokensEncoder:
    """Encodes with the package fastokens, in its own threads."""

    name = "fastokens"

    def __init__(self, content: str) -> None:
        from fastokens import Tokenizer  # noqa: PLC0415

        self._tokenizer: Any = Tokenizer.from_json_str(content)

    def encode(self, texts: list[str]) -> Encoded:
        """Return the ids of some texts, in their order."""
        ids, offsets = self._tokenizer.encode_batch_flat(texts)
        return Encoded(np.frombuffer(ids, "<u4"), np.frombuffer(offsets, "<u8").astype(np.int64))


class GigatokenEncoder:
    """Encodes with the package gigatoken, in its own threads.

    It caches every word it has seen, and is made anew from time to time to bound the cache.
    """

    name = "gigatoken"

    def __init__(self, content: str, renew_characters: int = _RENEW_CHARACTERS) -> None:
        self._content = content
        self._renew_characters = renew_characters
        self._load()

    def encode(self, texts: list[str]) -> Encoded:
        """Return the ids of some texts, in their order."""
        if self._characters > self._renew_characters:
            self._load()
        self._characters += sum(map(len, texts))
        rows: Any = self._tokenizer.encode_batch(texts).layout
        return Encoded(np.asarray(rows.content.data), np.asarray(rows.offsets.data, np.int64))

    def _load(self) -> None:
        from gigatoken import Tokenizer  # noqa: PLC0415

        self._characters = 0
        self._tokenizer: Any = Tokenizer.from_json(self._content)


def package_version(name: str) -> str:
    """Return the version of a fast encoder's package; raise ConfigError if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        raise ConfigError(
            f"Encoder {name!r} needs the package {name}, which is not installed: "
            f"pip install 'tdstream[fast]'. Or leave the encoder to tdstream (auto)."
        ) from None


def is_installed(name: str) -> bool:
    """Return whether a fast encoder's package is installed."""
    try:
        return bool(package_version(name))
    except ConfigError:
        return False


def load_fast(name: str, content: str) -> Encoder:
    """Load a fast encoder for a tokenizer, the JSON of its backend; raise TokenizerError if it refuses."""
    encoders: dict[str, Any] = {"fastokens": FastokensEncoder, "gigatoken": GigatokenEncoder}
    try:
        with wrap_failures():
            encoder: Encoder = encoders[name](content)
    except EncoderFailedError as failure:
        raise TokenizerError(
            f"Encoder {name!r} cannot load this tokenizer ({failure}).", EXACT_ENCODERS
        ) from failure
    return encoder
