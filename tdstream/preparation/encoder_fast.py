"""Load the fast encoders, which are optional packages, and give them the shape of an encoder of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from tdstream.errors import ConfigError, TokenizerError
from tdstream.preparation.encoder import Encoded, Encoder
from tdstream.preparation.hub import in_one_line

FAST_ENCODERS = ("fastokens", "gigatoken")
"""Names of packages, in the order in which they are tried."""
_RENEW_CHARACTERS = 256_000_000
_NO_FAILURES = (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)


class EncoderFailedError(Exception):
    """A fast encoder raised, or gave what cannot be token ids."""


@contextmanager
def failures_named() -> Iterator[None]:
    """Turn whatever a package raises into an EncoderFailedError: what panics in it is not even an Exception.

    Raises:
        EncoderFailedError: If the body raises.
    """
    try:
        yield
    except _NO_FAILURES:
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

    It remembers every word it has met; it is made anew from time to time so that this has a bound.
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
    """Return the version of a fast encoder's package.

    Args:
        name: One of FAST_ENCODERS.

    Raises:
        ConfigError: If it is not installed.
    """
    try:
        return version(name)
    except PackageNotFoundError:
        raise ConfigError(
            f"Encoder {name!r} needs the package {name}, which is not installed: "
            f"pip install 'tdstream[fast]'. Or leave the encoder to tdstream (auto)."
        ) from None


def load_fast(name: str, content: str) -> Encoder:
    """Load a fast encoder.

    Args:
        name: One of FAST_ENCODERS.
        content: The effective tokenizer, as the JSON of its backend.

    Raises:
        TokenizerError: If it refuses this tokenizer.
    """
    kinds: dict[str, Any] = {"fastokens": FastokensEncoder, "gigatoken": GigatokenEncoder}
    try:
        with failures_named():
            encoder: Encoder = kinds[name](content)
    except EncoderFailedError as failure:
        raise TokenizerError(
            f"Encoder {name!r} cannot load this tokenizer ({failure}). Use --encoder auto or hf."
        ) from failure
    return encoder
