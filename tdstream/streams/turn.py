"""One loop over a loader, which refuses to go on when another one has begun, or a state was loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tdstream.batch import Batch
from tdstream.errors import StaleIteratorError


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
