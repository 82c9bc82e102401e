"""The length of an epoch where `len()` has none: what a progress bar asks a loader, or its dataset, for.

A stream that is tokenized on the fly has no length in batches, but often something nearly as good. A loader
or dataset that has it offers `total_hint()`, which returns the best of these:

    counted     `tdstream.count` has counted this source: a number of batches
    documents   the source knows its records: how many of them have been read, of how many
    estimate    neither; what has been seen so far lets the rest be guessed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable


@dataclass(frozen=True, kw_only=True, slots=True)
class TotalHint:
    """How much an epoch has, and how much of it the trainer was given."""

    kind: Literal["counted", "documents", "estimate"]
    """How sure it is; an estimate is shown with `~`."""
    total: int
    """Units of the whole epoch on this rank, those before a resume included; above 0."""
    done: int = 0
    """Units of it that the trainer was given, those before a resume included."""
    unit: str = "batch"
    """What is counted: "batch" for the batches of this rank, else a short word such as "doc"."""

    @property
    def is_exact(self) -> bool:
        """Whether the total was counted rather than guessed."""
        return self.kind != "estimate"


@runtime_checkable
class HasTotal(Protocol):
    """A loader or dataset that can tell how long an epoch is."""

    def total_hint(self) -> TotalHint | None:
        """Return the best answer at this moment; None if there is none yet.

        It is called about ten times a second, in the main process, while batches are handed out. It
        tokenizes nothing and starts no worker; what takes time, it does at the first call only.
        """
        ...


def find_hint(loader: Any) -> TotalHint | None:
    """Return the total hint of a loader, else of its dataset; None if neither has one."""
    for one in (loader, getattr(loader, "dataset", None)):
        hint = one.total_hint() if isinstance(one, HasTotal) else None
        if hint is not None:
            return hint
    return None
