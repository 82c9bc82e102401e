"""Writer of equally sized shards, each with its index of document ends."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import CorpusError
from tdstream.corpus.document_index import ENDS_DTYPE, ends_name
from tdstream.corpus.meta import DTYPES, CorpusMeta, Shard, chunk_name, fsync_directory
from tdstream.writing.journal import IndexEntry, Journal, JournalEntry
from tdstream.writing.publish import check_space

_PIECE = 1 << 24  # bytes read at once

Note = Callable[[int], dict[str, Any]]
"""Returns the journal's note on a full shard, given the number of tokens of the current `append` written."""


class ShardWriter:
    """Writes shards, all of one size but the last, and records each in the journal, if there is one."""

    def __init__(
        self,
        directory: Path,
        plan: CorpusMeta,
        *,
        entries: Iterable[JournalEntry] = (),
        journal: Journal | None = None,
        first: int = 0,
    ) -> None:
        """Start after the safe shards `entries`; `first` is the number of the first shard of all."""
        self.entries = list(entries)
        """The safe shards, in order."""
        self._directory = directory
        self._plan = plan
        self._dtype = DTYPES[plan.dtype]
        self._journal = journal
        self._first = first
        self._open: OpenShard | None = None

    @property
    def is_full(self) -> bool:
        """Whether no shard is open."""
        return self._open is None

    @property
    def num_tokens(self) -> int:
        """Tokens written so far."""
        unfinished = self._open.num_tokens if self._open else 0
        return sum(entry.shard.tokens for entry in self.entries) + unfinished

    def append(self, token_ids: NDArray[Any], ends: NDArray[np.int64], note: Note | None = None) -> None:
        """Write token ids, integers [num_tokens], starting a new shard whenever one is full.

        `ends`, int64 [num_documents], are the ascending positions among them just after end-of-text tokens.
        With 10 tokens per shard and 8 in the open one, 5 tokens with ends [1, 4] become 2 tokens with the
        end 9 in the open shard, and 3 tokens with the end 2 in the next.
        """
        stored = self._to_storage(token_ids)
        start = 0
        while start < len(stored):
            shard = self._current()
            stop = min(start + self._plan.tokens_per_chunk - shard.num_tokens, len(stored))
            first, last = np.searchsorted(ends, [start, stop], side="right")
            shard.write(stored[start:stop], ends[first:last] - start)
            start = stop
            if shard.num_tokens == self._plan.tokens_per_chunk:
                self.close(note(stop) if note else {})

    def _to_storage(self, token_ids: NDArray[Any]) -> NDArray[Any]:
        """Return the ids in the storage type; refuse ids that do not fit."""
        if token_ids.dtype.kind not in "iu":
            raise CorpusError(f"Token ids must be integers, got an array of {token_ids.dtype}.")
        if len(token_ids) == 0:
            return token_ids.astype(self._dtype)
        lowest, highest = int(token_ids.min()), int(token_ids.max())
        limit = int(np.iinfo(self._dtype).max)
        if lowest < 0 or highest > limit:
            raise CorpusError(
                f"Token id {lowest if lowest < 0 else highest:,} does not fit {self._plan.dtype} "
                f"(0 to {limit:,}), the type for a vocabulary of {self._plan.vocab_size:,}. "
                f"The tokenizer returns ids beyond its own vocabulary size; use one that is consistent."
            )
        return token_ids.astype(self._dtype, copy=False)

    def _current(self) -> OpenShard:
        """Return the open shard; if there is none, open the next, provided the disk has space for it."""
        if self._open is None:
            size = self._plan.tokens_per_chunk
            if self.entries and self.entries[-1].shard.tokens != size:
                raise CorpusError(
                    f"{self._directory} was complete up to its last, shorter shard, but there are more "
                    f"tokens to write: the dataset has grown.",
                    "Pass {overwrite} to start again.",
                )
            documents = max((entry.index.documents for entry in self.entries if entry.index), default=0)
            check_space(self._directory, size * self._dtype.itemsize + documents * ENDS_DTYPE.itemsize)
            self._open = self._open_shard()
        return self._open

    def _open_shard(self, tokens: int = 0, documents: int = 0) -> OpenShard:
        path = self._directory / chunk_name(self._first + len(self.entries))
        indexed, width = bool(self._plan.doc_index), self._dtype.itemsize
        return OpenShard(path, indexed=indexed, tokens=tokens, documents=documents, width=width)

    def sync(self) -> tuple[int, int]:
        """Make everything written durable; return the tokens and documents in the open shard (0, 0: none)."""
        if self._open is not None:
            self._open.sync()
        fsync_directory(self._directory)
        return (self._open.num_tokens, self._open.num_documents) if self._open else (0, 0)

    def resume(self, tokens: int, documents: int) -> None:
        """Reopen the shard that was open when `sync` returned these numbers."""
        self._open = self._open_shard(tokens, documents)

    def close(self, note: dict[str, Any]) -> None:
        """Finish the open shard, if there is one, and record it in the journal with this note."""
        if self._open is not None:
            entry = self._open.commit(note)
            if self._journal is not None:
                fsync_directory(self._directory)  # the name must be durable before the line that lists it
                self._journal.add(entry)
            self.entries.append(entry)
            self._open = None

    def leave(self) -> None:
        """Close the open shard, keeping it for a resumed run."""
        if self._open is not None:
            self._open.leave()

    def abandon(self) -> None:
        """Remove the open shard."""
        if self._open is not None:
            self._open.abandon()


