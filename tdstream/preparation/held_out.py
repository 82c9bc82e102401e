"""Write the documents that are held out, and count them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import numpy as np

from tdstream.corpus.entries import Entry
from tdstream.corpus.writer import CorpusWriter
from tdstream.preparation.counts import Counts
from tdstream.preparation.holdout import Holdout
from tdstream.preparation.ledger import Block

NOTE_KEY = "val"
"""Where a note of the journal counts the held-out documents since the note before."""


class HeldOut:
    """Takes the held-out documents out of blocks, writes and counts them; nothing where there is no rule."""

    def __init__(self, holdout: Holdout | None, writer: CorpusWriter) -> None:
        """Begin, or go on where a journal ends.

        Args:
            holdout: The rule; None holds nothing out.
            writer: Where they go.
        """
        self.counts = held_out_counts(writer.entries)
        """All that were written."""
        self._holdout = holdout
        self._writer = writer
        self._documents = 0  # Of the block at hand: what has been written.
        self._new = Counts()  # Since the note before.

    def split(self, block: Block) -> tuple[Block, Block | None]:
        """Return the documents of a block that stay, and those that are held out; None if none can be.

        Args:
            block: All of them.
        """
        return (block, None) if self._holdout is None else self._holdout.split(block)

    def note(self, block: Block | None, row: int) -> dict[str, Any]:
        """Write those that lie before a record; return what the journal is to say of them.

        Args:
            block: The held-out documents of the block at hand.
            row: The record, counted in that block.
        """
        if block is None:
            return {}
        self._write(block, int(np.searchsorted(block.rows, row)))
        return self.last_note()

    def end(self, block: Block | None) -> None:
        """Write the rest of a block."""
        if block is not None:
            self._write(block, len(block.rows))
            self._documents = 0

    def last_note(self) -> dict[str, Any]:
        """Return what the journal is to say when all that were read have been written."""
        if self._holdout is None:
            return {}
        new, self._new = self._new, Counts()
        return {NOTE_KEY: asdict(new)}

    def _write(self, block: Block, stop: int) -> None:
        first = self._documents
        if stop > first:
            ends = block.documents.ends
            begin = int(ends[first - 1]) if first else 0
            self._writer.hold_out(block.ids[begin : int(ends[stop - 1])], ends[first:stop] - begin)
            added = block.documents.counted(first, stop)
            self.counts, self._new = self.counts + added, self._new + added
            self._documents = stop


def held_out_counts(entries: Iterable[Entry]) -> Counts:
    """Return how many held-out documents a journal tells of.

    Args:
        entries: What it says of the shards beside them.
    """
    return counts_in(entry.note for entry in entries)


def counts_in(notes: Iterable[dict[str, Any]]) -> Counts:
    """Return how many held-out documents some notes of journals tell of.

    Args:
        notes: What they say.
    """
    total = Counts()
    for note in notes:
        if NOTE_KEY in note:
            total += Counts.from_json(note[NOTE_KEY])
    return total
