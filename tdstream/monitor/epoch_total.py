"""The total of an epoch and how much of it is done, for any loader, while it runs."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from typing import Any, Literal
from weakref import WeakKeyDictionary

from tdstream.loading.torchdata_workarounds import batches_before
from tdstream.streams.total_hint import TotalHint, find_hint

_last_totals: MutableMapping[Any, int] = WeakKeyDictionary()  # loader -> batches of its last complete pass


class EpochTotal:
    """The best known total of one pass over a loader, in the order of preference of `total_hint`.

    `total` is the number of batches of the whole epoch, and `initial` the number done before the first batch,
    if the caller knows them.
    """

    def __init__(self, loader: Any, *, total: int | None = None, initial: int | None = None) -> None:
        self._loader, self._total, self._initial = loader, total, initial
        self.start()

    def start(self) -> None:
        """Start the pass; call it again if something may have changed before the first batch."""
        self._length = _len(self._loader) if self._total is None else self._total
        self.batches = batches_before(self._loader) if self._initial is None else self._initial
        """Batches of the epoch that the loop has finished, including those before a resume."""
        self._in_loop, self._has_started, self._is_over = 0, False, False
        self.update()

    def start_batch(self) -> None:
        """Note that the loop works on a batch."""
        self._in_loop = 1
        if not self._has_started and self._initial is None:
            # By its first batch, a loader that counts has reached the epoch that it serves.
            done = getattr(self._loader, "batches_done", None)
            self.batches = done - 1 if isinstance(done, int) and done > 0 else self.batches
        self._has_started = True

    def finish_batch(self) -> None:
        """Note that the loop has finished the batch."""
        self._in_loop = 0
        self.batches += 1

    def update(self) -> TotalHint | None:
        """Return what is known at this moment, `done` never above `total`; None if nothing is."""
        if not self._is_over:
            best = self._choose(find_hint(self._loader) if self._total is None else None)
            if best is not None and best.unit != "batch" and not (best.is_exact or self._has_started):
                best = replace(best, done=0)  # what workers have reported belongs to the previous pass
            if best is not None and best.done > best.total:  # the total was too low
                best = replace(best, kind="estimate", total=best.done)
            self.known = best
        return self.known

    def _choose(self, hint: TotalHint | None) -> TotalHint | None:
        """Return the loader's hint, or the total of its length or last pass if that is better."""
        in_batches = hint is not None and hint.unit == "batch"
        self._is_counted_by_loader = in_batches and hint is not None and hint.done > 0
        if hint is not None and in_batches:
            # The loader counts the batch in the loop as done, and batches that it skipped.
            self.batches = max(self.batches, hint.done - self._in_loop)
            hint = replace(hint, done=self.batches)
        if hint is not None and (hint.kind == "counted" or self._length is None):
            return hint
        total = _recall(self._loader) if self._length is None else self._length
        kind: Literal["counted", "estimate"] = "estimate" if self._length is None else "counted"
        return None if total is None else TotalHint(kind=kind, total=total, done=self.batches)

    def finish(self, *, complete: bool) -> None:
        """End the pass; `complete` says whether the loader ended it, rather than the loop."""
        if complete:
            self.known = self._final()
            self.batches = self.known.total if self.known.unit == "batch" else self.batches
            if self._length is None:
                _remember(self._loader, self.batches)
        else:
            self.update()
        self._is_over = True

    def _final(self) -> TotalHint:
        """Return the total of a complete pass: what was counted here, or by the loader itself."""
        known, total = self.known, self.batches
        by_loader = known is not None and known.kind == "counted" and self._is_counted_by_loader
        if known is not None and (known.unit != "batch" or by_loader):
            return replace(known, kind="counted", done=known.total)
        return TotalHint(kind="counted", total=total, done=total)


def _len(loader: Any) -> int | None:
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None


def _remember(loader: Any, batches: int) -> None:
    try:
        _last_totals[loader] = batches
    except TypeError:  # not hashable, or without weak references
        return


def _recall(loader: Any) -> int | None:
    try:
        return _last_totals.get(loader)
    except TypeError:
        return None
