"""Writer of held-out documents: a second corpus, `val`, as safe as the main one at any time.

Whenever a shard of the main corpus is full, the held-out documents written so far are made durable too, and
the journal's line for that shard records them::

    {"chunks": [...], "tokens": 70, "documents": 3, "total": 9}

These are the shards completed since the previous line, the tokens and documents in the open shard, and the
number of all held-out documents. A resumed run truncates the open shard there.
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
from tdstream.writing.journal import JournalEntry, check_shards, complete_meta
from tdstream.writing.publish import clear_staging
from tdstream.writing.shard_writer import ShardWriter

NOTE_KEY = "held_out"
"""Key of the held-out documents in a note of the journal."""


class HeldOutWriter:
    """Writes held-out documents; resumes where they stood when the main corpus's last safe shard ended."""

    def __init__(self, staging: Path, plan: CorpusMeta, entries: list[JournalEntry]) -> None:
        self._directory = staging / VAL_DIR
        self._directory.mkdir(exist_ok=True)
        self._plan = plan
        self.num_documents = count_held_out(entries)
        """Documents written so far."""
        done = read_val_entries(entries)
        self._recorded = len(done)
        self._shards = ShardWriter(self._directory, plan, entries=done)
        last = _last_state(entries)
        self._resume(done, int(last.get("tokens", 0)), int(last.get("documents", 0)))

    def _resume(self, done: list[JournalEntry], tokens: int, documents: int) -> None:
        check_shards(self._directory, done, DTYPES[self._plan.dtype].itemsize)
        keep = [name for entry in done for name in (entry.shard.file, ends_name(entry.shard.file))]
        if tokens:
            shard = chunk_name(len(done))
            keep += [shard, ends_name(shard), f"{shard}.tmp", f"{ends_name(shard)}.tmp"]
        clear_staging(self._directory, keep=frozenset(keep))
        if tokens:
            self._shards.resume(tokens, documents)

    def append(self, token_ids: NDArray[Any], ends: NDArray[np.int64]) -> None:
        """Write whole documents: token ids [num_tokens], and the end of each [num_documents]."""
        self._shards.append(token_ids, ends)
        self.num_documents += len(ends)

    def sync(self) -> dict[str, Any]:
        """Make everything written durable; return the journal's note on it."""
        tokens, documents = self._shards.sync()
        new = [entry.to_json() for entry in self._shards.entries[self._recorded :]]
        self._recorded = len(self._shards.entries)
        return {"chunks": new, "tokens": tokens, "documents": documents, "total": self.num_documents}

    def close(self) -> list[JournalEntry]:
        """Finish the last shard; return all shards."""
        self._shards.close({})
        return self._shards.entries

    def finish(self, encoder: str) -> None:
        """Finish the last shard, and write meta.json."""
        meta = complete_val_meta(replace(self._plan, encoder=encoder), self.close(), self.num_documents)
        write_meta(self._directory / META_FILE, meta)

    def leave(self) -> None:
        """Close the files and keep them for a resumed run."""
        self._shards.leave()


def complete_val_meta(plan: CorpusMeta, entries: list[JournalEntry], num_documents: int) -> CorpusMeta:
    """Return the meta.json of the held-out documents; refuse if there are none."""
    meta = complete_meta(
        replace(plan, holdout={**plan.holdout, "part": "val"}, input_files=[]), entries, num_documents
    )
    if not meta.chunks:
        raise CorpusError(
            f"No document was held out, and a corpus holds at least one ({meta.holdout}).",
            "Hold out more, or none, and pass {overwrite} without {resume} to start again.",
        )
    return meta


def read_val_entries(entries: list[JournalEntry]) -> list[JournalEntry]:
    """Return the safe shards of held-out documents, from the main shards' notes."""
    lines = [line for entry in entries for line in entry.note.get(NOTE_KEY, {}).get("chunks", [])]
    return [JournalEntry.from_json(line) for line in lines]


def count_held_out(entries: list[JournalEntry]) -> int:
    """Return the number of safe held-out documents, from the main shards' notes."""
    return int(_last_state(entries).get("total", 0))


def _last_state(entries: list[JournalEntry]) -> dict[str, Any]:
    state: dict[str, Any] = entries[-1].note.get(NOTE_KEY, {}) if entries else {}
    return state


def read_val(output: Path) -> CorpusMeta:
    """Return the meta.json of the documents held out of a corpus."""
    path = output / VAL_DIR / META_FILE
    if not path.exists():
        raise CorpusError(
            f"The documents held out of {output} are missing: there is no {path}.",
            "Restore them, or pass {overwrite} to prepare both again.",
        )
    return read_meta(path)
