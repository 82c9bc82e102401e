"""Read every byte of a corpus once, and gather what the checks of its contents need."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tdstream.corpus.document_index import ends_name
from tdstream.corpus.meta import DTYPES, CorpusMeta, Shard
from tdstream.corpus.shard_reader import Tokens, as_tokens, byte_pieces
from tdstream.verification.index_checks import EndsCheck
from tdstream.verification.verify_report import Findings

_COUNTED = 1 << 20  # Lengths below have a counter each; the few documents that are longer are listed.


@dataclass(frozen=True, kw_only=True, slots=True)
class LengthStatistics:
    """What the lengths of documents are, in tokens of their own, without the end-of-text token."""

    documents: int
    minimum: int
    median: float
    mean: float
    p99: int
    """The smallest length that 99 % of the documents do not exceed."""
    maximum: int
    histogram: tuple[tuple[int, int, int], ...]
    """(lowest length, highest length, documents) of each bin: 0, 1, 2-3, 4-7, 8-15, ..."""


class LengthCounter:
    """Takes lengths, and says what they are."""

    def __init__(self) -> None:
        self._counts: NDArray[np.int64] = np.zeros(1, np.int64)
        self._long: list[int] = []
        self._sum = 0

    def add(self, lengths: NDArray[np.int64]) -> None:
        """Count documents.

        Args:
            lengths: Their lengths, shape [num_documents].
        """
        self._sum += int(lengths.sum())
        self._long += lengths[lengths >= _COUNTED].tolist()
        added = np.bincount(lengths[lengths < _COUNTED])
        if len(added) > len(self._counts):
            self._counts = np.pad(self._counts, (0, len(added) - len(self._counts)))
        self._counts[: len(added)] += added

    def statistics(self) -> LengthStatistics | None:
        """Return what the lengths are; None if there were none."""
        lengths, counts = self._distinct()
        if not len(lengths):
            return None
        upto = np.cumsum(counts)  # documents that are not longer than each length
        documents = int(upto[-1])

        def ranked(rank: int) -> int:
            return int(lengths[np.searchsorted(upto, rank)])

        return LengthStatistics(
            documents=documents,
            minimum=int(lengths[0]),
            median=(ranked((documents + 1) // 2) + ranked(documents // 2 + 1)) / 2,
            mean=self._sum / documents,
            p99=ranked(-(-documents * 99 // 100)),
            maximum=int(lengths[-1]),
            histogram=_histogram(lengths, counts),
        )

    def _distinct(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the lengths that occur, rising, and how often each does."""
        short = np.flatnonzero(self._counts)
        long, times = np.unique(np.array(self._long, np.int64), return_counts=True)
        return np.concatenate([short, long]), np.concatenate([self._counts[short], times])


def _histogram(lengths: NDArray[Any], counts: NDArray[Any]) -> tuple[tuple[int, int, int], ...]:
    """Count in bins that double in width, from the first that is not empty to the last."""
    bins = np.frexp(lengths)[1]  # 0 -> 0, 1 -> 1, 2 and 3 -> 2, 4 to 7 -> 3, ...
    documents = np.bincount(bins, weights=counts).astype(np.int64)
    return tuple(
        (2 ** (number - 1) if number else 0, 2**number - 1, int(documents[number]))
        for number in range(int(bins[0]), int(bins[-1]) + 1)
    )


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
        samples: DocumentCounts to choose at random.
        seed: Decides which.
        longest: DocumentCounts that are longer are not chosen.
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


ALGORITHM = "sha256:"


@dataclass(slots=True)
class BadIds:
    """Ids of one shard that no vocabulary of that size has."""

    count: int = 0
    first: int = -1
    """Place of the first one in the shard."""
    highest: int = -1

    def add(self, tokens: Tokens, begin: int, limit: int) -> None:
        """Take note of the ids of a piece that are not below the limit.

        Args:
            tokens: The piece, shape [num_tokens].
            begin: Its place in the shard.
            limit: The size of the vocabulary.
        """
        highest = int(tokens.max(initial=0))
        if highest < limit:
            return
        places = np.flatnonzero(tokens >= limit)
        self.first = begin + int(places[0]) if self.count == 0 else self.first
        self.count += len(places)
        self.highest = max(self.highest, highest)


