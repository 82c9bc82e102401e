"""Sets of code points, and the texts that hold one of a set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

_NUM_CODES = 0x110000
_MOST_CHARACTERS = 1 << 20  # looked up at once: four bytes and an index of eight for each


class CodePoints:
    """A set of code points."""

    def __init__(self, codes: Iterable[int] = ()) -> None:
        self._table: NDArray[np.bool_] = np.zeros(_NUM_CODES, np.bool_)  # shape [_NUM_CODES]
        for code in codes:
            self._table[code] = True
        self._index()

    @classmethod
    def from_ranges(cls, ranges: Iterable[tuple[int, int]]) -> CodePoints:
        """Return the code points of some ranges, first and last of each included."""
        points = cls()
        for first, last in ranges:
            points._table[first : last + 1] = True
        points._index()
        return points

    @classmethod
    def all_but(cls, codes: Iterable[int]) -> CodePoints:
        """Return all code points but some."""
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

    def find_holders(self, texts: list[str]) -> list[int]:
        """Return the places of the texts that hold a code point of the set."""
        # Three tests, each slower than the one before and reached by fewer texts.
        others = [place for place, text in enumerate(texts) if self._has_ascii or not text.isascii()]
        suspects = [place for place in others if self._may_hold(texts[place])]
        return [place for place in suspects if self._holds(texts[place])]

    def _index(self) -> None:
        self._has_ascii = bool(self._table[:128].any())
        firsts = _first_bytes(np.flatnonzero(self._table))
        self._harmless = bytes(byte for byte in range(256) if byte not in firsts)

    def _may_hold(self, text: str) -> bool:
        """Return whether any character begins with the same byte as one of the set, in UTF-8."""
        parts = (part.encode("utf-8", "surrogatepass") for part in _split(text))
        return any(part.translate(None, self._harmless) for part in parts)

    def _holds(self, text: str) -> bool:
        return any(bool(self._table[_codes(part)].any()) for part in _split(text))


def _split(text: str) -> Iterator[str]:
    """Yield a text in parts, so that there is no other copy of all of a long one."""
    return (text[begin : begin + _MOST_CHARACTERS] for begin in range(0, len(text), _MOST_CHARACTERS))


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _first_bytes(codes: NDArray[np.int64]) -> set[int]:
    """Return the bytes with which code points begin in UTF-8."""
    bits = [codes < 0x80, codes < 0x800, codes < 0x10000]
    firsts = np.select(bits, [codes, 0xC0 | codes >> 6, 0xE0 | codes >> 12], 0xF0 | codes >> 18)
    return set(np.unique(firsts).tolist())
