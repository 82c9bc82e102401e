"""Check what callers pass, and say in one sentence what was expected."""

from __future__ import annotations

import operator
from typing import Any

from tdstream.errors import ConfigError

LARGEST = 2**62
"""So that sums of two still fit into 64 bits."""


def whole(name: str, value: Any, *, at_least: int) -> int:
    """Return a whole number as an int; numpy's integers are whole numbers, True and 3.0 are not.

    Args:
        name: What to call it.
        value: What was passed.
        at_least: The smallest number that makes sense.

    Raises:
        ConfigError: If it is anything else.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise ConfigError(f"{name} must be an integer of at least {at_least}, got {value!r}.") from None
    if isinstance(value, bool) or number < at_least:
        raise ConfigError(f"{name} must be an integer of at least {at_least}, got {value!r}.")
    if number > LARGEST:
        raise ConfigError(f"{name} must be at most 2^62, got {value!r}.")
    return number
