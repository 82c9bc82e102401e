"""Checks of arguments, and options as dataclass fields that carry their help."""

from __future__ import annotations

import operator
import os
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from tdstream.core.errors import ConfigError

LARGEST = 2**62
"""The sum of two such numbers still fits in 64 bits."""


def check_int(name: str, value: Any, *, at_least: int) -> int:
    """Return an integer, numpy's included, as an int; refuse True, 3.0 and anything below `at_least`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ConfigError(f"{name} must be an integer of at least {at_least}, got {value!r}.") from None
    if isinstance(value, bool) or number < at_least:
        raise ConfigError(f"{name} must be an integer of at least {at_least}, got {value!r}.")
    if number > LARGEST:
        raise ConfigError(f"{name} must be at most 2^62, got {value!r}.")
    return number


def check_bool(name: str, value: Any) -> bool:
    """Return a boolean, numpy's included, as a bool; refuse 1, "yes" and None."""
    if not isinstance(value, (bool, np.bool_)):
        raise ConfigError(f"{name} must be True or False, got {value!r}.")
    return bool(value)


def is_address(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is an address such as s3://bucket/corpus, which only looks like a local path."""
    return "://" in os.fspath(path) and not os.path.exists(path)


def check_seconds(name: str, value: Any) -> float:
    """Return a finite duration of at least 0 as a float."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not 0 <= value < float("inf"):
        raise ConfigError(f"{name} must be a number of seconds, at least 0, got {value!r}.")
    return float(value)


def option(default: Any, help: str, **flag: Any) -> Any:  # noqa: A002 - argparse's word
    """Return a dataclass field for an option.

    `flag` holds what else the command line needs: choices, metavar, or off (the help of --no_NAME, for a
    switch that is on by default).
    """
    return field(default=default, metadata={"help": help, **flag})


def make_absolute(path: str | os.PathLike[str]) -> str | Path:
    """Return a path that means the same after a change of the working directory; an address as it is."""
    if is_address(path):
        return os.fspath(path)
    try:
        return Path(path).absolute()
    except FileNotFoundError:  # the working directory was removed: no path in it means anything
        return Path(path)
