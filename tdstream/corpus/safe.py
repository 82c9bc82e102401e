"""Compare the shards that a journal calls safe with those that lie beside it."""

from __future__ import annotations

from pathlib import Path

from tdstream.corpus.doc_index import ENDS_DTYPE, ends_name
from tdstream.corpus.entries import Entry
from tdstream.errors import CorpusError


def files_of(entry: Entry, width: int) -> list[tuple[str, int]]:
    """Return the names of a shard and of its index, and the bytes that they have.

    Args:
        entry: The shard.
        width: Bytes of a token.
    """
    files = [(entry.chunk.file, entry.chunk.tokens * width)]
    if entry.index is not None:
        files.append((ends_name(entry.chunk.file), entry.index.documents * ENDS_DTYPE.itemsize))
    return files


def check_shards(directory: Path, entries: list[Entry], width: int) -> None:
    """Refuse to go on where something that was safe is gone.

    Args:
        directory: Where the shards lie.
        entries: Those that are safe.
        width: Bytes of a token.

    Raises:
        CorpusError: If one is gone or has another size.
    """
    for name, promised in (file for entry in entries for file in files_of(entry, width)):
        path = directory / name
        size = path.stat().st_size if path.exists() else -1
        if size != promised:
            found = f"has {size:,} bytes" if size >= 0 else "is gone"
            raise CorpusError(
                f"{path} {found}, but the journal promises {promised:,} bytes. "
                f"Bring it back, or pass --overwrite without --resume to begin again."
            )
