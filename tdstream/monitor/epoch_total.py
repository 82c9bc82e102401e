"""Find out how much of a pass is done and how much there is, of any loader, while it runs."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from typing import Any, Literal
from weakref import WeakKeyDictionary

from tdstream.loading.torchdata_workarounds import batches_before
from tdstream.streams.total_hint import TotalHint, find_hint

_ended: MutableMapping[Any, int] = WeakKeyDictionary()  # loader -> batches of its last whole pass


class Extent:
    """One pass over a loader: the best that can be said of its total, in the order that `totals` explains.

    Args:
        loader: Anything that yields batches.
        total: What the caller knows to be the batches of the whole epoch.
        initial: What the caller knows to be done before the first batch.
    """

    def __init__(self, loader: Any, *, total: int | None = None, initial: int | None = None) -> None:
        self._loader, self._total, self._initial = loader, total, initial
        self.begin()

    def begin(self) -> None:
        """Begin the pass; called again if something may have changed before its first batch."""
        self._length = _length(self._loader) if self._total is None else self._total
        self.batches = batches_before(self._loader) if self._initial is None else self._initial
        """Batches of the epoch that the loop is done with, those before a resume included."""
        self._in_hand, self._has_begun, self._is_over = 0, False, False
        self.ask()

    def take(self) -> None:
        """Note that the loop is busy with a batch."""
        self._in_hand = 1
        if not self._has_begun and self._initial is None:
            # With the first batch a loader that counts for itself has come to the epoch that it serves.
            done = getattr(self._loader, "batches_done", None)
            self.batches = done - 1 if isinstance(done, int) and done > 0 else self.batches
        self._has_begun = True

    def put(self) -> None:
        """Note that it is done with it."""
        self._in_hand = 0
        self.batches += 1

    def ask(self) -> TotalHint | None:
        """Return what is known at this moment, `done` never above `total`; None if nothing is."""
        if not self._is_over:
            best = self._best_of(find_hint(self._loader) if self._total is None else None)
            if best is not None and best.unit != "batch" and not (best.is_exact or self._has_begun):
                best = replace(best, done=0)  # what workers have said is of the pass before
            if best is not None and best.done > best.total:  # more than there should have been
                best = replace(best, kind="estimate", total=best.done)
            self.known = best
        return self.known

    def finish(self, *, whole: bool) -> None:
        """End the pass; what has run to its end is all there was.

        Args:
            whole: Whether the loader said so itself, or the loop was left.
        """
        if whole:
            self.known = self._all()
            self.batches = self.known.total if self.known.unit == "batch" else self.batches
            if self._length is None:
                _remember(self._loader, self.batches)
        else:
            self.ask()
        self._is_over = True

    def _all(self) -> TotalHint:
        """Return what there was: what was seen, or what a loader that follows itself had promised."""
        known, total = self.known, self.batches
        if known is not None and (known.unit != "batch" or (known.kind == "counted" and self._follows)):
            return replace(known, kind="counted", done=known.total)
        return TotalHint(kind="counted", total=total, done=total)

    def _best_of(self, hint: TotalHint | None) -> TotalHint | None:
        in_batches = hint is not None and hint.unit == "batch"
        self._follows = in_batches and hint is not None and hint.done > 0
        if hint is not None and in_batches:
            # The loader counts the batch in hand as done, and what it left out in between.
            self.batches = max(self.batches, hint.done - self._in_hand)
            hint = replace(hint, done=self.batches)
        if hint is not None and (hint.kind == "counted" or self._length is None):
            return hint
        total = _recall(self._loader) if self._length is None else self._length
        kind: Literal["counted", "estimate"] = "estimate" if self._length is None else "counted"
        return None if total is None else TotalHint(kind=kind, total=total, done=self.batches)


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None


def _remember(loader: Any, batches: int) -> None:
    try:
        _ended[loader] = batches
    except TypeError:  # not hashable, or not to be referred to weakly
        return


def _recall(loader: Any) -> int | None:
    try:
        return _ended.get(loader)
    except TypeError:
        return None
