"""Hand batches out to the trainer, count them, and refuse to go on when overtaken."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tdstream.batch import Batch
from tdstream.errors import StaleIteratorError
from tdstream.journey import Journey


class Handout(Iterator[Batch]):
    """One pass over a loader.

    Args:
        journey: Where the run stands; it is told of each batch.
        open_pass: Opens the pass, at the place where the journey says that it begins. Called when the first
            batch is asked for, so that an epoch chosen or a state loaded until then counts.
    """

    def __init__(self, journey: Journey, open_pass: Callable[[], Iterator[Batch]]) -> None:
        self._journey, self._open_pass = journey, open_pass
        self._turn = journey.overtake()
        self._batches: Iterator[Batch] | None = None
        self._epoch = -1

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
        if self._batches is None or self._journey.held:
            self._batches = self._opened()
        return self._next_of(self._batches)

    def _opened(self) -> Iterator[Batch]:
        """Open the pass, or open it again where batches were left out; behind the epoch's end it is over."""
        if self._batches is not None and self._journey.place[0] != self._epoch:
            return iter(())
        batches = self._open_pass()
        self._epoch = self._journey.place[0]
        return batches

    def _next_of(self, batches: Iterator[Batch]) -> Batch:
        try:
            batch = next(batches)
        except StopIteration:
            if self._journey.held or self._journey.left == 0:
                raise
            self._fail()
            raise RuntimeError(
                f"the workers ended {self._journey.left:,} batches before the epoch's end."
            ) from None
        except BaseException:
            self._fail()
            raise
        self._journey.hand_out()
        return batch

    def _fail(self) -> None:
        """Let a new iterator go on at this place; this one would leave out what failed."""
        self._journey.overtake()
        self._journey.hold()
