"""Cut a stream of token ids into shards of one size in a directory, each with an index of document ends."""

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
from tdstream.writing.journal import Index, Journal, JournalEntry
from tdstream.writing.publish import check_room

_PIECE = 1 << 24  # Bytes that are read at once.


class ChunkFile:
    """One file that is being written under a temporary name."""

    def __init__(self, path: Path, *, kept: int = 0, width: int = 1) -> None:
        """Begin the file, or go on with what `sync` made durable.

        Args:
            path: Its name when it is complete.
            kept: Numbers to keep of what was written before.
            width: Bytes of a number.

        Raises:
            CorpusError: If there are fewer.
        """
        self.path = path
        self.num_items = kept
        self._temporary = path.with_name(path.name + ".tmp")
        self._hash = hashlib.sha256()
        if kept and path.exists():  # It was complete when the run ended that had begun it.
            os.replace(path, self._temporary)
        # Unbuffered: a buffer that did not reach a full disk would be written once more when it is closed.
        self._file = self._temporary.open("r+b" if kept else "wb", buffering=0)
        try:
            self._keep(kept * width)
        except BaseException:
            self._file.close()
            raise

    def _keep(self, num_bytes: int) -> None:
        left = num_bytes
        while left:
            content = self._file.read(min(left, _PIECE))
            if not content:
                raise CorpusError(
                    f"{self._temporary} has {num_bytes - left:,} bytes, but the journal promises "
                    f"{num_bytes:,}.",
                    "Pass {overwrite} without {resume} to begin again.",
                )
            self._hash.update(content)
            left -= len(content)
        self._file.truncate(num_bytes)

    @property
    def checksum(self) -> str:
        """SHA-256 of the bytes written so far, as meta.json spells it."""
        return f"sha256:{self._hash.hexdigest()}"

    def write(self, stored: NDArray[Any]) -> None:
        """Write numbers that are already in the storage type, shape [num_items]."""
        content = np.ascontiguousarray(stored).data.cast("B")
        self._hash.update(content)
        while content:
            content = content[self._file.write(content) :]
        self.num_items += len(stored)

    def sync(self) -> None:
        """Make the bytes durable under the temporary name."""
        os.fsync(self._file.fileno())

    def commit(self) -> None:
        """Make the bytes durable and give them their name."""
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._temporary, self.path)

    def leave(self) -> None:
        """Close the file as it is, under its temporary name."""
        self._file.close()

    def abandon(self) -> None:
        """Close the file and give its room back."""
        self._file.close()
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)


Note = Callable[[int], dict[str, Any]]
"""Says, of the tokens of one `append` that have been written, what the journal is to say of the shard."""


class OpenShard:
    """A shard that is being written, and its index."""

    def __init__(
        self, path: Path, *, indexed: bool, tokens: int = 0, documents: int = 0, width: int = 1
    ) -> None:
        """Open both files.

        Args:
            path: The shard's.
            indexed: Whether it has an index.
            tokens: Tokens to keep of what was written before.
            documents: DocumentCounts among them that end.
            width: Bytes of a token.
        """
        self.num_documents = documents
        """Documents that end among the tokens."""
        self._tokens = ChunkFile(path, kept=tokens, width=width)
        self._ends: ChunkFile | None = None
        try:
            if indexed:
                ends = path.with_name(ends_name(path.name))
                self._ends = ChunkFile(ends, kept=documents, width=ENDS_DTYPE.itemsize)
        except BaseException:
            self._tokens.abandon()
            raise

    @property
    def num_tokens(self) -> int:
        """Tokens written so far."""
        return self._tokens.num_items

    def write(self, stored: NDArray[Any], ends: NDArray[np.int64]) -> None:
        """Write ids.

        Args:
            stored: In the storage type, shape [num_tokens].
            ends: Where documents end among them, shape [num_documents].
        """
        if self._ends is not None and len(ends):
            self._ends.write((ends + self.num_tokens).astype(ENDS_DTYPE))
        self._tokens.write(stored)
        self.num_documents += len(ends)

    def sync(self) -> None:
        """Make what is written durable."""
        self._tokens.sync()
        if self._ends is not None:
            self._ends.sync()

    def commit(self, note: dict[str, Any]) -> JournalEntry:
        """Make both files durable, give them their names and return what a journal says of them.

        Args:
            note: What the journal is to say besides.
        """
        index = None
        if self._ends is not None:
            self._ends.commit()
            index = Index(self._ends.num_items, self._ends.checksum)
        self._tokens.commit()
        chunk = Shard(self._tokens.path.name, self.num_tokens)
        return JournalEntry(chunk, self._tokens.checksum, note, index)

    def leave(self) -> None:
        """Close both files, under their temporary names."""
        self._tokens.leave()
        if self._ends is not None:
            self._ends.leave()

    def abandon(self) -> None:
        """Give the room of both files back."""
        try:
            self._tokens.abandon()
        finally:
            if self._ends is not None:
                self._ends.abandon()


