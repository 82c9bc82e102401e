"""Follow which records, documents and tokens are safe whenever a shard is full, and go on from there."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import CorpusError
from tdstream.preparation.result import Counts, DocumentCounts, count
from tdstream.text.segments import Place
from tdstream.writing.journal import JournalEntry, join_encoders

_BEGIN_AGAIN = "Pass {overwrite} without {resume} to begin again."


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenBlock:
    """The tokens of some documents that follow each other, and where they came from."""

    ids: NDArray[Any]
    """Their tokens, end-of-text tokens too; shape [num_tokens]."""
    documents: DocumentCounts
    begin: Place
    """Where the first of the records lies."""
    encoder: str = ""
    """What encoded them."""
    num_records: int
    """Records read for it, those without text too."""
    rows: NDArray[np.int64]
    """Which of these records each document is from, shape [num_documents]."""
    others: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """Records among them whose documents are counted elsewhere, ascending; shape [num_others]."""


class Ledger:
    """Counts blocks as they are written, and tells for the journal what lies before each shard's end.

    A shard may end inside a document. The place that is remembered is then before that document's record,
    with the number of its tokens that are safe; these are left out when it is encoded again.
    """

    def __init__(self, begin: Place) -> None:
        self.place = begin
        """Where the first record lies that was not safe as a whole when this began."""
        self.counts = Counts()
        """All documents that were written as a whole, and the records that were skipped."""
        self.lengths: Counter[int] = Counter()
        """Number of tokens of its own -> documents. The keys are fewer than the root of twice the tokens."""
        self._partial = 0  # Tokens that are safe of the first document of the next block.
        self._documents = self._row = 0  # Of the block that is being written: what has been counted.
        self._new, self._new_lengths = Counts(), Counter[int]()  # Since the last shard's end.
        self._encoders: dict[str, None] = {}  # Since the last shard's end, and that of the document at hand.
        self._clock = time.monotonic()

    @classmethod
    def of(cls, entries: Iterable[JournalEntry], begin: Place) -> Ledger:
        """Return the ledger that stands where a journal's last shard ends.

        Args:
            entries: The shards.
            begin: Where the first record lies.

        Raises:
            CorpusError: If the journal contradicts itself.
        """
        ledger, num_tokens = cls(begin), 0
        try:
            for entry in entries:
                note = entry.note
                ledger.counts += Counts.from_json(note)
                ledger.place = Place(int(note["segment"]), int(note["row"]))
                ledger.lengths.update({int(length): int(times) for length, times in note["lengths"]})
                ledger._partial = int(note["partial"])
                num_tokens += entry.shard.tokens
        except (KeyError, TypeError, ValueError) as error:
            raise CorpusError(f"The journal lacks or misstates {error}.", _BEGIN_AGAIN) from None
        if num_tokens != ledger.counts.tokens + ledger._partial:
            raise CorpusError(
                f"The journal promises {num_tokens:,} tokens in its chunks, its documents add up to "
                f"{ledger.counts.tokens + ledger._partial:,}.",
                _BEGIN_AGAIN,
            )
        return ledger

    def rest_of(self, block: TokenBlock) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the tokens of a block that are not safe yet, and where documents end among them.

        Args:
            block: The next one.

        Raises:
            CorpusError: If it has fewer tokens than were safe: the tokenizer or the data are not the same.
        """
        first = int(block.documents.ends[0]) if len(block.rows) else 0
        if self._partial > first:
            raise CorpusError(
                f"The document to go on with has {first:,} tokens, but {self._partial:,} of it were written. "
                f"The dataset has changed.",
                _BEGIN_AGAIN,
            )
        return block.ids[self._partial :], block.documents.ends - self._partial

    def note(self, block: TokenBlock, num_written: int) -> dict[str, Any]:
        """Return what the journal is to say of a shard that ends inside a block.

        Args:
            block: The block that is being written.
            num_written: Tokens of `rest_of` that lie before the shard's end.
        """
        ends = block.documents.ends
        num_tokens = self._partial + num_written
        documents = int(np.searchsorted(ends, num_tokens, side="right"))
        partial = num_tokens - (int(ends[documents - 1]) if documents else 0)
        row = int(block.rows[documents]) if partial else int(block.rows[documents - 1]) + 1
        self._count(block, documents, row)
        self._encoders.setdefault(block.encoder)
        return self._note(Place(block.begin.segment, block.begin.row + row), partial)

    def end(self, block: TokenBlock) -> None:
        """Take note that all of a block has been written."""
        self._count(block, len(block.rows), block.num_records)
        self._encoders.setdefault(block.encoder)
        self.place = Place(block.begin.segment, block.begin.row + block.num_records)
        self._documents = self._row = self._partial = 0

    def last_note(self) -> dict[str, Any]:
        """Return what the journal is to say of the last shard, when all blocks have been written."""
        return self._note(self.place, 0)

    def _count(self, block: TokenBlock, documents: int, row: int) -> None:
        first = self._documents
        others = np.searchsorted(block.others, [self._row, row])
        skipped = (row - self._row) - (documents - first) - int(others[1] - others[0])
        added = block.documents.counted(first, documents, skipped)
        lengths = count(block.documents.lengths(first, documents))
        self.counts, self._new = self.counts + added, self._new + added
        self.lengths.update(lengths)
        self._new_lengths.update(lengths)
        self._documents, self._row = documents, row

    def _note(self, place: Place, partial: int) -> dict[str, Any]:
        now = time.monotonic()
        spent = Counts(seconds=now - self._clock)
        new, lengths = asdict(self._new + spent), sorted(self._new_lengths.items())
        self.counts += spent
        self._clock, self._new, self._new_lengths = now, Counts(), Counter()
        encoders, self._encoders = join_encoders(list(self._encoders)), {}
        where = {"segment": place.segment, "row": place.row, "partial": partial}
        return {**where, **new, "lengths": lengths, "encoder": encoders}
