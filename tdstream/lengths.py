"""How many samples each epoch has: the same number in each, or numbers that change now and then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class EpochLengths(Protocol):
    """Says how long epochs are."""

    def num_samples(self, epoch: int) -> int:
        """Return N, the positions of an epoch."""

    def next_change(self, epoch: int) -> int | None:
        """Return the first epoch after this one that may have another length; None if none has."""

    def fills_from(self, epoch: int) -> int:
        """Return the position whose sample is the first that fills an epoch's incomplete last batch."""


@dataclass(frozen=True, slots=True)
class SameLength:
    """All epochs have as many samples."""

    samples: int

    def num_samples(self, epoch: int) -> int:  # noqa: ARG002
        """Return the samples of any epoch."""
        return self.samples

    def next_change(self, epoch: int) -> int | None:  # noqa: ARG002
        """Return None."""
        return None

    def fills_from(self, epoch: int) -> int:  # noqa: ARG002
        """Return 0: an epoch is filled from its beginning."""
        return 0


def as_lengths(num_samples: int | EpochLengths) -> EpochLengths:
    """Return the lengths of epochs that have all the same number of samples, or lengths as they are."""
    return SameLength(num_samples) if isinstance(num_samples, int) else num_samples


def global_batches(samples: int, global_batch: int, *, wrap: bool) -> int:
    """Return how many global batches so many samples give: whole ones, and with wrap one for the rest."""
    samples = max(samples, 0)
    return -(-samples // global_batch) if wrap else samples // global_batch


def folded(positions: NDArray[np.int64], samples: int, fills_from: int) -> NDArray[np.int64]:
    """Return the positions of an epoch that positions, also behind its end, stand for.

    Args:
        positions: At least 0, any shape.
        samples: The epoch's.
        fills_from: Where the samples begin that stand behind the end, again and again.
    """
    behind = (positions - samples) % (samples - fills_from)
    return np.where(positions < samples, positions, fills_from + behind)


def advance(
    lengths: EpochLengths, place: tuple[int, int], steps: int, global_batch: int, *, wrap: bool
) -> tuple[int, int]:
    """Return the epoch and position that lie a number of global batches behind a place.

    At an epoch's end that is the beginning of the next one. Where no later epoch has a batch at all, there
    is nowhere to go, and it is the end of the last one that has.

    Args:
        lengths: The epochs' lengths.
        place: The epoch and position.
        steps: Global batches.
        global_batch: G, samples of one.
        wrap: Whether an epoch's last incomplete one counts.
    """
    epoch, position = place
    here = global_batches(lengths.num_samples(epoch) - position, global_batch, wrap=wrap)
    if steps < here:
        return epoch, position + steps * global_batch
    end = (epoch, position + here * global_batch)
    epoch, steps = epoch + 1, steps - here
    while True:
        whole = global_batches(lengths.num_samples(epoch), global_batch, wrap=wrap)
        change = lengths.next_change(epoch)
        fits = steps // whole if whole else None
        if fits is not None and (change is None or fits < change - epoch):
            return epoch + fits, (steps - fits * whole) * global_batch
        if change is None:
            return end
        if whole:
            steps, end = steps - (change - epoch) * whole, (change - 1, whole * global_batch)
        epoch = change


def batches_before(lengths: EpochLengths, epoch: int, global_batch: int, *, wrap: bool) -> int:
    """Return the global batches of all epochs before one."""
    total, first = 0, 0
    while first < epoch:
        change = lengths.next_change(first)
        last = epoch if change is None else min(change, epoch)
        total += (last - first) * global_batches(lengths.num_samples(first), global_batch, wrap=wrap)
        first = last
    return total
