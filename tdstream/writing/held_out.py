"""Write the documents that are held out of a corpus as a second one, which is safe wherever the first is.

Its shards lie in a directory beside those of the first. Whenever a shard of the first is full, what has been
written of the second is made durable too, and the journal's line for that shard says how far that reaches::

    {"chunks": [...], "tokens": 70, "documents": 3, "total": 9}

with the lines of the shards completed since the line before, the tokens and the documents in the shard at
hand, and the number of all documents. A run that goes on cuts the shard at hand there.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import CorpusError
from tdstream.corpus.document_index import ends_name
from tdstream.corpus.meta import DTYPES, META_FILE, VAL_DIR, CorpusMeta, chunk_name, read_meta, write_meta
from tdstream.writing.journal import JournalEntry, check_shards, entry_of, line_of, val_meta_of
from tdstream.writing.publish import empty
from tdstream.writing.shard_writer import ShardWriter

NOTE_KEY = "held_out"
"""Where a note of the journal says how far the held-out documents reach."""


class HeldOutWriter:
    """Writes held-out documents beside the shards of a corpus that is being prepared."""

    def __init__(self, staging: Path, plan: CorpusMeta, entries: list[JournalEntry]) -> None:
        """Begin, or go on where a journal ends.

        Args:
            staging: Where the shards of the corpus lie.
            plan: What is known of that.
            entries: Its shards that are safe.

        Raises:
            CorpusError: If something that was safe is gone.
        """
        self._directory = staging / VAL_DIR
        self._directory.mkdir(exist_ok=True)
        self._plan = plan
        done = val_entries(entries)
        last = _last_state(entries)
        self.num_documents = num_held_out(entries)
        """Documents written so far."""
        self._told = len(done)
        self._shards = ShardWriter(self._directory, plan, entries=done)
        self._go_on(done, int(last.get("tokens", 0)), int(last.get("documents", 0)))

    def _go_on(self, done: list[JournalEntry], tokens: int, documents: int) -> None:
        check_shards(self._directory, done, DTYPES[self._plan.dtype].itemsize)
        at_hand = chunk_name(len(done))
        safe = [name for entry in done for name in (entry.chunk.file, ends_name(entry.chunk.file))]
        begun = [at_hand, ends_name(at_hand), f"{at_hand}.tmp", f"{ends_name(at_hand)}.tmp"] if tokens else []
        empty(self._directory, keep=frozenset([*safe, *begun]))
        if tokens:
            self._shards.go_on(tokens, documents)

    def append(self, token_ids: NDArray[Any], ends: NDArray[np.int64]) -> None:
        """Write whole documents.

        Args:
            token_ids: Their tokens, shape [num_tokens].
            ends: Where each ends, just behind its end-of-text token; shape [num_documents].
        """
        self._shards.append(token_ids, ends)
        self.num_documents += len(ends)

    def state(self) -> dict[str, Any]:
        """Make all that is written durable; return what the journal is to say of it."""
        tokens, documents = self._shards.sync()
        new = [line_of(entry) for entry in self._shards.entries[self._told :]]
        self._told = len(self._shards.entries)
        return {"chunks": new, "tokens": tokens, "documents": documents, "total": self.num_documents}

    def close(self) -> list[JournalEntry]:
        """End the last shard; return all of them."""
        self._shards.close({})
        return self._shards.entries

    def finish(self, encoder: str) -> CorpusMeta:
        """End the last shard, and write the meta.json.

        Args:
            encoder: What turned text into ids.

        Raises:
            CorpusError: If no document was held out.
        """
        meta = val_meta_of(replace(self._plan, encoder=encoder), self.close(), self.num_documents)
        check_not_empty(meta)
        write_meta(self._directory / META_FILE, meta)
        return meta

    def leave(self) -> None:
        """Close the files; what was safe stays."""
        self._shards.leave()


def val_entries(entries: list[JournalEntry]) -> list[JournalEntry]:
    """Return the held-out shards that a journal calls safe.

    Args:
        entries: What it says of the shards beside them.
    """
    return [entry_of(line) for entry in entries for line in entry.note.get(NOTE_KEY, {}).get("chunks", [])]


def num_held_out(entries: list[JournalEntry]) -> int:
    """Return how many held-out documents a journal calls safe.

    Args:
        entries: What it says of the shards beside them.
    """
    return int(_last_state(entries).get("total", 0))


def _last_state(entries: list[JournalEntry]) -> dict[str, Any]:
    state: dict[str, Any] = entries[-1].note.get(NOTE_KEY, {}) if entries else {}
    return state


def read_val(output: Path) -> CorpusMeta:
    """Return what was held out of a corpus.

    Args:
        output: The directory of the corpus.

    Raises:
        CorpusError: If its meta.json is missing or cannot be read.
    """
    path = output / VAL_DIR / META_FILE
    if not path.exists():
        raise CorpusError(
            f"The documents that were held out of {output} are gone: there is no {path}.",
            "Put them back, or pass {overwrite} to prepare both again.",
        )
    return read_meta(path)


def check_not_empty(meta: CorpusMeta) -> None:
    """Refuse a held-out corpus without a document.

    Args:
        meta: What it is.

    Raises:
        CorpusError: If that is so.
    """
    if not meta.chunks:
        raise CorpusError(
            f"No document was held out, and a corpus holds at least one ({meta.holdout}).",
            "Hold out more, or none, and pass {overwrite} without {resume} to begin again.",
        )