@dataclass(slots=True)
class Contents:
    """What reading a corpus gave."""

    documents: DocumentScan | None
    """None where the end-of-text id is unknown."""
    digests: dict[str, str] = field(default_factory=dict)
    """Shard -> its checksum, as meta.json spells it; of the shards that can be read."""
    bad_ids: dict[str, BadIds] = field(default_factory=dict)
    last_token: int | None = None
    """The last token of the corpus; None if the last shard is damaged."""
    ends: dict[str, EndsCheck] = field(default_factory=dict)
    """Shard -> what was seen of its index of document ends; of the shards that have one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ContentsReader:
    """Reads all shards of a corpus, those of a wrong size too."""

    directory: Path
    meta: CorpusMeta
    sizes: dict[str, int]
    damaged: set[str]
    """Shards whose size is wrong: their tokens stand at no certain place. Unreadable ones are added."""
    indexed: frozenset[str]
    """Shards with an index of document ends that has the right size."""
    vocab_size: int
    """Ids are to be below; 0 where unknown."""
    piece_bytes: int
    advance: Callable[[int], object] | None
    """Told the number of bytes after each piece."""

    def read(self, documents: DocumentScan | None, findings: Findings) -> Contents:
        """Read the corpus.

        Args:
            documents: Fed with the tokens, and told where some are missing.
            findings: Told about shards that cannot be read.
        """
        contents = Contents(documents)
        for chunk in self.meta.chunks:
            begin = documents.position if documents else 0
            try:
                if chunk.file in self.sizes:
                    self._read_chunk(chunk, contents)
            except OSError as error:
                self.damaged.add(chunk.file)
                findings.fault("unreadable", chunk.file, f"cannot be read: {error.strerror or error}.")
            if documents and chunk.file in self.damaged:
                documents.skip(begin + chunk.tokens - documents.position)
        if self.meta.chunks and self.meta.chunks[-1].file in self.damaged:
            contents.last_token = None
        return contents

    def _read_chunk(self, chunk: Shard, contents: Contents) -> None:
        digest = hashlib.sha256()
        bad, place = BadIds(), 0
        ends = self._index_of(chunk, contents)
        dtype: np.dtype[Any] | None = DTYPES.get(self.meta.dtype)
        for piece in byte_pieces(self.directory / chunk.file, self.piece_bytes):
            if chunk.file in self.meta.chunk_checksums:
                digest.update(piece.data)
            if dtype is not None:
                tokens = as_tokens(piece, dtype)
                self._look_at(tokens, place, bad, contents, counted=chunk.file not in self.damaged)
                if ends is not None and self.meta.eos_token_id is not None:
                    ends.feed(tokens, place, self.meta.eos_token_id)
                place += len(tokens)
            if self.advance is not None:
                self.advance(len(piece))
        contents.digests[chunk.file] = ALGORITHM + digest.hexdigest()
        if bad.count:
            contents.bad_ids[chunk.file] = bad

    def _index_of(self, chunk: Shard, contents: Contents) -> EndsCheck | None:
        """Open the index of a shard; None if there is none to compare its tokens with."""
        if chunk.file not in self.indexed:
            return None
        check = EndsCheck.of(self.directory / ends_name(chunk.file), chunk.tokens)
        contents.ends[chunk.file] = check
        return None if chunk.file in self.damaged else check

    def _look_at(self, tokens: Tokens, place: int, bad: BadIds, contents: Contents, *, counted: bool) -> None:
        if self.vocab_size > 0:
            bad.add(tokens, place, self.vocab_size)
        if len(tokens):
            contents.last_token = int(tokens[-1])
        if counted and contents.documents is not None:
            contents.documents.feed(tokens)
