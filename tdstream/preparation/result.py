"""Say what a preparation has done, at its end and on the way."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tdstream.corpus.meta import CorpusMeta
from tdstream.preparation.counts import Counts


@dataclass(frozen=True, kw_only=True, slots=True)
class PrepareResult:
    """What a preparation has done."""

    output_path: Path
    counts: Counts
    meta: CorpusMeta | None
    """The corpus; None where it is not there yet, because other tasks have to add their shares."""
    seconds: float
    """From the first record to the finished corpus, in all runs together."""
    lengths: Counter[int] = field(default_factory=Counter)
    """Number of tokens of its own -> documents."""
    val: Counts | None = None
    """What was held out, into the corpus in ``output_path / "val"``; None if nothing was to be."""
    was_complete: bool = False
    """Whether there was nothing to do; only documents and tokens are counted then."""


class Observer(Protocol):
    """Somebody who wants to know how far a preparation is."""

    def begin(self, total: int | None, done: Counts) -> None:
        """Take note of the number of records to read, None where unknown, and of what earlier runs did."""

    def advance(self, num_records: int, counts: Counts) -> None:
        """Take note of records that were read since the last call, and of all that was done."""

    def end(self) -> None:
        """Take note that the corpus is complete."""


class Nobody:
    """The observer of a preparation that nobody watches."""

    def begin(self, total: int | None, done: Counts) -> None:
        """Ignore it."""

    def advance(self, num_records: int, counts: Counts) -> None:
        """Ignore it."""

    def end(self) -> None:
        """Ignore it."""
