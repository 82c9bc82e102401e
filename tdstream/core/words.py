"""Numbers in sentences."""

from __future__ import annotations


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun: "1 shard", "1,204 shards"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"
