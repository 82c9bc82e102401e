"""Choice of the documents to hold out of a corpus, by a hash of the positions of their records.

Rule, version 1: the hash of record r of segment s is mix(r + mix(s + K)), where mix is the finalizer of
SplitMix64 and K a constant, all modulo 2^64. A fraction F holds out every record whose hash is below
F x 2^64; a number N holds out the records with the N smallest hashes. Segments are the files of a dataset, in
order (runs of neighboring files if there are more than 256, shorter runs if there are more than 256 tasks;
runs of 10,000 records in a list). So the choice is the same on every run, for any number of processes and
tasks and any batch size, and does not depend on bad records.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import ConfigError
from tdstream.preparation.ledger import TokenBlock
from tdstream.preparation.options import HoldoutOptions
from tdstream.preparation.result import Counts
from tdstream.schedule.order import splitmix64
from tdstream.text.batches import TextBatches
from tdstream.writing.writer import CorpusWriter

_KEY = np.uint64(0x9E3779B97F4A7C15)
_PIECE = 1 << 20  # records hashed at once


def hashes(segment: int, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the hashes, uint64 [num_rows], of records of a segment; rows count from 0 in the segment."""
    key = splitmix64(np.array([segment], np.uint64) + _KEY)
    return splitmix64(rows.astype(np.uint64) + key)


@dataclass(frozen=True, slots=True)
class Holdout:
    """The rule: a record is held out if its hash is at most `highest`, 0 to 2^64 - 1."""

    highest: int

    def split(self, block: TokenBlock) -> tuple[TokenBlock, TokenBlock]:
        """Return the kept and the held-out documents of a block."""
        rows = block.begin.row + block.rows
        held = hashes(block.begin.segment, rows) <= np.uint64(self.highest)
        kept = replace(_select(block, ~held), others=block.rows[held]) if held.any() else block
        return kept, _select(block, held)


def _select(block: TokenBlock, chosen: NDArray[np.bool_]) -> TokenBlock:
    """Return the chosen documents, bool [num_documents], of a block."""
    documents = block.documents
    lengths = np.diff(documents.ends, prepend=0)
    return replace(
        block,
        ids=block.ids[np.repeat(chosen, lengths)],
        documents=replace(
            documents,
            ends=np.cumsum(lengths[chosen]),
            sizes=documents.sizes[chosen],
            holding=documents.holding[chosen],
        ),
        rows=block.rows[chosen],
    )


def choose_held_out(options: HoldoutOptions, source: TextBatches) -> Holdout | None:
    """Return the rule; None if nothing is to be held out."""
    if options.val_fraction is not None:
        return hold_out_fraction(options.val_fraction)
    if options.val_documents is not None:
        return hold_out_number(options.val_documents, source.count_rows())
    return None


def hold_out_fraction(fraction: float) -> Holdout:
    """Hold out a fraction of the records, 0 to 1, both exclusive."""
    return Holdout(math.ceil(Fraction(fraction) * 2**64) - 1)


def hold_out_number(number: int, rows: list[int]) -> Holdout:
    """Hold out `number` records of segments that have `rows` records; refuse to hold out all."""
    if number >= sum(rows):
        raise ConfigError(
            f"val_documents is {number:,}, but there are only {sum(rows):,} records, and some must stay. "
            f"Hold out fewer."
        )
    smallest = np.empty(0, np.uint64)
    for segment, count in enumerate(rows):
        for first in range(0, count, _PIECE):
            found = hashes(segment, np.arange(first, min(first + _PIECE, count)))
            smallest = np.concatenate([smallest, found])
            if len(smallest) > number:
                smallest = np.partition(smallest, number - 1)[:number]
    return Holdout(int(smallest.max()))


NOTE_KEY = "val"
"""Key in a note of the journal for the counts of held-out documents since the note before."""


class HeldOut:
    """The held-out documents of a preparation: split off blocks, written and counted; none without a rule."""

    def __init__(self, holdout: Holdout | None, writer: CorpusWriter) -> None:
        self.counts = read_val_counts(entry.note for entry in writer.entries)
        """All that were written, by earlier runs too."""
        self._holdout = holdout
        self._writer = writer
        self._documents = 0  # written of the current block
        self._new = Counts()  # since the last note

    def split(self, block: TokenBlock) -> tuple[TokenBlock, TokenBlock | None]:
        """Return the kept and the held-out documents of a block; None for the latter without a rule."""
        return (block, None) if self._holdout is None else self._holdout.split(block)

    def note(self, block: TokenBlock | None, row: int) -> dict[str, Any]:
        """Write the held-out documents of a block that precede a row; return the journal's note."""
        if block is None:
            return {}
        self._write(block, int(np.searchsorted(block.rows, row)))
        return self.last_note()

    def end(self, block: TokenBlock | None) -> None:
        """Write the rest of a block."""
        if block is not None:
            self._write(block, len(block.rows))
            self._documents = 0

    def last_note(self) -> dict[str, Any]:
        """Return the journal's note on everything written since the last note."""
        if self._holdout is None:
            return {}
        new, self._new = self._new, Counts()
        return {NOTE_KEY: asdict(new)}

    def _write(self, block: TokenBlock, stop: int) -> None:
        first = self._documents
        if stop > first:
            ends = block.documents.ends
            begin = int(ends[first - 1]) if first else 0
            self._writer.hold_out(block.ids[begin : int(ends[stop - 1])], ends[first:stop] - begin)
            added = block.documents.counted(first, stop)
            self.counts, self._new = self.counts + added, self._new + added
            self._documents = stop


def read_val_counts(notes: Iterable[dict[str, Any]]) -> Counts:
    """Return the total of held-out documents in the notes of a journal."""
    return sum((Counts.from_json(note[NOTE_KEY]) for note in notes if NOTE_KEY in note), Counts())