class OpenShard:
    """A shard and its index while they are written; `tokens` and `documents` are kept from an earlier run."""

    def __init__(self, path: Path, *, indexed: bool, tokens: int, documents: int, width: int) -> None:
        self.num_documents = documents
        """Documents that end among the tokens."""
        self._files = [OpenFile(path, kept=tokens, width=width)]
        try:
            if indexed:
                ends = path.with_name(ends_name(path.name))
                self._files.append(OpenFile(ends, kept=documents, width=ENDS_DTYPE.itemsize))
        except BaseException:
            self.abandon()
            raise

    @property
    def num_tokens(self) -> int:
        """Tokens written so far."""
        return self._files[0].num_items

    def write(self, stored: NDArray[Any], ends: NDArray[np.int64]) -> None:
        """Write ids in the storage type [num_tokens], and the document ends among them [num_documents]."""
        for index in self._files[1:] if len(ends) else ():
            index.write((ends + self.num_tokens).astype(ENDS_DTYPE))
        self._files[0].write(stored)
        self.num_documents += len(ends)

    def sync(self) -> None:
        """Make everything written durable."""
        for file in self._files:
            file.sync()

    def commit(self, note: dict[str, Any]) -> JournalEntry:
        """Make both files durable, rename them, the shard last, and return their journal entry."""
        for file in reversed(self._files):
            file.commit()
        tokens, *index = self._files
        entries = [IndexEntry(ends.num_items, ends.checksum) for ends in index]
        return JournalEntry(
            Shard(tokens.path.name, self.num_tokens), tokens.checksum, note, entries[0] if entries else None
        )

    def leave(self) -> None:
        """Close both files, keeping their temporary names."""
        for file in self._files:
            file.leave()

    def abandon(self) -> None:
        """Close and remove both files."""
        for file in self._files:
            file.leave()
        for file in self._files:
            file.remove()


class OpenFile:
    """A file of numbers, written under a temporary name; the first `kept` are kept from an earlier run."""

    def __init__(self, path: Path, *, kept: int, width: int) -> None:
        self.path = path
        """The final name."""
        self.num_items = kept
        self._temporary = path.with_name(path.name + ".tmp")
        self._hash = hashlib.sha256()
        if kept and path.exists():  # the earlier run completed it after the last `sync`
            os.replace(path, self._temporary)
        # Unbuffered: a buffer that did not fit on a full disk would be written again on closing.
        self._file = self._temporary.open("r+b" if kept else "wb", buffering=0)
        try:
            self._keep(kept * width)
        except BaseException:
            self._file.close()
            raise

    def _keep(self, num_bytes: int) -> None:
        """Hash the first bytes and cut off the rest."""
        left = num_bytes
        while left:
            content = self._file.read(min(left, _PIECE))
            if not content:
                raise CorpusError(
                    f"{self._temporary} has {num_bytes - left:,} bytes, but the journal says {num_bytes:,}.",
                    "Pass {overwrite} without {resume} to start again.",
                )
            self._hash.update(content)
            left -= len(content)
        self._file.truncate(num_bytes)

    @property
    def checksum(self) -> str:
        """SHA-256 of the bytes so far, in the format of meta.json."""
        return f"sha256:{self._hash.hexdigest()}"

    def write(self, stored: NDArray[Any]) -> None:
        """Write numbers in the storage type, [num_items]."""
        content = np.ascontiguousarray(stored).data.cast("B")
        self._hash.update(content)
        while content:
            content = content[self._file.write(content) :]
        self.num_items += len(stored)

    def sync(self) -> None:
        """Make the bytes durable under the temporary name."""
        os.fsync(self._file.fileno())

    def commit(self) -> None:
        """Make the bytes durable, then rename the file."""
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._temporary, self.path)

    def leave(self) -> None:
        """Close the file, keeping its temporary name."""
        with suppress(OSError):
            self._file.close()

    def remove(self) -> None:
        """Remove the temporary file."""
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)
