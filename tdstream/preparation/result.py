"""Counts, result and progress bar of a preparation."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.progress_bar import ProgressBar
from tdstream.corpus.meta import CorpusMeta


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """Counts of a preparation."""

    documents: int = 0
    """Documents written, empty ones included."""
    empty: int = 0
    """Documents of empty texts."""
    skipped: int = 0
    """Records skipped because they have no text."""
    with_eos: int = 0
    """Documents whose text contains the end-of-text token."""
    tokens: int = 0
    """Tokens of these documents, BOS and end-of-text tokens included."""
    text_bytes: int = 0
    """Bytes of their texts in UTF-8."""
    seconds: float = field(default=0.0, compare=False)
    """Time spent, over all runs."""

    @property
    def records(self) -> int:
        """Records read: each is written or skipped."""
        return self.documents + self.skipped

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in _FIELDS})

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Counts:
        """Return the counts in a JSON object; other keys are ignored."""
        return cls(**{name: content[name] for name in _FIELDS})


_FIELDS = tuple(Counts.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class DocumentCounts:
    """Counted properties of consecutive documents, all arrays [num_documents]."""

    ends: NDArray[np.int64]
    """End of each document among their tokens, after its end-of-text token."""
    sizes: NDArray[np.int64]
    """Bytes of each text in UTF-8."""
    holding: NDArray[np.bool_]
    """Whether each text contains the end-of-text token."""
    bos_tokens: int = 0
    """How many each document has: 0 or 1."""

    def counted(self, first: int, stop: int, skipped: int = 0) -> Counts:
        """Return the counts of documents first to stop - 1, plus `skipped` records."""
        if first == stop:
            return Counts(skipped=skipped)
        begin = int(self.ends[first - 1]) if first else 0
        return Counts(
            documents=stop - first,
            empty=int(np.count_nonzero(self.lengths(first, stop) == self.bos_tokens)),
            skipped=skipped,
            with_eos=int(np.count_nonzero(self.holding[first:stop])),
            tokens=int(self.ends[stop - 1]) - begin,
            text_bytes=int(self.sizes[first:stop].sum()),
        )

    def lengths(self, first: int, stop: int) -> NDArray[np.int64]:
        """Return the lengths in tokens, without end-of-text, of documents first to stop - 1."""
        begin = int(self.ends[first - 1]) if first else 0
        return np.diff(self.ends[first:stop], prepend=begin) - 1


def count(lengths: NDArray[np.int64]) -> dict[int, int]:
    """Return number -> number of occurrences."""
    values, times = np.unique(lengths, return_counts=True)
    return dict(zip(values.tolist(), times.tolist(), strict=True))


def median(lengths: Counter[int]) -> float:
    """Return the median of at least one number, given number -> number of occurrences."""
    values = np.array(sorted(lengths))
    up_to = np.cumsum([lengths[int(value)] for value in values])  # occurrences of at most each value
    total = int(up_to[-1])
    low, high = np.searchsorted(up_to, [(total + 1) // 2, total // 2 + 1])
    return float(values[low] + values[high]) / 2


@dataclass(frozen=True, kw_only=True, slots=True)
class PrepareResult:
    """The result of a preparation."""

    output_path: Path
    counts: Counts
    meta: CorpusMeta | None
    """The meta.json of the corpus; None for a task whose share is not merged yet."""
    seconds: float
    """Time from the first record to the finished corpus, over all runs."""
    lengths: Counter[int] = field(default_factory=Counter)
    """Length in tokens, without end-of-text -> documents."""
    val: Counts | None = None
    """Counts of the held-out corpus in ``output_path / "val"``; None if nothing was held out."""
    was_complete: bool = False
    """Whether an earlier run had completed it; then only documents and tokens are counted."""


class Observer:
    """Receives the progress of a preparation, and ignores it."""

    def begin(self, total: int | None, done: Counts, total_bytes: int | None = None) -> None:
        """Receive the records to read, the counts of earlier runs, and the bytes to read; None if unknown."""

    def advance(self, num_records: int, counts: Counts, bytes_read: int | None = None) -> None:
        """Receive the records read since the last call, the counts so far, and the bytes read so far."""

    def end(self) -> None:
        """Note that everything was read."""


class Bar(Observer):
    """A progress bar over records, or over bytes where only these are known, that also shows tokens."""

    def __init__(self, *, visible: bool = True, desc: str = "Preparing") -> None:
        self._bar: ProgressBar | None = None
        self._visible, self._desc = visible, desc
        self._tokens_before, self._in_bytes = 0, False

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the bar, so that later output appears below it."""
        if self._bar is not None:
            self._bar.close()

    def begin(self, total: int | None, done: Counts, total_bytes: int | None = None) -> None:
        """Show the bar, starting where earlier runs stopped."""
        self._tokens_before, self._in_bytes = done.tokens, total is None and total_bytes is not None
        self._bar = ProgressBar(
            total=total_bytes if self._in_bytes else total,
            initial=0 if self._in_bytes else done.records,
            unit="B" if self._in_bytes else " doc",
            unit_scale=True,
            dynamic_ncols=True,
            desc=self._desc,
            disable=not self._visible,
        )

    def advance(self, num_records: int, counts: Counts, bytes_read: int | None = None) -> None:
        """Move the bar."""
        if self._bar is None or not self._visible:
            return
        elapsed = self._bar.format_dict["elapsed"] or 1e-9
        size = self._bar.format_sizeof
        shown = [
            f"{size(counts.tokens)} tokens",
            f"{size((counts.tokens - self._tokens_before) / elapsed)} tok/s",
        ]
        documents = [f"{size(counts.records)} doc"] if self._in_bytes else []
        self._bar.set_postfix_str(", ".join([*documents, *shown]), refresh=False)
        self._bar.update((bytes_read or 0) - self._bar.n if self._in_bytes else num_records)

    def end(self) -> None:
        """Show that everything was read, of which there may be less than was to be read at most."""
        if self._bar is not None and self._bar.total is not None:
            if self._in_bytes:
                self._bar.n = self._bar.total
            self._bar.total = self._bar.n
        self.__exit__()
