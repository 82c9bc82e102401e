"""Where a run stands, in batches handed to the trainer: pure arithmetic, the same on every rank.

A run's steps are numbered 0, 1, 2, ... over all its epochs and restarts. Its *legs* are the stretches without
a surprise: from a step on, global batches of G samples from some position of some epoch, and on into the next
epochs. A leg is added only where a run does not go on as its last leg says: another G, another epoch chosen,
batches left out. So a few numbers say which samples any step had, or will have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tdstream.schedule.partition import EpochLengths, advance, as_lengths, global_batches

_MAX_LEGS = 24  # that a state keeps; older ones are forgotten, and their steps can no longer be located


class RunSpan(NamedTuple):
    """From a step on: global batches from a position of an epoch."""

    step: int
    epoch: int
    position: int
    global_batch: int
    """G, samples of a step over all ranks."""
    batch_size: int = 0
    """B, those of one rank; 0 where it is unknown."""


class RunCursor:
    """The steps of a run: what has been handed out, and where the next pass begins.

    Args:
        num_samples: N, positions of an epoch; or what tells them of each epoch.
        global_batch: G, samples of a step over all ranks.
        wrap: Whether an epoch's last incomplete global batch is filled, not left out.
        batch_size: B, samples of a step on one rank; only noted, to tell later which rank had what.
    """

    def __init__(
        self, *, num_samples: int | EpochLengths, global_batch: int, wrap: bool, batch_size: int = 0
    ) -> None:
        self.lengths = as_lengths(num_samples)
        self.global_batch, self.wrap = global_batch, wrap
        self.batch_size = batch_size
        self.step = 0
        self.batches_done = 0
        self.turn = 0
        self.failed = False
        self.legs = [RunSpan(0, 0, 0, global_batch, batch_size)]
        self._place = (0, 0)
        self._served_by = global_batch  # the G of this place: what it left out at an end stays left out
        self._held = False  # whether the next pass goes on at this place rather than begin an epoch
        self._running = False  # whether a pass has begun and has not been seen to end
        self._since: int | None = None  # the epoch from which batches were left out into this one
        self._empty = False  # whether the running pass is the rest of an epoch that was left out
        self._chosen: int | None = None

    @property
    def place(self) -> tuple[int, int]:
        """The epoch, and the position in it up to which samples were handed out or left out."""
        chosen = self._chosen is not None and not (self._running and not self.complete)
        return self._next_place() if chosen else self._place

    @property
    def served_epoch(self) -> int:
        """The epoch of the running pass, or of the last one, whatever was chosen for the next."""
        return self._place[0]

    @property
    def complete(self) -> bool:
        """Whether this place's epoch has nothing left, by the geometry that served it or by this one."""
        return 0 in (self.left_at(self._place, self._served_by), self.left_at(self._place, self.global_batch))

    @property
    def left(self) -> int:
        """Global batches from this place to the end of its epoch."""
        return 0 if self.complete or self._empty else self.left_at(self._place, self.global_batch)

    @property
    def leads_nowhere(self) -> bool:
        """Whether this is the beginning of an epoch without a batch, and no later one has any."""
        ahead = advance(self.lengths, self._place, 0, self.global_batch, wrap=self.wrap)
        return self._place[1] == 0 and self.left == 0 and ahead == self._place

    @property
    def num_batches(self) -> int:
        """Global batches of this epoch, those handed or left out included; of the next one behind its end."""
        following = (self._next_place()[0], 0)
        return self.left_at(following, self.global_batch) if self._begins else self.batches_done + self.left

    @property
    def behind(self) -> int:
        """Global batches of `num_batches` that were handed or left out; none where a pass begins an epoch."""
        return 0 if self._begins or self._place[1] == 0 else self.batches_done

    @property
    def held(self) -> bool:
        """Whether the next pass goes on at this place."""
        return self._held

    @property
    def untouched(self) -> bool:
        """Whether nothing has been handed out, left out, chosen or loaded."""
        return self.step == 0 and not self._held and self._chosen is None

    def overtake(self) -> int:
        """Begin a new turn, of which there is one at a time, and return its number."""
        self.turn += 1
        self._running = self._empty = False
        return self.turn

    def choose(self, epoch: int) -> None:
        """Choose the epoch of the next pass; a place that is held in this very epoch is kept."""
        self._chosen = epoch

    def fail(self) -> None:
        """End this turn; the next pass goes on at this place."""
        self.overtake()
        self._held = self.failed = True

    def finish(self) -> None:
        """Note that the running pass has been seen to end."""
        self._running = self._empty = False

    def begin(self) -> tuple[int, int]:
        """Begin a pass: return where; it is empty if the chosen epoch's rest was left out, by `skip`."""
        self._empty = self._chosen is not None and self._passed_by(self._chosen)
        place = self._next_place()
        if not self._empty:
            self._begin_at(place)
        self._chosen, self._running, self.failed = None, True, False
        return place

    def resume(self) -> tuple[int, int]:
        """Go on with the running pass, behind batches left out; what was chosen is for the next one."""
        self._held, self._running = False, True
        return self._place

    def hand_out(self) -> None:
        """Count a global batch as given to the trainer."""
        self.step += 1
        self.batches_done += 1
        self._place = (self._place[0], self._place[1] + self.global_batch)

    def skip(self, count: int) -> None:
        """Leave out the next global batches, over an epoch's end if they are many."""
        if count == 0:
            return
        start, since = self._skip_from()
        beyond = count - self.left_at(start, self.global_batch)
        if self._chosen is not None and self._running and not self.complete and beyond >= 0:
            start = since = (self._chosen, 0)  # behind the running epoch comes the chosen one
            count, self._chosen = beyond, None
        self.batches_done = self.batches_done if start == self._place else 0
        target = advance(self.lengths, start, count, self.global_batch, wrap=self.wrap)
        same = target[0] == start[0]
        self.batches_done = self.batches_done + count if same else target[1] // self.global_batch
        self._running = self._running and target[0] == self._place[0]
        self._since = since[0] if since[0] < target[0] else None
        self._go(target)
        self._held = True

    def locate(self, step: int) -> RunSpan:
        """Return the place of any past or future step, as a leg that begins there.

        Raises:
            LookupError: If the step lies before the oldest leg.
        """
        legs = [leg for leg in self._legs_ahead() if leg.step <= step]
        if not legs:
            raise LookupError(f"step {step:,} is before step {self.legs[0].step:,}, the oldest known.")
        return self._along(legs[-1], step)

    def restore(self, place: tuple[int, int], step: int, batches_done: int, legs: Sequence[RunSpan]) -> None:
        """Take over a saved place (epoch, position), and hold it."""
        self.step, self.batches_done, self.legs = step, batches_done, list(legs)
        self._place, self._served_by = place, self.legs[-1].global_batch
        self._held, self._since, self._chosen = True, None, None

    def history(self) -> list[list[int]]:
        """Return the newest legs as lists, for a state."""
        return [list(leg) for leg in self.legs[-_MAX_LEGS:]]

    def _skip_from(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the place of the next batch, and one in the epoch that is then left behind."""
        since = (self._since, 0) if self._held and self._since is not None else self._place
        if self._chosen is not None and not (self._running and not self.complete):
            start, kept = self._next_place(), self._passed_by(self._chosen)
            self._chosen = None
            return start, since if kept else start
        return (self._next_place() if self.complete else self._place), since

    def _begin_at(self, place: tuple[int, int]) -> None:
        if place != self._place:
            self.batches_done = 0
        if not (place == self._place and self.complete):  # the empty rest of an epoch is served by nobody
            self._go(place)
        self._held, self._since = False, None

    @property
    def _begins(self) -> bool:
        """Whether the next thing to happen is the begin of an epoch."""
        return not self._running and self._next_place() != self._place

    def _passed_by(self, epoch: int) -> bool:
        """Whether the rest of an epoch was left out, on the way to this place."""
        return self._held and self._since is not None and self._since <= epoch < self._place[0]

    def _next_place(self) -> tuple[int, int]:
        """Return where the next pass begins."""
        if self._chosen is not None:
            kept = (self._held and self._chosen == self._place[0]) or self._passed_by(self._chosen)
            return self._place if kept else (self._chosen, 0)
        if self.complete:
            return self._place[0] + 1, 0
        return self._place if self._held else (self._place[0], 0)

    def _go(self, place: tuple[int, int]) -> None:
        """Go to a place; it begins a leg, unless the last one arrives there anyway."""
        self._place, self._served_by = place, self.global_batch
        leg = self._leg(self.step, place)
        if self._along(self.legs[-1], self.step) != leg:
            self.legs = [*(old for old in self.legs if old.step < self.step), leg]

    def _legs_ahead(self) -> list[RunSpan]:
        """Return the legs, and the one that would begin with the next pass."""
        if not self._running:
            past = [leg for leg in self.legs if leg.step < self.step]
            return [*past, self._leg(self.step, self._next_place())]
        if self._chosen is not None:
            return [*self.legs, self._leg(self.step + self.left, (self._chosen, 0))]
        return self.legs

    def _leg(self, step: int, place: tuple[int, int]) -> RunSpan:
        return RunSpan(step, *place, self.global_batch, self.batch_size)

    def _along(self, leg: RunSpan, step: int) -> RunSpan:
        """Return the place of a step on a leg, as a leg that begins there."""
        start, steps = (leg.epoch, leg.position), step - leg.step
        place = advance(self.lengths, start, steps, leg.global_batch, wrap=self.wrap)
        return leg._replace(step=step, epoch=place[0], position=place[1])

    def left_at(self, place: tuple[int, int], global_batch: int) -> int:
        """Return the global batches from a place to the end of its epoch."""
        samples = self.lengths.num_samples(place[0]) - place[1]
        return global_batches(samples, global_batch, wrap=self.wrap)