class ShardWriter:
    """Writes shards, all of one size but the last; a journal, if there is one, is told which are safe."""

    def __init__(
        self,
        directory: Path,
        plan: CorpusMeta,
        *,
        entries: Iterable[JournalEntry] = (),
        journal: Journal | None = None,
        first: int = 0,
    ) -> None:
        """Begin, or go on behind shards that are safe.

        Args:
            directory: Where they lie.
            plan: Says how to write: dtype, tokens_per_chunk, and whether there is an index.
            entries: Those that are safe.
            journal: Told of each shard.
            first: The number of the first shard.
        """
        self.entries = list(entries)
        """The shards that are safe, in their order."""
        self._directory = directory
        self._plan = plan
        self._dtype = DTYPES[plan.dtype]
        self._journal = journal
        self._first = first
        self._open: OpenShard | None = None

    @property
    def is_full(self) -> bool:
        """Whether no shard has been begun behind the last one that is safe."""
        return self._open is None

    @property
    def num_tokens(self) -> int:
        """Tokens written so far."""
        begun = self._open.num_tokens if self._open else 0
        return sum(entry.chunk.tokens for entry in self.entries) + begun

    def append(self, token_ids: NDArray[Any], ends: NDArray[np.int64], note: Note | None = None) -> None:
        """Write token ids behind those already written, cutting shards wherever they are full.

        Args:
            token_ids: Integers, shape [num_tokens].
            ends: Where documents end among them, just behind their end-of-text tokens, ascending.
            note: Asked whenever a shard is full, with the number of these tokens that are written by then.

        Raises:
            CorpusError: If an id is negative or does not fit the storage type; none of them is written then.
            OSError: If there is no room left, or the place cannot be written.
        """
        stored = self._stored(token_ids)
        start = 0
        while start < len(stored):
            shard = self._shard()
            stop = min(start + self._plan.tokens_per_chunk - shard.num_tokens, len(stored))
            first, last = np.searchsorted(ends, [start, stop], side="right")
            shard.write(stored[start:stop], ends[first:last] - start)
            start = stop
            if shard.num_tokens == self._plan.tokens_per_chunk:
                self.close(note(stop) if note else {})

    def sync(self) -> tuple[int, int]:
        """Make all that is written durable; return the tokens and the documents of the shard at hand.

        Where there is none, both are 0.
        """
        if self._open is not None:
            self._open.sync()
        fsync_directory(self._directory)
        return (self._open.num_tokens, self._open.num_documents) if self._open else (0, 0)

    def go_on(self, tokens: int, documents: int) -> None:
        """Go on inside the shard that was at hand when `sync` was called.

        Args:
            tokens: What it returned.
            documents: What it returned.
        """
        path = self._directory / chunk_name(self._first + len(self.entries))
        indexed, width = bool(self._plan.doc_index), self._dtype.itemsize
        self._open = OpenShard(path, indexed=indexed, tokens=tokens, documents=documents, width=width)

    def close(self, note: dict[str, Any]) -> None:
        """End the shard that is being written, if there is one.

        Args:
            note: What the journal is to say of it.
        """
        if self._open is not None:
            entry = self._open.commit(note)
            if self._journal is not None:
                fsync_directory(self._directory)  # The names have to be as durable as what tells of them.
                self._journal.add(entry)
            self.entries.append(entry)
            self._open = None

    def leave(self) -> None:
        """Close the shard that is being written, and leave it for a run that goes on inside it."""
        if self._open is not None:
            self._open.leave()

    def abandon(self) -> None:
        """Remove the shard that is being written."""
        if self._open is not None:
            self._open.abandon()

    def _shard(self) -> OpenShard:
        if self._open is None:
            size = self._plan.tokens_per_chunk
            if self.entries and self.entries[-1].chunk.tokens != size:
                raise CorpusError(
                    f"{self._directory} was complete up to its last, shorter chunk, and now there is "
                    f"more to write: the dataset has grown.",
                    "Begin again with {overwrite}.",
                )
            indices = (entry.index.documents for entry in self.entries if entry.index is not None)
            room = size * self._dtype.itemsize + max(indices, default=0) * ENDS_DTYPE.itemsize
            check_room(self._directory, room)
            path = self._directory / chunk_name(self._first + len(self.entries))
            self._open = OpenShard(path, indexed=bool(self._plan.doc_index))
        return self._open

    def _stored(self, token_ids: NDArray[Any]) -> NDArray[Any]:
        """Return the ids in the storage type, after checking that each survives the change."""
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
                f"The tokenizer gives ids beyond the size that it states; use one that agrees with itself."
            )
        return token_ids.astype(self._dtype, copy=False)
