"""Hand batches out to the trainer, count them, and refuse to go on when overtaken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tdstream.core.errors import StaleIteratorError
from tdstream.nodes.batch import Batch
from tdstream.schedule.run_cursor import RunCursor


class Handout(Iterator[Batch]):
    """One pass over a loader.

    Args:
        journey: Where the run stands; it is told of each batch.
        open_pass: Opens the pass at the place where the journey says that it begins, or, with True, the
            running one again, behind batches that were left out. Called when the first batch is asked for, so
            that an epoch chosen or a state loaded until then counts.
    """

    def __init__(self, journey: RunCursor, open_pass: Callable[[bool], Iterator[Any]]) -> None:
        self._journey, self._open_pass = journey, open_pass
        self._turn = journey.overtake()
        self._batches: Iterator[Batch] | None = None
        self._epoch = -1
        self._over = False

    def __next__(self) -> Batch:
        """Return the next batch.

        Raises:
            StaleIteratorError: If a newer iterator was made, a state was loaded, or this one has failed.
        """
        if self._turn != self._journey.turn:
            raise StaleIteratorError(
                "stale iterator: after it, another one was made, a state was loaded, or it failed. "
                "Going on would mix two positions; make a new one with iter(loader)."
            )
        if self._over:
            raise StopIteration
        try:
            if self._batches is None or self._journey.held:
                self._batches = self._opened()
            batch = next(self._batches, None)
        except (ConnectionError, EOFError) as error:  # what is left of a worker's pipe when it was killed
            self._journey.fail()
            raise RuntimeError(f"a worker of the loader died: {type(error).__name__} {error}.") from error
        except BaseException:
            self._journey.fail()  # a new iterator goes on at this place; this one would leave out what failed
            raise
        if batch is None:
            self._over = True
            self._end()
            raise StopIteration
        self._journey.hand_out()
        return batch

    def __del__(self) -> None:
        """Note that a loop was left early: its iterator goes with it."""
        if self._turn == self._journey.turn:
            self._journey.finish()

    def _opened(self) -> Iterator[Batch]:
        """Open the pass, or open it again where batches were left out; behind the epoch's end it is over."""
        again = self._batches is not None
        if again and self._journey.served_epoch != self._epoch:
            return iter(())
        batches = self._open_pass(again)
        self._epoch = self._journey.served_epoch
        return batches

    def _end(self) -> None:
        """Note the end of the pass.

        Raises:
            RuntimeError: If it came too early.
        """
        left = 0 if self._journey.held else self._journey.left
        if left:
            self._journey.fail()
            raise RuntimeError(f"the workers ended {left:,} batches before the epoch's end.")
        self._journey.finish()


class Turn(Iterator[Batch]):
    """The batches of a pass, as long as it is this loop's turn.

    Args:
        number: The number of this turn.
        current: Returns the number of the turn that it is.
        begin: Opens the pass; called when the first batch is asked for, so that an epoch chosen or a state
            loaded until then counts.
        take: Returns the next batch of the pass; None at its end.
    """

    def __init__(
        self,
        number: int,
        current: Callable[[], int],
        begin: Callable[[], None],
        take: Callable[[], Batch | None],
    ) -> None:
        self._number, self._current, self._begin, self._take = number, current, begin, take
        self._begun = self._over = self._failed = False

    def __next__(self) -> Batch:
        """Return the next batch.

        Raises:
            StaleIteratorError: If a newer iterator was made, a state was loaded, or this one has failed.
        """
        if self._number != self._current() or self._failed:
            raise StaleIteratorError(
                "stale iterator: after it, another one was made, a state was loaded, or it failed. "
                "Going on would mix two positions; make a new one with iter(loader)."
            )
        if self._over:
            raise StopIteration
        batch = self._taken()
        if batch is None:
            self._over = True
            raise StopIteration
        return batch

    def _taken(self) -> Batch | None:
        try:
            if not self._begun:
                self._begin()
                self._begun = True
            return self._take()
        except BaseException:
            self._failed = True
            raise
