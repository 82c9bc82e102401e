"""The place of a run, in batches handed to the trainer: pure arithmetic, the same on every rank.

The steps of a run are numbered 0, 1, 2, ... over all its epochs and restarts. A *span* is a regular stretch
of steps: global batches of G samples, from a position of an epoch into the following epochs. A new span
begins only where G changes, another epoch is chosen, or batches are skipped. So a few numbers determine the
samples of any past or future step.

    10 samples, G = 4, two batches per epoch; after step 2 the run resumes with G = 2

    step       0   1   2   3   4   5   6 ...       spans   (step 0, epoch 0, position 0, G 4)
    epoch      0   0   1   1   1   1   2                   (step 3, epoch 1, position 4, G 2)
    position   0   4   0   4   6   8   0
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from tdstream.schedule.partition import EpochLengths, SameLength, advance, global_batches

_MAX_SPANS = 24  # kept in a state; steps of older spans can no longer be located


class RunSpan(NamedTuple):
    """The steps from `step` on: global batches from a position of an epoch."""

    step: int
    epoch: int
    position: int
    global_batch: int
    """G, samples of a step over all ranks."""
    batch_size: int = 0
    """B, samples of a step on one rank; 0 if unknown."""


class RunCursor:
    """The steps of a run: the batches handed out, and where the next pass begins.

    `num_samples` is N, or the lengths of all epochs; `global_batch` is G. With `wrap`, an epoch's incomplete
    last global batch is filled, not dropped; with `keep`, it is served as it is. `batch_size`, B, tells later
    which rank had which rows.
    """

    def __init__(
        self,
        *,
        num_samples: int | EpochLengths,
        global_batch: int,
        wrap: bool,
        keep: bool = False,
        batch_size: int = 0,
    ) -> None:
        self.lengths = SameLength(num_samples) if isinstance(num_samples, int) else num_samples
        self.global_batch, self.wrap, self.keep = global_batch, wrap or keep, keep
        self.batch_size = batch_size
        self.step = 0
        self.batches_done = 0
        self.spans = [RunSpan(0, 0, 0, global_batch, batch_size)]
        self._place = (0, 0)
        self._served_by = global_batch  # the G that led here: the tail that it dropped stays dropped
        self.resumes = False
        """Whether the next pass continues from this place instead of beginning an epoch."""
        self._running = False  # whether a pass has begun and has not ended
        self._skipped_from: int | None = None  # the epoch from which batches were skipped into this one
        self._empty = False  # whether the running pass is the rest of an epoch that was skipped
        self._chosen: int | None = None

    @property
    def place(self) -> tuple[int, int]:
        """(epoch, position): samples before this position were handed out or skipped."""
        chosen = self._chosen is not None and not (self._running and not self.complete)
        return self._next_place() if chosen else self._place

    @property
    def served_epoch(self) -> int:
        """The epoch of the running or last pass, even if another is chosen for the next one."""
        return self._place[0]

    @property
    def complete(self) -> bool:
        """Whether this epoch has nothing left, with the G that led here or with the present one."""
        return 0 in (self.left_at(self._place, self._served_by), self.left_at(self._place, self.global_batch))

    @property
    def left(self) -> int:
        """Global batches from this place to the end of its epoch."""
        return 0 if self.complete or self._empty else self.left_at(self._place, self.global_batch)

    @property
    def has_no_batches(self) -> bool:
        """Whether this is the start of an epoch, and neither it nor a later one has a batch."""
        ahead = advance(self.lengths, self._place, 0, self.global_batch, wrap=self.wrap)
        return self._place[1] == 0 and self.left == 0 and ahead == self._place

    @property
    def num_batches(self) -> int:
        """Global batches of this epoch, handed out or skipped ones included; at its end, of the next one."""
        following = (self._next_place()[0], 0)
        return self.left_at(following, self.global_batch) if self._begins else self.batches_done + self.left

    @property
    def done(self) -> int:
        """Global batches of `num_batches` already handed out or skipped; 0 before a new epoch."""
        return 0 if self._begins or self._place[1] == 0 else self.batches_done

    def choose(self, epoch: int) -> None:
        """Choose the epoch of the next pass; a pass that resumes in that epoch keeps its place."""
        self._chosen = epoch

    def save(self) -> dict[str, Any]:
        """Return all that changes, for `go_back`."""
        return self.__dict__.copy()

    def go_back(self, saved: dict[str, Any]) -> None:
        """Undo what happened since `save`."""
        self.__dict__.update(saved)

    def fail(self) -> None:
        """End the running pass, if there is one; the next one resumes at this place."""
        self.resumes |= self._running
        self.finish()

    def finish(self) -> None:
        """End the running pass."""
        self._running = self._empty = False

    def begin(self) -> tuple[int, int]:
        """Begin a pass and return its place; it is empty if `skip` skipped the rest of the chosen epoch."""
        with self._all_or_nothing():
            self._empty = self._chosen is not None and self._was_skipped(self._chosen)
            place = self._next_place()
            if not self._empty:
                self._begin_at(place)
            self._chosen, self._running = None, True
        return place

    def reopen(self) -> tuple[int, int]:
        """Continue the running pass after skipped batches; a chosen epoch is for the next pass."""
        self.resumes, self._running = False, True
        return self._place

    def count_batch(self) -> None:
        """Count a global batch as handed to the trainer."""
        self.step += 1
        self.batches_done += 1
        self._place = self._within((self._place[0], self._place[1] + self.global_batch))

    def skip(self, count: int) -> None:
        """Skip the next global batches, into later epochs if there are many."""
        if count:
            with self._all_or_nothing():
                self._skip(count)

    def _skip(self, count: int) -> None:
        start, since = self._skip_from()
        beyond = count - self.left_at(start, self.global_batch)
        if self._chosen is not None and self._running and not self.complete and beyond >= 0:
            start = since = (self._chosen, 0)  # the chosen epoch comes after the running one
            count, self._chosen = beyond, None
        self.batches_done = self.batches_done if start == self._place else 0
        target = advance(self.lengths, start, count, self.global_batch, wrap=self.wrap)
        same = target[0] == start[0]
        self.batches_done = self.batches_done + count if same else target[1] // self.global_batch
        self._running = self._running and target[0] == self._place[0]
        self._skipped_from = since[0] if since[0] < target[0] else None
        self._move_to(target)
        self.resumes = True

    def locate(self, step: int) -> RunSpan:
        """Return the place of any step, as a span that begins there; LookupError before the oldest span."""
        spans = [span for span in self._spans_ahead() if span.step <= step]
        if not spans:
            raise LookupError(f"step {step:,} is before step {self.spans[0].step:,}, the oldest known.")
        return self._along(spans[-1], step)

    def restore(self, place: tuple[int, int], step: int, batches_done: int, spans: Sequence[RunSpan]) -> None:
        """Adopt a saved place (epoch, position), from which the next pass resumes."""
        self.step, self.batches_done, self.spans = step, batches_done, list(spans)
        self._place, self._served_by = place, self.spans[-1].global_batch
        self.resumes, self._skipped_from, self._chosen = True, None, None

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Undo what was begun if it is interrupted."""
        saved = self.save()
        try:
            yield
        except BaseException:
            self.go_back(saved)
            raise

    def history(self) -> list[list[int]]:
        """Return the newest spans as lists, for a state."""
        return [list(span) for span in self.spans[-_MAX_SPANS:]]

    def _skip_from(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the place of the next batch, and one in the first epoch that a skip from there leaves."""
        since = (self._skipped_from, 0) if self.resumes and self._skipped_from is not None else self._place
        if self._chosen is not None and not (self._running and not self.complete):
            start, kept = self._next_place(), self._was_skipped(self._chosen)
            self._chosen = None
            begin = (start[0] + 1, 0) if start == self._place and self.complete else start
            return begin, since if kept else start
        return (self._next_place() if self.complete else self._place), since

    def _begin_at(self, place: tuple[int, int]) -> None:
        if place != self._place:
            self.batches_done = 0
        if not (place == self._place and self.complete):  # no step serves the empty rest of an epoch
            self._move_to(place)
        self.resumes, self._skipped_from = False, None

    @property
    def _begins(self) -> bool:
        """Whether the next pass begins an epoch."""
        return not self._running and self._next_place() != self._place

    def _was_skipped(self, epoch: int) -> bool:
        """Whether the rest of an epoch was skipped on the way to this place."""
        return (
            self.resumes and self._skipped_from is not None and self._skipped_from <= epoch < self._place[0]
        )

    def _next_place(self) -> tuple[int, int]:
        """Return where the next pass begins."""
        if self._chosen is not None:
            kept = (self.resumes and self._chosen == self._place[0]) or self._was_skipped(self._chosen)
            return self._place if kept else (self._chosen, 0)
        if self.complete:
            return self._place[0] + 1, 0
        return self._place if self.resumes else (self._place[0], 0)

    def _move_to(self, place: tuple[int, int]) -> None:
        """Move to a place; a span begins there unless the last one leads there."""
        self._place, self._served_by = self._within(place), self.global_batch
        span = self._span(self.step, place)
        if self._along(self.spans[-1], self.step) != span:
            self.spans = [*(old for old in self.spans if old.step < self.step), span]

    def _within(self, place: tuple[int, int]) -> tuple[int, int]:
        """Return a place; with `keep`, the last batch ends where its epoch does."""
        epoch, position = place
        return (epoch, min(position, self.lengths.num_samples(epoch))) if self.keep else place

    def _spans_ahead(self) -> list[RunSpan]:
        """Return the spans, and the one that would begin with the next pass."""
        if not self._running:
            past = [span for span in self.spans if span.step < self.step]
            return [*past, self._span(self.step, self._next_place())]
        if self._chosen is not None:
            return [*self.spans, self._span(self.step + self.left, (self._chosen, 0))]
        return self.spans

    def _span(self, step: int, place: tuple[int, int]) -> RunSpan:
        return RunSpan(step, *place, self.global_batch, self.batch_size)

    def _along(self, span: RunSpan, step: int) -> RunSpan:
        """Return the rest of a span from one of its steps on."""
        start, steps = (span.epoch, span.position), step - span.step
        place = advance(self.lengths, start, steps, span.global_batch, wrap=self.wrap)
        return span._replace(step=step, epoch=place[0], position=place[1])

    def left_at(self, place: tuple[int, int], global_batch: int) -> int:
        """Count the global batches from a place to the end of its epoch."""
        samples = self.lengths.num_samples(place[0]) - place[1]
        return global_batches(samples, global_batch, wrap=self.wrap)
