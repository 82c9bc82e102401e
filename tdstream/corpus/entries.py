"""What there is to remember of one shard that is safe, and how a journal spells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from tdstream.corpus.meta import Chunk


class Index(NamedTuple):
    """The index of the documents that end in a shard."""

    documents: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One shard that is safe."""

    chunk: Chunk
    checksum: str
    note: dict[str, Any]
    """What the writer's caller wants to know when it goes on behind this shard."""
    index: Index | None = None


def line_of(entry: Entry) -> dict[str, Any]:
    """Return what a journal says of a shard, in JSON types.

    Args:
        entry: The shard.
    """
    chunk = entry.chunk
    line = {"file": chunk.file, "tokens": chunk.tokens, "checksum": entry.checksum, "note": entry.note}
    if entry.index is not None:
        line |= {"documents": entry.index.documents, "ends_checksum": entry.index.checksum}
    return line


def entry_of(line: dict[str, Any]) -> Entry:
    """Return the shard that a line tells of.

    Args:
        line: What `line_of` returned.

    Raises:
        KeyError: If it lacks something.
        ValueError: If something is not what it should be.
    """
    chunk = Chunk(str(line["file"]), int(line["tokens"]))
    indexed = "documents" in line
    index = Index(int(line["documents"]), str(line["ends_checksum"])) if indexed else None
    return Entry(chunk, str(line["checksum"]), dict(line["note"]), index)
