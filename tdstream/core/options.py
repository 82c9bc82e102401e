"""Dataclass fields for options: name, default and help in one place."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def option(default: Any, help: str, **flag: Any) -> Any:  # noqa: A002 - argparse's word
    """Return a dataclass field for an option.

    `flag` holds what else the command line needs: choices, metavar, or off (the help of --no_NAME, for a
    switch that is on by default).
    """
    return field(default=default, metadata={"help": help, **flag})
