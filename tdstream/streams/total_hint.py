"""Say how long an epoch is where `len()` cannot: what a progress bar asks a loader, or its dataset, for.

A stream that is tokenized on the fly has no length in batches, but often something nearly as good. Whoever
has it offers `total_hint()`; the best answer that it has, in this order:

    counted     `tdstream.count` has gone through this source before: a number of batches
    documents   the source knows its records: how many of them have gone by, of how many
    estimate    neither; what has been seen so far lets the rest be guessed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable


@dataclass(frozen=True, kw_only=True, slots=True)
class TotalHint:
    """How much an epoch has, and how much of that lies behind the trainer."""

    kind: Literal["counted", "documents", "estimate"]
    """How sure it is; an estimate is shown with `~`."""
    total: int
    """Units of the whole epoch on this rank, what was done before a resume included; more than 0."""
    done: int = 0
    """Units of it that the trainer was given, what was done before a resume included."""
    unit: str = "batch"
    """What is counted: "batch" where the batches of this rank are, else a short word such as "doc"."""

    @property
    def is_exact(self) -> bool:
        """Whether the total was counted rather than guessed."""
        return self.kind != "estimate"


@runtime_checkable
class HasTotal(Protocol):
    """A loader, or its dataset, that can say how long an epoch is."""

    def total_hint(self) -> TotalHint | None:
        """Return the best answer at this moment; None if there is none yet.

        It is asked about ten times a second, in the main process, while batches are handed out: it reads
        nothing, tokenizes nothing and starts no worker.
        """
        ...


def hint_of(loader: Any) -> TotalHint | None:
    """Return what a loader says of its epoch's length, else what its dataset says; None if neither does.

    Args:
        loader: Anything that yields batches, perhaps with a `dataset`.
    """
    for one in (loader, getattr(loader, "dataset", None)):
        hint = one.total_hint() if isinstance(one, HasTotal) else None
        if hint is not None:
            return hint
    return None
