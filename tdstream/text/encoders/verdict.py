"""Keep on disk which fast encoder was found to be exact for which tokenizer, for the next preparation."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.user_cache import read_json, user_cache, write_json

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a proof has found."""

    ok: bool
    """Whether the encoder is exact on every text without the failing code points."""
    why: str = ""
    """What it failed on; empty if it is exact."""
    failing: tuple[tuple[int, int], ...] = ()
    """First and last of each run of code points that it failed on, or that were not tested."""
    num_failed: int = 0
    """Code points among them that it failed on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictKey:
    """Everything that a verdict depends on."""

    encoder: str
    version: str
    """Of the encoder's package."""
    oracle: str
    """Version of the package that it is compared with."""
    proof: int
    """Version of the proof."""
    tokenizer: str
    """Hash of the effective tokenizer."""


def cache_dir() -> Path:
    """Return the directory of the verdicts, in the user's cache."""
    return user_cache("encoders")


def read_verdict(key: VerdictKey) -> Verdict | None:
    """Return a verdict that was kept; None if there is none, or it cannot be read.

    Args:
        key: What it is about.
    """
    try:
        content = read_json(_path(key))
        return _parse(content) if content["key"] == asdict(key) else None
    except (OSError, RuntimeError, ValueError, KeyError, TypeError):  # RuntimeError: nobody's home.
        return None


def _parse(content: dict[str, Any]) -> Verdict:
    ok, why = content["ok"], content["why"]
    failing = tuple((int(first), int(last)) for first, last in content["failing"])
    if not isinstance(ok, bool) or not isinstance(why, str):
        raise TypeError("a verdict is a truth value and a sentence")
    if any(not 0 <= first <= last < 0x110000 for first, last in failing):
        raise ValueError("no code points")
    return Verdict(ok=ok, why=why, failing=failing, num_failed=int(content["num_failed"]))


def write_verdict(key: VerdictKey, verdict: Verdict) -> None:
    """Keep a verdict if that is possible: readers see all of it or nothing.

    Args:
        key: What it is about.
        verdict: What was found.
    """
    try:
        write_json(_path(key), {"key": asdict(key), **asdict(verdict)})
    except (OSError, RuntimeError) as error:
        logger.debug("The verdict on encoder %s is not kept: %s", key.encoder, error)


def _path(key: VerdictKey) -> Path:
    name = hashlib.sha256(json.dumps(asdict(key), sort_keys=True).encode()).hexdigest()
    return cache_dir() / f"{key.encoder}-{name[:32]}.json"


NUM_CODES = 0x110000
_SLICE = 1 << 20  # Characters looked up at once: four bytes and an index of eight for each.


class CodePoints:
    """A set of code points."""

    def __init__(self, codes: Iterable[int] = ()) -> None:
        self._table: NDArray[np.bool_] = np.zeros(NUM_CODES, np.bool_)  # shape [NUM_CODES]
        for code in codes:
            self._table[code] = True
        self._index()

    @classmethod
    def from_ranges(cls, ranges: Iterable[tuple[int, int]]) -> CodePoints:
        """Return the code points of some ranges.

        Args:
            ranges: First and last code point of each.
        """
        points = cls()
        for first, last in ranges:
            points._table[first : last + 1] = True
        points._index()
        return points

    @classmethod
    def all_but(cls, codes: Iterable[int]) -> CodePoints:
        """Return all code points but some.

        Args:
            codes: Those that are not in the set.
        """
        points = cls(codes)
        np.logical_not(points._table, out=points._table)
        points._index()
        return points

    def ranges(self) -> list[tuple[int, int]]:
        """Return the first and last code points of the runs in the set, in ascending order."""
        edges = np.flatnonzero(np.diff(self._table, prepend=False, append=False))
        return [(int(first), int(end) - 1) for first, end in edges.reshape(-1, 2)]

    def __len__(self) -> int:
        return int(np.count_nonzero(self._table))

    def holders(self, texts: list[str]) -> list[int]:
        """Return the places of the texts that hold a code point of the set.

        Args:
            texts: Any texts.
        """
        # Three sieves, each dearer than the one before and met by fewer texts.
        others = [place for place, text in enumerate(texts) if self._has_ascii or not text.isascii()]
        suspects = [place for place in others if self._may_hold(texts[place])]
        return [place for place in suspects if self._holds(texts[place])]

    def _index(self) -> None:
        self._has_ascii = bool(self._table[:128].any())
        firsts = _first_bytes(np.flatnonzero(self._table))
        self._harmless = bytes(byte for byte in range(256) if byte not in firsts)

    def _may_hold(self, text: str) -> bool:
        """Return whether any character begins with the same byte as one of the set, in UTF-8."""
        parts = (part.encode("utf-8", "surrogatepass") for part in _parts(text))
        return any(part.translate(None, self._harmless) for part in parts)

    def _holds(self, text: str) -> bool:
        return any(bool(self._table[_codes(part)].any()) for part in _parts(text))


def _parts(text: str) -> Iterator[str]:
    """Yield a text in parts, so that there is no other copy of all of a long one."""
    return (text[begin : begin + _SLICE] for begin in range(0, len(text), _SLICE))


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _first_bytes(codes: NDArray[np.int64]) -> set[int]:
    """Return the bytes with which code points begin in UTF-8."""
    bits = [codes < 0x80, codes < 0x800, codes < 0x10000]
    firsts = np.select(bits, [codes, 0xC0 | codes >> 6, 0xE0 | codes >> 12], 0xF0 | codes >> 18)
    return set(np.unique(firsts).tolist())
