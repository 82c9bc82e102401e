"""Ledger of a preparation: the records, documents and tokens that are safe at the end of each shard."""

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
from tdstream.text.records import SegmentPlace
from tdstream.writing.journal import JournalEntry, join_encoders

_START_AGAIN = "Pass {overwrite} without {resume} to start again."


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenBlock:
    """Tokens of consecutive documents, and the records they came from."""

    ids: NDArray[Any]
    """With end-of-text tokens, [num_tokens]."""
    documents: DocumentCounts
    begin: SegmentPlace
    """Place of the first record."""
    encoder: str = ""
    """Name of the encoder."""
    num_records: int
    """Records read for this block, those without text included."""
    bytes_read: int | None = None
    """Bytes of files read up to its end; None where unknown."""
    rows: NDArray[np.int64]
    """Record of each document, counted from `begin`; [num_documents]."""
    others: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """Records whose documents are counted elsewhere (held out), ascending; [num_others]."""


class Ledger:
    """Counts of the blocks written so far, and the journal's note at the end of each shard.

    If a shard ends inside a document, the note has the place of that document's record and the number of its
    tokens that are safe; a resumed run encodes the record again and drops that many tokens.
    """

    def __init__(self, begin: SegmentPlace) -> None:
        self.place = begin
        """Place of the first record that is not completely safe."""
        self.counts = Counts()
        """Documents written completely, and records skipped."""
        self.lengths: Counter[int] = Counter()
        """Length in tokens, without end-of-text -> documents; at most sqrt(2 * tokens) keys."""
        self._partial = 0  # safe tokens of the next block's first document
        self._documents = self._row = 0  # counted so far in the current block
        self._new, self._new_lengths = Counts(), Counter[int]()  # since the last note
        self._encoders: dict[str, None] = {}  # since the last note, and of the current document
        self._clock = time.monotonic()

    @classmethod
    def of(cls, entries: Iterable[JournalEntry], begin: SegmentPlace) -> Ledger:
        """Return the ledger at the end of a journal's last shard; refuse an inconsistent journal."""
        ledger, num_tokens = cls(begin), 0
        try:
            for entry in entries:
                note = entry.note
                ledger.counts += Counts.from_json(note)
                ledger.place = SegmentPlace(int(note["segment"]), int(note["row"]))
                ledger.lengths.update({int(length): int(times) for length, times in note["lengths"]})
                ledger._partial = int(note["partial"])
                num_tokens += entry.shard.tokens
        except (KeyError, TypeError, ValueError) as error:
            raise CorpusError(f"The journal lacks or misstates {error}.", _START_AGAIN) from None
        if num_tokens != ledger.counts.tokens + ledger._partial:
            raise CorpusError(
                f"The journal lists {num_tokens:,} tokens in its shards, but its documents add up to "
                f"{ledger.counts.tokens + ledger._partial:,}.",
                _START_AGAIN,
            )
        return ledger

    def unwritten(self, block: TokenBlock) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the tokens of the next block that are not safe yet, and the document ends among them.

        With 3 safe tokens of the first document, a block with the ends [5, 9] returns 6 tokens and [2, 6].
        """
        first = int(block.documents.ends[0]) if len(block.rows) else 0
        if self._partial > first:
            raise CorpusError(
                f"The document to continue has {first:,} tokens, but {self._partial:,} of it were written. "
                "The dataset has changed.",
                _START_AGAIN,
            )
        return block.ids[self._partial :], block.documents.ends - self._partial

    def note(self, block: TokenBlock, num_written: int) -> dict[str, Any]:
        """Return the journal's note for a shard that ends after `num_written` tokens of a block.

        With 3 safe tokens before, 4 written ones and the ends [5, 9], one document is complete, and the note
        has the place of the second one's record and partial = 3 + 4 - 5 = 2.
        """
        ends = block.documents.ends
        num_tokens = self._partial + num_written
        documents = int(np.searchsorted(ends, num_tokens, side="right"))
        partial = num_tokens - (int(ends[documents - 1]) if documents else 0)
        row = int(block.rows[documents]) if partial else int(block.rows[documents - 1]) + 1
        self._count(block, documents, row)
        self._encoders.setdefault(block.encoder)
        return self._note(SegmentPlace(block.begin.segment, block.begin.row + row), partial)

    def end(self, block: TokenBlock) -> None:
        """Count the rest of a block as written."""
        self._count(block, len(block.rows), block.num_records)
        self._encoders.setdefault(block.encoder)
        self.place = SegmentPlace(block.begin.segment, block.begin.row + block.num_records)
        self._documents = self._row = self._partial = 0

    def last_note(self) -> dict[str, Any]:
        """Return the journal's note for the last shard, after all blocks."""
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

    def _note(self, place: SegmentPlace, partial: int) -> dict[str, Any]:
        now = time.monotonic()
        spent = Counts(seconds=now - self._clock)
        new, lengths = asdict(self._new + spent), sorted(self._new_lengths.items())
        self.counts += spent
        self._clock, self._new, self._new_lengths = now, Counts(), Counter()
        encoders, self._encoders = join_encoders(list(self._encoders)), {}
        where = {"segment": place.segment, "row": place.row, "partial": partial}
        return {**where, **new, "lengths": lengths, "encoder": encoders}
