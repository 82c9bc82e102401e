"""The number of steps of a training run, from the length of its loader."""

from __future__ import annotations

import math
from collections.abc import Sized
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tdstream.core.checks import check_int
from tdstream.core.errors import ConfigError
from tdstream.streams.total_hint import find_hint


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """The steps of a training run, equal on all ranks."""

    batches_per_epoch: int
    """Batches that the loader yields per epoch."""
    epochs: int
    grad_accum: int
    """Batches per optimizer step."""

    @property
    def per_epoch(self) -> int:
        """Optimizer steps per epoch; the last one may have fewer batches."""
        return -(-self.batches_per_epoch // self.grad_accum)

    @property
    def total(self) -> int:
        """Optimizer steps of all epochs."""
        return self.per_epoch * self.epochs

    def warmup_steps(self, ratio: float) -> int:
        """Return a share of all optimizer steps, rounded up.

        Args:
            ratio: The share, 0 to 1.

        Raises:
            ConfigError: If the ratio is outside of 0 to 1.
        """
        return math.ceil(self.total * _check_ratio(ratio))


def _check_ratio(ratio: Any) -> Fraction:
    try:
        fits = not isinstance(ratio, bool) and 0 <= ratio <= 1
    except TypeError:
        fits = False
    if not fits:
        raise ConfigError(f"the warm-up's ratio must be a number from 0 to 1, got {ratio!r}.")
    return Fraction(str(ratio))  # as written: 0.07 of 100 is 7, not 8


def steps(loader: Sized | int, epochs: int, grad_accum: int = 1) -> Steps:
    """Return the number of steps of a training run, without reading data or starting workers.

    Args:
        loader: A loader, or the number of batches per epoch. A resumed epoch counts in full.
        epochs: The number of passes over the data.
        grad_accum: Batches per optimizer step; the last step of an epoch may have fewer.

    Raises:
        TypeError: If the loader has no length and its text has not been counted.
        ConfigError: If a number is below 1, or the epoch has no batch.
    """
    batches = loader if isinstance(loader, int) else _count_batches(loader)
    return Steps(
        batches_per_epoch=check_int("the number of batches per epoch", batches, at_least=1),
        epochs=check_int("epochs", epochs, at_least=1),
        grad_accum=check_int("grad_accum", grad_accum, at_least=1),
    )


def _count_batches(loader: Sized) -> int:
    hint = find_hint(loader)
    if hint is not None and hint.kind == "counted" and hint.unit == "batch":
        return hint.total
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        raise TypeError(
            f"{type(loader).__name__} has no length, so the number of steps per epoch is unknown. Count its "
            f"text once with tdstream.count, or prepare it (tdstream prepare, or cache_dir=), or pass the "
            f"number of batches."
        ) from None
