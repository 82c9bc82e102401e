"""The weights of a mixture: checked, rounded to six digits, and as whole numbers."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.errors import ConfigError

Weights = dict[str, float]
"""By source; a source that is not named is not in the mixture."""

_MOST = 2**35  # so that products of sums with a million samples fit into 64 bits
_SIMPLE = 1000  # denominators up to which a rounded number is taken for a fraction: 0.333333 for 1/3


def checked_weights(weights: Mapping[str, Any], names: Sequence[str]) -> Weights:
    """Return weights as numbers of six digits.

    Args:
        weights: By source.
        names: The sources that there are.

    Raises:
        ConfigError: If one is not above 0, or of no source, or there is none.
    """
    if not isinstance(weights, Mapping) or not weights:
        raise ConfigError(f'weights are a dict such as {{"{names[0]}": 0.7}}, got {weights!r}.')
    unknown = sorted(set(map(str, weights)) - set(names))
    if unknown:
        raise ConfigError(
            f"weights name {', '.join(unknown)}, which are no sources; there are {', '.join(names[:20])}."
        )
    return {name: _checked(name, weight) for name, weight in weights.items()}


def _checked(name: str, weight: Any) -> float:
    if not _is_number(weight) or not _is_finite(weight) or weight <= 0:
        raise ConfigError(
            f"the weight of {name} must be a number above 0, got {weight!r}. "
            f"To take a source out of the mixture, leave it out."
        )
    return short(weight)


def short(weight: Any) -> float:
    """Return a weight rounded to six digits; a whole one as an int."""
    rounded = float(f"{float(weight):.6g}")
    return int(rounded) if rounded.is_integer() and rounded < 2**53 else rounded


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number above all floats
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def sized_weights(sizes: Mapping[str, int], temperature: float) -> Weights:
    """Return weights in proportion to size ** (1 / temperature).

    Raises:
        ConfigError: If the temperature is not above 0.
    """
    if not _is_number(temperature) or not temperature > 0:
        raise ConfigError(f"temperature must be a number above 0, got {temperature!r}.")
    largest = max(sizes.values())
    if temperature == 1:
        return {name: short(size) for name, size in sizes.items()}
    # Not below what six digits and whole numbers can tell from nothing.
    return {name: short(max((size / largest) ** (1 / temperature), 1e-9)) for name, size in sizes.items()}


def whole_weights(weights: Weights, names: Sequence[str]) -> NDArray[np.int64]:
    """Return weights in proportion as whole numbers, [len(names)], their sum below 2^36; 0 of others."""
    fractions = {name: _fraction(weight) for name, weight in weights.items()}
    total = sum(fractions.values())
    shares = {name: fraction / total for name, fraction in fractions.items()}
    common = 1
    for share in shares.values():
        common = math.lcm(common, share.denominator)
        if common > _MOST:
            break
    if common <= _MOST:
        found = {name: int(share * common) for name, share in shares.items()}
    else:
        found = {name: max(round(float(share) * _MOST), 1) for name, share in shares.items()}
    return np.array([found.get(name, 0) for name in names], np.int64)


def _fraction(weight: float) -> Fraction:
    """Return a weight of six digits as a fraction, a simple one if it is as near as that."""
    exact = Fraction(repr(weight))
    simple = exact.limit_denominator(_SIMPLE)
    return simple if abs(simple - exact) <= exact / 500_000 else exact
