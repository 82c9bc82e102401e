"""The report of `verify`: faults, notes, and the checks made and not made."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tdstream.core.words import count_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One fault of a corpus."""

    kind: str
    """One of: meta, dtype, empty, missing, truncated, extended, odd_size, unreadable, checksum, swapped,
    id_range, index, order, eos_count, last_token, stray, unfinished, tokenizer, round_trip."""
    file: str
    """The file inside the corpus directory; empty if the fault concerns the whole corpus."""
    message: str
    """The finding and the expectation."""

    def __str__(self) -> str:
        return f"{self.file}: {self.message}" if self.file else self.message


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyReport:
    """The result of `verify_corpus`."""

    directory: str
    fast: bool
    """Whether only names and sizes were compared."""
    chunks: int
    """Number of shards in meta.json."""
    tokens: int
    """Number of tokens in meta.json."""
    eos_tokens: int | None
    """End-of-text tokens found; None if they were not counted."""
    faults: tuple[Fault, ...]
    notes: tuple[str, ...]
    """Unusual, but not wrong."""
    checked: tuple[str, ...]
    unchecked: tuple[str, ...]
    """Each with the reason why it could not be checked."""

    @property
    def ok(self) -> bool:
        """Whether no check found a fault."""
        return not self.faults

    def to_json(self) -> dict[str, Any]:
        """Return the report in JSON types, ``ok`` first."""
        return {"ok": self.ok, **asdict(self)}


@dataclass(slots=True)
class Findings:
    """The results of the checks so far."""

    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def check_share(self, what: str, sound: int, shards: int) -> None:
        """Note how many shards a check found sound; nothing where it is none, since the faults say why."""
        if sound:
            self.checked.append(f"{what}: {sound:,} of {count_of(shards, 'shard')}")

    def fault(self, kind: str, file: str, message: str) -> None:
        """Add a `Fault`."""
        self.faults.append(Fault(kind=kind, file=file, message=message))
