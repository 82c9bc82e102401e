"""One pass over the bytes of a corpus that gathers everything the checks of its contents need."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import CorpusError
from tdstream.corpus.document_index import ends_name
from tdstream.corpus.meta import DTYPES, CorpusMeta, Shard
from tdstream.corpus.shard_reader import Tokens, as_tokens, byte_pieces
from tdstream.verification.index_checks import IndexCheck
from tdstream.verification.verify_report import Findings

ALGORITHM = "sha256:"
_COUNTED = 1 << 20  # shorter lengths have a counter each; the few longer documents are listed


@dataclass(slots=True)
class BadIds:
    """Ids in one shard that are outside the vocabulary."""

    count: int = 0
    first: int = -1
    """Position of the first one in the shard."""
    highest: int = -1

    def feed(self, tokens: Tokens, begin: int, limit: int) -> None:
        """Count the ids of a piece [num_tokens] that are not below the limit; the piece starts at `begin`."""
        highest = int(tokens.max(initial=0))
        if highest < limit:
            return
        places = np.flatnonzero(tokens >= limit)
        self.first = begin + int(places[0]) if self.count == 0 else self.first
        self.count += len(places)
        self.highest = max(self.highest, highest)


@dataclass(slots=True)
class Contents:
    """The result of reading a corpus."""

    documents: DocumentScan | None
    """None if the end-of-text id is unknown."""
    digests: dict[str, str] = field(default_factory=dict)
    """Readable shard -> its checksum, in the format of meta.json."""
    bad_ids: dict[str, BadIds] = field(default_factory=dict)
    last_token: int | None = None
    """The last token of the corpus; None if the last shard is damaged."""
    ends: dict[str, IndexCheck] = field(default_factory=dict)
    """Shard with an index -> the check of its index."""
    ends_document: dict[str, bool] = field(default_factory=dict)
    """Shard with an index -> whether a document ends with the shard, by the index."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ContentsReader:
    """Reads all shards of a corpus, even those of the wrong size."""

    directory: Path
    meta: CorpusMeta
    sizes: dict[str, int]
    damaged: set[str]
    """Shards of the wrong size, in which positions of tokens are uncertain; unreadable shards are added."""
    indexed: frozenset[str]
    """Shards with an index of the right size."""
    vocab_size: int
    """All ids should be below it; 0 if unknown."""
    piece_bytes: int
    advance: Callable[[int], object] | None
    """Called with the number of bytes of each piece that was read."""

    def read(self, documents: DocumentScan | None, findings: Findings) -> Contents:
        """Read the corpus, feeding its tokens to `documents`; report shards that cannot be read."""
        contents = Contents(documents)
        begins = True  # whether the next shard begins with a document; False if that is unknown
        for shard in self.meta.chunks:
            begin = documents.position if documents else 0
            try:
                if shard.file in self.sizes:
                    self._read_shard(shard, contents, begins=begins)
            except (OSError, CorpusError) as error:
                self.damaged.add(shard.file)
                _report_unreadable(shard.file, error, findings)
            begins = contents.ends_document.get(shard.file, False) if shard.tokens else begins
            if documents and shard.file in self.damaged:
                documents.skip(begin + shard.tokens - documents.position)
        if self.meta.chunks and self.meta.chunks[-1].file in self.damaged:
            contents.last_token = None
        return contents

    def _read_shard(self, shard: Shard, contents: Contents, *, begins: bool) -> None:
        digest, bad, place = hashlib.sha256(), BadIds(), 0
        index = self._open_index(shard, contents)
        dtype: np.dtype[Any] | None = DTYPES.get(self.meta.dtype)
        for piece in byte_pieces(self.directory / shard.file, self.piece_bytes):
            if shard.file in self.meta.chunk_checksums:
                digest.update(piece.data)
            if dtype is not None:
                tokens = as_tokens(piece, dtype)
                self._examine(tokens, place, bad, contents, counted=shard.file not in self.damaged)
                if index is not None and self.meta.eos_token_id is not None and not self.meta.converted_from:
                    index.feed(tokens, place, self.meta.eos_token_id)
                if index is not None and self.meta.bos_token_id is not None:
                    index.feed_begins(tokens, place, self.meta.bos_token_id, begins=begins)
                place += len(tokens)
            if self.advance is not None:
                self.advance(len(piece))
        if shard.file in contents.ends:
            contents.ends[shard.file].close()
        contents.digests[shard.file] = ALGORITHM + digest.hexdigest()
        if bad.count:
            contents.bad_ids[shard.file] = bad

    def _open_index(self, shard: Shard, contents: Contents) -> IndexCheck | None:
        """Return the index to compare with a shard's tokens; None if it has none, or the shard is damaged."""
        if shard.file not in self.indexed:
            return None
        check = IndexCheck.open(self.directory / ends_name(shard.file), shard.tokens)
        contents.ends[shard.file] = check
        contents.ends_document[shard.file] = bool(len(check.ends)) and int(check.ends[-1]) == shard.tokens
        return None if shard.file in self.damaged else check

    def _examine(self, tokens: Tokens, place: int, bad: BadIds, contents: Contents, *, counted: bool) -> None:
        if self.vocab_size > 0:
            bad.feed(tokens, place, self.vocab_size)
        if len(tokens):
            contents.last_token = int(tokens[-1])
        if counted and contents.documents is not None:
            contents.documents.feed(tokens)


