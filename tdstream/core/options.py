"""Options as dataclass fields that carry their help: one list of names, defaults and words."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def option(default: Any, help: str, **flag: Any) -> Any:  # noqa: A002 - argparse's word
    """Return a dataclass field for an option.

    `flag` is what the command line needs besides: choices, metavar, or off (the help of a flag --no_NAME,
    for a switch that is on by default).
    """
    return field(default=default, metadata={"help": help, **flag})
