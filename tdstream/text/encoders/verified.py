"""A fast encoder that is used where it was found exact, and rechecked while it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tdstream.text.encoders.code_points import CodePoints
from tdstream.text.encoders.encoder import Encoded, Encoder, EncoderFailedError, wrap_failures
from tdstream.text.encoders.proof import find_differences

logger = logging.getLogger(__name__)

RECHECK_EVERY = 1000
"""One document in so many is encoded twice."""
_LONGEST_RECHECK = 1_000_000  # characters; the reference needs gigabytes for the longest documents


class CheckedEncoder:
    """Encodes with a fast encoder, and with the reference whatever the fast one is not trusted with.

    Documents with a code point on which it failed go to the reference; one document in a thousand goes to
    both. If they differ, or the fast one raises, the reference encodes the batch at hand and all that follow.
    """

    def __init__(
        self,
        fast: Encoder,
        reference: Encoder,
        failing: CodePoints,
        on_fault: Callable[[str], None],
        note: str = "",
    ) -> None:
        self.note = note
        """What it is, in a sentence."""
        self._fast = fast
        self._reference = reference
        self._failing = failing
        self._on_fault = on_fault
        self._num_documents = 0
        self._stopped = False

    @property
    def name(self) -> str:
        """The package that does the work, followed by the reference if that had to take over."""
        return f"{self._fast.name}+{self._reference.name}" if self._stopped else self._fast.name

    def encode(self, texts: list[str]) -> Encoded:
        """Return the ids of some texts, in their order."""
        first, self._num_documents = self._num_documents, self._num_documents + len(texts)
        if not self._stopped:
            try:
                return self._encode_checked(texts, first)
            except EncoderFailedError as failure:
                self._stop(str(failure))
        return self._reference.encode(texts)

    def _encode_checked(self, texts: list[str], first: int) -> Encoded:
        routed = self._failing.find_holders(texts)
        if len(routed) == len(texts):
            return self._reference.encode(texts)
        trusted = texts if not routed else _leave_out(texts, routed)
        encoded = self._encode_fast(trusted)
        if routed:
            encoded = _merge(encoded, self._reference.encode([texts[place] for place in routed]), routed)
        self._recheck(texts, encoded, first)
        return encoded

    def _encode_fast(self, texts: list[str]) -> Encoded:
        with wrap_failures():
            encoded = self._fast.encode(texts)
        offsets = encoded.offsets
        if len(offsets) != len(texts) + 1 or offsets[0] != 0 or offsets[-1] != len(encoded.ids):
            raise EncoderFailedError("it gave ids for another number of documents")
        if np.any(np.diff(offsets) < 0):
            raise EncoderFailedError("it gave documents of less than no length")
        return encoded

    def _recheck(self, texts: list[str], encoded: Encoded, first: int) -> None:
        places = [
            place for place in choose_rechecked(first, len(texts)) if len(texts[place]) <= _LONGEST_RECHECK
        ]
        if not places:
            return
        right = self._reference.encode([texts[place] for place in places])
        wrong = find_differences(_select(encoded, places), right)
        if wrong:
            number = first + places[wrong[0]]
            raise EncoderFailedError(f"document {number:,} (counted from 0) got other ids from it")

    def _stop(self, why: str) -> None:
        self._stopped = True
        logger.warning(
            "Encoder %s is not used any more: %s. The tokenizer itself takes over, slower; every document "
            "that was rechecked before was right.",
            self._fast.name,
            why,
        )
        self._on_fault(why)


def choose_rechecked(first: int, count: int) -> list[int]:
    """Return which documents first .. first + count - 1 are encoded twice, as places from 0.

    The choice depends on a document's number alone, not on the batches.
    """
    ordinals = np.arange(first, first + count, dtype=np.uint64)
    # Scattered by multiplying, so that no period of the data coincides with the choice.
    scattered = ordinals * np.uint64(2_654_435_761) % np.uint64(1 << 32)
    return [int(place) for place in np.flatnonzero(scattered < (1 << 32) // RECHECK_EVERY)]


def _leave_out(texts: list[str], routed: list[int]) -> list[str]:
    gone = set(routed)
    return [text for place, text in enumerate(texts) if place not in gone]


def _merge(trusted: Encoded, others: Encoded, places: list[int]) -> Encoded:
    """Return the documents of both, those of `others` at their places.

    Trusted documents A B C and others X Y at places [1, 4] make A X B C Y: before is [1, 3], the number of
    trusted documents before each.
    """
    lengths = np.diff(trusted.offsets)
    before: NDArray[np.int64] = np.asarray(places) - np.arange(len(places))
    lengths = np.insert(lengths, before, np.diff(others.offsets))
    starts = np.repeat(trusted.offsets[before], np.diff(others.offsets))
    return Encoded(np.insert(trusted.ids, starts, others.ids), np.concatenate([[0], np.cumsum(lengths)]))


def _select(encoded: Encoded, places: list[int]) -> Encoded:
    """Return some documents."""
    rows = [encoded.ids[encoded.offsets[place] : encoded.offsets[place + 1]] for place in places]
    return Encoded(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))
