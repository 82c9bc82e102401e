"""A clock that tests move, and a terminal that remembers what it was shown."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any

import torch


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class Screen(io.StringIO):
    """A terminal, or a file that is none; `drawn` is what was shown, one after another."""

    def __init__(self, *, terminal: bool = True) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self.terminal

    @property
    def drawn(self) -> list[str]:
        """Each drawing of the bar."""
        return [part.strip() for part in self.getvalue().replace("\n", "\r").split("\r") if part.strip()]


def slow(clock: Clock, delays: Iterable[float], *, tokens: int = 8) -> Iterator[dict[str, Any]]:
    """Yield a batch of so many tokens after each delay."""
    for delay in delays:
        clock.sleep(delay)
        yield {"input_ids": torch.zeros(2, tokens // 2, dtype=torch.int64)}
