"""Encode with a fast encoder where it was found exact, and look over its shoulder."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tdstream.text.encoders.encoder import Encoded, Encoder, EncoderFailedError, failures_named
from tdstream.text.encoders.proof import different
from tdstream.text.encoders.verdict import CodePoints

logger = logging.getLogger(__name__)

RECHECKED = 1000
"""One document in so many is encoded twice."""
_LONGEST_RECHECK = 1_000_000  # Characters: the slow encoder needs gigabytes for the longest documents.


class CheckedEncoder:
    """Encodes with a fast encoder, and with the oracle whatever the fast one is not trusted with.

    Documents that hold a code point on which it failed go to the oracle; one document in a thousand goes
    to both. If they differ, or the fast one raises, the batch at hand and all that follow are the oracle's.
    """

    def __init__(
        self, fast: Encoder, oracle: Encoder, failing: CodePoints, on_fault: Callable[[str], None]
    ) -> None:
        self._fast = fast
        self._oracle = oracle
        self._failing = failing
        self._on_fault = on_fault
        self._num_documents = 0
        self._stopped = False

    @property
    def name(self) -> str:
        """The package that does the work; behind it the oracle, if that had to go on."""
        return f"{self._fast.name}+{self._oracle.name}" if self._stopped else self._fast.name

    def encode(self, texts: list[str]) -> Encoded:
        """Return the ids of some texts, in their order.

        Args:
            texts: DocumentCounts.
        """
        first, self._num_documents = self._num_documents, self._num_documents + len(texts)
        if not self._stopped:
            try:
                return self._checked(texts, first)
            except EncoderFailedError as failure:
                self._stop(str(failure))
        return self._oracle.encode(texts)

    def _checked(self, texts: list[str], first: int) -> Encoded:
        routed = self._failing.holders(texts)
        if len(routed) == len(texts):
            return self._oracle.encode(texts)
        trusted = texts if not routed else _left(texts, routed)
        encoded = self._run(trusted)
        if routed:
            encoded = _joined(encoded, self._oracle.encode([texts[place] for place in routed]), routed)
        self._recheck(texts, encoded, first)
        return encoded

    def _run(self, texts: list[str]) -> Encoded:
        with failures_named():
            encoded = self._fast.encode(texts)
        offsets = encoded.offsets
        if len(offsets) != len(texts) + 1 or offsets[0] != 0 or offsets[-1] != len(encoded.ids):
            raise EncoderFailedError("it gave ids for another number of documents")
        if np.any(np.diff(offsets) < 0):
            raise EncoderFailedError("it gave documents of less than no length")
        return encoded

    def _recheck(self, texts: list[str], encoded: Encoded, first: int) -> None:
        places = [place for place in rechecked(first, len(texts)) if len(texts[place]) <= _LONGEST_RECHECK]
        if not places:
            return
        right = self._oracle.encode([texts[place] for place in places])
        wrong = different(_some(encoded, places), right)
        if wrong:
            number = first + places[wrong[0]]
            raise EncoderFailedError(f"document {number:,} (counted from 0) got other ids from it")

    def _stop(self, why: str) -> None:
        self._stopped = True
        logger.warning(
            "Encoder %s is not used any more: %s. The tokenizer itself goes on, slower; nothing wrong was "
            "written that was looked at.",
            self._fast.name,
            why,
        )
        self._on_fault(why)


def rechecked(first: int, count: int) -> list[int]:
    """Return which of some documents are encoded twice.

    Args:
        first: Ordinal of the first document.
        count: How many there are.

    Returns:
        Their places, from 0; the same for the same ordinals, whatever the batches.
    """
    ordinals = np.arange(first, first + count, dtype=np.uint64)
    # Multiplying scatters them, so that no rhythm of the data falls together with the choice.
    scattered = ordinals * np.uint64(2_654_435_761) % np.uint64(1 << 32)
    return [int(place) for place in np.flatnonzero(scattered < (1 << 32) // RECHECKED)]


def _left(texts: list[str], routed: list[int]) -> list[str]:
    gone = set(routed)
    return [text for place, text in enumerate(texts) if place not in gone]


def _joined(trusted: Encoded, others: Encoded, places: list[int]) -> Encoded:
    """Return the documents of both, those of the second at the places where they belong."""
    lengths = np.diff(trusted.offsets)
    before: NDArray[np.int64] = np.asarray(places) - np.arange(len(places))  # trusted documents before each
    lengths = np.insert(lengths, before, np.diff(others.offsets))
    starts = np.repeat(trusted.offsets[before], np.diff(others.offsets))
    return Encoded(np.insert(trusted.ids, starts, others.ids), np.concatenate([[0], np.cumsum(lengths)]))


def _some(encoded: Encoded, places: list[int]) -> Encoded:
    """Return some documents."""
    rows = [encoded.ids[encoded.offsets[place] : encoded.offsets[place + 1]] for place in places]
    return Encoded(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))
