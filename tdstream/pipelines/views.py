"""Disjoint parts of one corpus, such as one for training and one held out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from tdstream.core.checks import make_absolute
from tdstream.core.errors import ConfigError

_UNITS = ("samples", "documents")


@dataclass(frozen=True, slots=True)
class View:
    """A part of a corpus; `build` takes it in place of the corpus. Made by `split`."""

    directory: str | Path
    """The corpus."""
    begin: Fraction
    """Where it begins: 0 is the corpus's beginning, 1 its end."""
    end: Fraction
    by: str
    """What the corpus is divided by: "samples" or "documents"."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "directory", make_absolute(self.directory))  # it is opened later

    def range_of(self, number: int) -> tuple[int, int]:
        """Return, of so many samples or documents, the first in this part and the one after the last."""
        return int(number * self.begin + Fraction(1, 2)), int(number * self.end + Fraction(1, 2))


def split(corpus: str | Path, fractions: Sequence[float], *, by: str = "samples") -> list[View]:
    """Divide a corpus, in its own order, into parts that share no sample.

    Args:
        corpus: The directory of a corpus; no other source is divided.
        fractions: The parts' shares, each above 0, together at most 1.
        by: "samples": parts are ranges of the samples that `build`'s other arguments make (if these overlap,
            with stride below seq_len + 1, neighboring parts share a few tokens). "documents": parts are
            ranges of whole documents.

    Returns:
        A view for each share, which `build` and `loader` take in place of the corpus.

    Raises:
        ConfigError: If the corpus is not a directory, the shares are out of range, or `by` is unknown.
    """
    given: Any = corpus
    if isinstance(given, View):
        raise ConfigError(
            f"this is a part of {given.directory} already, and a part is not divided again. Divide the "
            f"corpus once, into as many parts as you need."
        )
    if not isinstance(given, (str, os.PathLike)):
        raise ConfigError(
            f"split takes the directory of a corpus, got a {type(given).__name__}. Prepare text first, with "
            f"tdstream.prepare, and split the corpus."
        )
    if by not in _UNITS:
        raise ConfigError(f'by must be "samples" or "documents", got {by!r}.')
    shares = [_share(fraction) for fraction in fractions] if isinstance(fractions, Iterable) else []
    if not shares or sum(shares) > 1:
        found = f"which add up to {float(sum(shares)):g}" if shares else "not a list such as [0.9, 0.1]"
        raise ConfigError(f"fractions must be shares that add up to at most 1, got {fractions!r}, {found}.")
    borders = accumulate(shares, initial=Fraction(0))
    return [View(corpus, begin, end, by) for begin, end in pairwise(borders)]


def select_samples(samples: slice | None, first: int, last: int) -> tuple[int, int]:
    """Return the range (first, after the last) that a slice takes of samples first .. last - 1.

    The slice counts from `first`, like a list's: slice(-3, None) of samples 10 .. 19 gives (17, 20).
    """
    if samples is None:
        return first, last
    if not isinstance(samples, slice) or samples.step not in (None, 1):
        raise ConfigError(f"samples must be a slice without a step, such as slice(0, 1000), got {samples!r}.")
    try:
        start, stop, _ = samples.indices(last - first)
    except TypeError:
        raise ConfigError(f"samples must be a slice of integers, got {samples!r}.") from None
    return first + start, first + max(start, stop)


def _share(fraction: Any) -> Fraction:
    """Return a share as it was written: 0.1 is one tenth, so that ten of them make 1."""
    try:
        share = Fraction(str(fraction))
    except ValueError:
        share = Fraction(-1)
    if not 0 < share <= 1:
        raise ConfigError(f"a fraction must be more than 0 and at most 1, got {fraction!r}.")
    return share