def _report_unreadable(file: str, error: OSError | CorpusError, findings: Findings) -> None:
    """Report a shard that cannot be read: a fault, unless only this process has too many files open."""
    cause = error if isinstance(error, OSError) else error.__cause__
    number = getattr(cause, "errno", None)
    named = getattr(cause, "filename", None)
    file = Path(named).name if isinstance(named, (str, os.PathLike)) else file  # it may be the shard's index
    if number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        why = f"{os.strerror(number)}. Raise the limits of this process (ulimit -n) and verify again"
        findings.unchecked.append(f"{file}: {why}")
    else:
        findings.fault("unreadable", file, f"cannot be read: {getattr(cause, 'strerror', None) or error}.")


class Document(NamedTuple):
    """Number, position and length of a document."""

    number: int
    """Counted from 0, in corpus order, among the complete documents that were read."""
    first: int
    """Position of its first token in the corpus."""
    tokens: int
    """Its length, without the end-of-text token."""


class DocumentScan:
    """Lengths of the documents in a stream of tokens, and a random sample of the documents.

    The result depends on the stream alone, not on the pieces it arrives in. The sample has `samples`
    documents, none longer than `longest`; `seed` chooses them.
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
        self._begin = 0  # of the current document
        self._documents = 0
        self._broken = False  # whether the current document's beginning is unknown
        self._keys = np.empty(0)
        self._chosen: NDArray[np.int64] = np.empty((0, 3), np.int64)

    def feed(self, tokens: Tokens) -> None:
        """Take the next tokens of the stream, [num_tokens]."""
        self.feed_ends(np.flatnonzero(tokens == self._eos_token_id), len(tokens))

    def feed_ends(self, eos_places: NDArray[np.int64], num_tokens: int) -> None:
        """Take the next tokens of the stream, given the ascending positions of end-of-text tokens among them.

        At position 100, in a document that began at 95, the positions [2, 7] of 10 tokens are the ends 102
        and 107 of documents that began at 95 and 103, with 7 and 4 tokens; the next document begins at 108.
        """
        ends = eos_places + self.position
        self.position += num_tokens
        self.eos_tokens += len(ends)
        begins = np.concatenate([[self._begin], ends[:-1] + 1])[: len(ends)]
        if len(ends):
            self._begin = int(ends[-1]) + 1
            complete = slice(1 if self._broken else 0, None)
            self._broken = False
            self._add(begins[complete], ends[complete] - begins[complete])

    def skip(self, num_tokens: int) -> None:
        """Skip unreadable tokens; documents that reach into them are not counted."""
        self.position += num_tokens
        self._begin = self.position
        self._broken = True

    @property
    def rest(self) -> int:
        """Tokens after the last end-of-text token."""
        return 0 if self._broken else self.position - self._begin

    def finish(self) -> None:
        """Count the tokens after the last end-of-text token as a document."""
        if self.rest:
            begin = self._begin
            self._begin = self.position
            self._add(np.array([begin], np.int64), np.array([self.position - begin], np.int64))

    @property
    def chosen(self) -> list[Document]:
        """The sample so far, in corpus order."""
        return [Document(*row) for row in sorted(self._chosen.tolist())]

    def _add(self, firsts: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        self.lengths.add(lengths)
        if self.first_document is None and len(firsts):
            self.first_document = Document(0, int(firsts[0]), int(lengths[0]))
        rows = np.stack([self._documents + np.arange(len(firsts)), firsts, lengths], axis=1)  # [n, 3]
        self._documents += len(firsts)
        if self._samples:
            self._choose(rows)

    def _choose(self, rows: NDArray[np.int64]) -> None:
        """Keep the documents with the smallest random keys, so that all samples are equally likely."""
        keys = self._random.random(len(rows))
        if self._longest is not None:
            keys, rows = keys[rows[:, 2] <= self._longest], rows[rows[:, 2] <= self._longest]
        keys = np.concatenate([self._keys, keys])
        best = np.argsort(keys, kind="stable")[: self._samples]
        self._keys, self._chosen = keys[best], np.concatenate([self._chosen, rows])[best]


@dataclass(frozen=True, kw_only=True, slots=True)
class LengthStatistics:
    """Document lengths in tokens, without the end-of-text token."""

    documents: int
    minimum: int
    median: float
    mean: float
    p99: int
    """The shortest length that 99 % of the documents do not exceed."""
    maximum: int
    histogram: tuple[tuple[int, int, int], ...]
    """(lowest length, highest length, documents) of each bin: 0, 1, 2-3, 4-7, 8-15, ..."""


class LengthCounter:
    """Counts document lengths in bounded memory."""

    def __init__(self) -> None:
        self._counts: NDArray[np.int64] = np.zeros(1, np.int64)
        self._long: list[int] = []
        self._sum = 0

    def add(self, lengths: NDArray[np.int64]) -> None:
        """Count documents of these lengths, [num_documents]."""
        self._sum += int(lengths.sum())
        self._long += lengths[lengths >= _COUNTED].tolist()
        added = np.bincount(lengths[lengths < _COUNTED])
        if len(added) > len(self._counts):
            self._counts = np.pad(self._counts, (0, len(added) - len(self._counts)))
        self._counts[: len(added)] += added

    def statistics(self) -> LengthStatistics | None:
        """Return the statistics; None if there are no documents."""
        lengths, counts = self._distinct()
        if not len(lengths):
            return None
        up_to = np.cumsum(counts)  # documents of at most each length
        documents = int(up_to[-1])

        def ranked(rank: int) -> int:
            return int(lengths[np.searchsorted(up_to, rank)])

        return LengthStatistics(
            documents=documents,
            minimum=int(lengths[0]),
            median=(ranked((documents + 1) // 2) + ranked(documents // 2 + 1)) / 2,
            mean=self._sum / documents,
            p99=ranked(-(-documents * 99 // 100)),
            maximum=int(lengths[-1]),
            histogram=_make_histogram(lengths, counts),
        )

    def _distinct(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the distinct lengths, ascending, and the number of documents of each."""
        short = np.flatnonzero(self._counts)
        long, times = np.unique(np.array(self._long, np.int64), return_counts=True)
        return np.concatenate([short, long]), np.concatenate([self._counts[short], times])


def _make_histogram(lengths: NDArray[Any], counts: NDArray[Any]) -> tuple[tuple[int, int, int], ...]:
    """Count documents in bins that double in width, from the first to the last non-empty one."""
    bins = np.frexp(lengths)[1]  # 0 -> 0, 1 -> 1, 2 and 3 -> 2, 4 to 7 -> 3, ...
    documents = np.bincount(bins, weights=counts).astype(np.int64)
    return tuple(
        (2 ** (number - 1) if number else 0, 2**number - 1, int(documents[number]))
        for number in range(int(bins[0]), int(bins[-1]) + 1)
    )
