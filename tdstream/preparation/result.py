"""Counts, result and progress bar of a preparation."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from tdstream.corpus.meta import CorpusMeta


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """What has been prepared so far."""

    documents: int = 0
    """Documents written, empty ones too."""
    empty: int = 0
    """Documents among them without a token of their own."""
    skipped: int = 0
    """Records that were left out because they hold no text."""
    with_eos: int = 0
    """Documents whose own text holds the end-of-text token."""
    tokens: int = 0
    """Tokens of these documents, end-of-text tokens too."""
    text_bytes: int = 0
    """Bytes of their texts in UTF-8."""
    seconds: float = field(default=0.0, compare=False)
    """Time that it took, over all runs."""

    @property
    def records(self) -> int:
        """Records read: every one is written or skipped."""
        return self.documents + self.skipped

    def __add__(self, other: Counts) -> Counts:
        """Return both together."""
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in _FIELDS})

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Counts:
        """Return the counts in a JSON object; its other keys are ignored."""
        return cls(**{name: content[name] for name in _FIELDS})


_FIELDS = tuple(Counts.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class DocumentCounts:
    """What is counted of consecutive documents."""

    ends: NDArray[np.int64]
    """Where each ends among their tokens, after its end-of-text token; shape [num_documents]."""
    sizes: NDArray[np.int64]
    """Bytes of each text in UTF-8, shape [num_documents]."""
    holding: NDArray[np.bool_]
    """Whether each holds the end-of-text token in its own text, shape [num_documents]."""

    def counted(self, first: int, stop: int, skipped: int = 0) -> Counts:
        """Return the counts of documents first to stop - 1, with the records skipped among them."""
        if first == stop:
            return Counts(skipped=skipped)
        begin = int(self.ends[first - 1]) if first else 0
        return Counts(
            documents=stop - first,
            empty=int(np.count_nonzero(self.lengths(first, stop) == 0)),
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
    """Return number -> how often it occurs."""
    values, times = np.unique(lengths, return_counts=True)
    return dict(zip(values.tolist(), times.tolist(), strict=True))


def median(lengths: Counter[int]) -> float:
    """Return the median of at least one number, given as number -> how often it occurs."""
    values = np.array(sorted(lengths))
    upto = np.cumsum([lengths[int(value)] for value in values])
    total = int(upto[-1])
    low, high = np.searchsorted(upto, [(total + 1) // 2, total // 2 + 1])
    return float(values[low] + values[high]) / 2


@dataclass(frozen=True, kw_only=True, slots=True)
class PrepareResult:
    """What a preparation has done."""

    output_path: Path
    counts: Counts
    meta: CorpusMeta | None
    """The corpus; None for a task whose share is not merged yet."""
    seconds: float
    """From the first record to the finished corpus, in all runs together."""
    lengths: Counter[int] = field(default_factory=Counter)
    """Length in tokens, without end-of-text -> documents."""
    val: Counts | None = None
    """Counts of the held-out corpus in ``output_path / "val"``; None if nothing was held out."""
    was_complete: bool = False
    """Whether an earlier run had completed it; only documents and tokens are counted then."""


class Observer(Protocol):
    """Receives the progress of a preparation."""

    def begin(self, total: int | None, done: Counts) -> None:
        """Receive the number of records to read, None if unknown, and what earlier runs did."""

    def advance(self, num_records: int, counts: Counts) -> None:
        """Receive the number of records read since the last call, and the counts so far."""

    def end(self) -> None:
        """Receive that the corpus is complete."""


class NoObserver:
    """An observer that ignores everything."""

    def begin(self, total: int | None, done: Counts) -> None:
        """Ignore it."""

    def advance(self, num_records: int, counts: Counts) -> None:
        """Ignore it."""

    def end(self) -> None:
        """Ignore it."""


class Bar:
    """A progress bar over documents that also shows tokens and tokens per second."""

    def __init__(self, *, visible: bool = True, desc: str = "Preparing") -> None:
        self._bar: Any = None
        self._visible, self._desc = visible, desc
        self._tokens_before = 0

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Close the bar; later output appears below it."""
        if self._bar is not None:
            self._bar.close()

    def begin(self, total: int | None, done: Counts) -> None:
        """Show the bar, starting where earlier runs stopped."""
        self._tokens_before = done.tokens
        self._bar = tqdm(
            total=total,
            initial=done.records,
            disable=not self._visible,
            unit=" doc",
            unit_scale=True,
            dynamic_ncols=True,
            desc=self._desc,
        )

    def advance(self, num_records: int, counts: Counts) -> None:
        """Move the bar."""
        if not self._visible:
            return
        elapsed = self._bar.format_dict["elapsed"] or 1e-9
        rate = self._bar.format_sizeof((counts.tokens - self._tokens_before) / elapsed)
        tokens = self._bar.format_sizeof(counts.tokens)
        self._bar.set_postfix_str(f"{tokens} tokens, {rate} tok/s", refresh=False)
        self._bar.update(num_records)
