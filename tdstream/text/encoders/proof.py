"""Proof that a fast encoder gives the tokenizer's ids, or the code points on which it does not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tdstream.text.encoders.code_points import CodePoints
from tdstream.text.encoders.encoder import Encoded, Encoder, EncoderFailedError, wrap_failures
from tdstream.text.encoders.proof_texts import (
    PLAIN,
    group_codes,
    make_hard_texts,
    make_single_texts,
    surround,
)
from tdstream.text.encoders.verdict import Verdict

PROOF_VERSION = 2
"""Counts the changes of the tests; a verdict of another version is not used."""
MAX_FAILING = 20_000
"""Code points on which an encoder may fail and still be of use."""
_BATCH = 250

EncoderPair: TypeAlias = tuple[Encoder, Encoder]
"""The encoder in question, and its reference, which is right by definition."""


class _NotExactError(Exception):
    """The encoder fails on ordinary text, or on too many code points."""


def prove(pairs: list[EncoderPair], texts: list[str], codes: Iterable[int]) -> Verdict:
    """Compare an encoder with its reference on texts, and on code points in all surroundings.

    There may be two pairs: one for the tokenizer itself, and one for its probe tokenizer. `codes` are the
    code points to test; all others count as failing.
    """
    tested = sorted(codes)
    comparison = _Comparison()
    try:
        for pair in pairs:
            # The last pair shows the most, and gets all surroundings.
            comparison.run(pair, texts, tested, fully=pair is pairs[-1])
    except _NotExactError as reason:
        return Verdict(ok=False, why=str(reason))
    except EncoderFailedError as failure:
        return Verdict(ok=False, why=f"it raises {failure}")
    ranges = CodePoints.all_but(set(tested) - comparison.failing).ranges()
    return Verdict(ok=True, failing=tuple(ranges), num_failed=len(comparison.failing))


def make_texts(specials: list[str], words: list[str]) -> list[str]:
    """Return the texts of a proof; `words` are the strings of the vocabulary's ids, each alone."""
    draw = np.random.default_rng(20)
    mixed = [words[place] for place in draw.permutation(len(words))]
    groups = [mixed[begin : begin + 200] for begin in range(0, len(mixed), 200)]
    return [
        *make_hard_texts(specials),
        *["".join(group) for group in groups],
        *[" ".join(group) for group in groups],
    ]


class _Comparison:
    """A comparison that collects the failing code points, until there are too many."""

    def __init__(self) -> None:
        self.failing: set[int] = set()

    def run(self, pair: EncoderPair, texts: list[str], codes: list[int], *, fully: bool) -> None:
        """Compare two encoders on all texts and code points."""
        self._fast, self._reference = pair
        self._fully = fully
        self._explain_all(texts)
        self._compare_codes(codes)

    def _compare_codes(self, codes: list[int]) -> None:
        """Find the code points on which the encoders differ, each in all surroundings."""
        groups = list(group_codes(codes))
        for number in self._find_places([self._around(group) for group in groups]):
            group = groups[number]
            # Each by itself first: reducing a text is slow where many of its code points fail.
            failing = [group[place] for place in self._find_places([self._around([code]) for code in group])]
            self._add_failing(failing, self._around(group))
            self._explain(self._around(group))
        self._explain_all(make_single_texts(codes))

    def _around(self, codes: list[int]) -> str:
        return surround(codes, fully=self._fully)

    def _explain_all(self, texts: list[str]) -> None:
        """Find failing code points of the texts on which the encoders differ."""
        for place in self._find_places(texts):
            self._explain(texts[place])

    def _explain(self, text: str) -> None:
        """Find failing code points of a text until the rest of it is encoded alike."""
        left = _without(text, self.failing)
        while self._find_places([left]):
            least = self._reduce(left)
            # Where two fail only together, it is enough to route documents with the higher one.
            self._add_failing({max({ord(char) for char in least} - PLAIN, default=0x20)}, least)
            left = _without(left, self.failing)

    def _reduce(self, text: str) -> str:
        """Leave out of a text every code point that is not needed for the difference."""
        for code in sorted({ord(char) for char in text} - PLAIN):
            shorter = _without(text, {code})
            if self._find_places([shorter]):
                text = shorter
        return text

    def _add_failing(self, codes: Iterable[int], text: str) -> None:
        found = set(codes)
        if found & PLAIN:
            raise _NotExactError(f"it differs on ordinary text such as {_shown(text)}")
        self.failing |= found
        if len(self.failing) > MAX_FAILING:
            raise _NotExactError(f"it differs on more than {MAX_FAILING:,} code points")

    def _find_places(self, texts: list[str]) -> list[int]:
        """Return the places of the texts on which the encoders differ."""
        places: list[int] = []
        for begin in range(0, len(texts), _BATCH):
            batch = texts[begin : begin + _BATCH]
            with wrap_failures():
                given = self._fast.encode(batch)
            places += [begin + place for place in find_differences(given, self._reference.encode(batch))]
        return places


def find_differences(given: Encoded, right: Encoded) -> list[int]:
    """Return the documents whose ids differ from the right ones."""
    if np.array_equal(given.offsets, right.offsets) and np.array_equal(given.ids, right.ids):
        return []
    if len(given.offsets) != len(right.offsets):
        return list(range(len(right.offsets) - 1))
    rows, others = _rows(given), _rows(right)
    return [place for place, row in enumerate(rows) if not np.array_equal(row, others[place])]


def _rows(encoded: Encoded) -> list[NDArray[Any]]:
    return np.split(encoded.ids, encoded.offsets[1:-1])


def _without(text: str, codes: set[int]) -> str:
    return text.translate(dict.fromkeys(codes))


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "...")
