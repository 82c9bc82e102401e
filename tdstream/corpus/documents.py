"""Find the documents of a token stream by the tokens that end them, while it passes by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tdstream.corpus.lengths import LengthCounter
from tdstream.corpus.tokens import Tokens


class Document(NamedTuple):
    """Where a document stands."""

    number: int
    """Counted from 0, in the order of the corpus, among the whole documents that were seen."""
    first: int
    """Place of its first token in the corpus."""
    tokens: int
    """Tokens of its own, without the end-of-text token."""


class DocumentScan:
    """Takes a stream in pieces; keeps the lengths of its documents and a random sample of their places.

    Pieces may be cut anywhere: what is found depends on the stream alone.

    Args:
        eos_token_id: The token that ends a document.
        samples: Documents to choose at random.
        seed: Decides which.
        longest: Documents that are longer are not chosen.
    """

    def __init__(
        self, eos_token_id: int, *, samples: int = 0, seed: int = 0, longest: int | None = None
    ) -> None:
        self.lengths = LengthCounter()
        self.first_document: Document | None = None
        self.eos_tokens = 0
        self.position = 0
        self._eos_token_id = eos_token_id
        self._samples = samples
        self._longest = longest
        self._random = np.random.default_rng(seed)
        self._begin = 0  # of the document that is passing
        self._documents = 0
        self._broken = False  # whether its beginning is unknown
        self._keys = np.empty(0)
        self._chosen: NDArray[np.int64] = np.empty((0, 3), np.int64)

    def feed(self, tokens: Tokens) -> None:
        """Take the next tokens of the stream, shape [num_tokens]."""
        self.feed_ends(np.flatnonzero(tokens == self._eos_token_id), len(tokens))

    def feed_ends(self, eos_places: NDArray[np.int64], num_tokens: int) -> None:
        """Take note of the next tokens of the stream where it is known which of them end documents.

        Args:
            eos_places: Places of these end-of-text tokens among the next tokens, ascending.
            num_tokens: How many tokens pass by.
        """
        ends = eos_places + self.position
        self.position += num_tokens
        self.eos_tokens += len(ends)
        begins = np.concatenate([[self._begin], ends[:-1] + 1])[: len(ends)]
        if len(ends):
            self._begin = int(ends[-1]) + 1
            whole = slice(1 if self._broken else 0, None)
            self._broken = False
            self._take(begins[whole], ends[whole] - begins[whole])

    def skip(self, num_tokens: int) -> None:
        """Take note of tokens that cannot be read: documents that reach into them are not counted."""
        self.position += num_tokens
        self._begin = self.position
        self._broken = True

    @property
    def rest(self) -> int:
        """Tokens behind the last end-of-text token."""
        return 0 if self._broken else self.position - self._begin

    def finish(self) -> None:
        """Count the tokens behind the last end-of-text token as a document."""
        if self.rest:
            begin = self._begin
            self._begin = self.position
            self._take(np.array([begin], np.int64), np.array([self.position - begin], np.int64))

    @property
    def chosen(self) -> list[Document]:
        """The sample so far, in the order of the corpus."""
        return [Document(*row) for row in sorted(self._chosen.tolist())]

    def _take(self, firsts: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        self.lengths.add(lengths)
        if self.first_document is None and len(firsts):
            self.first_document = Document(0, int(firsts[0]), int(lengths[0]))
        rows = np.stack([self._documents + np.arange(len(firsts)), firsts, lengths], axis=1)  # [n, 3]
        self._documents += len(firsts)
        if self._samples:
            self._choose(rows)

    def _choose(self, rows: NDArray[np.int64]) -> None:
        """Keep the documents with the smallest random keys: each sample of all of them is as likely."""
        keys = self._random.random(len(rows))
        if self._longest is not None:
            keys, rows = keys[rows[:, 2] <= self._longest], rows[rows[:, 2] <= self._longest]
        keys = np.concatenate([self._keys, keys])
        best = np.argsort(keys, kind="stable")[: self._samples]
        self._keys, self._chosen = keys[best], np.concatenate([self._chosen, rows])[best]
