"""Cut a stream of token ids into shards of one size, and make them a corpus when the last one is written."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.corpus.chunkfile import ChunkFile
from tdstream.corpus.journal import Entry, Journal, changed
from tdstream.corpus.meta import DTYPES, FORMAT_VERSION, Chunk, CorpusMeta, chunk_name, fsync_directory
from tdstream.corpus.output import check_room, explain_os_errors
from tdstream.corpus.staging import Staging
from tdstream.errors import ConfigError, CorpusError

Note = Callable[[int], dict[str, Any]]
"""Says, of the tokens of one `append` that have been written, what the journal is to say of the shard."""


class CorpusWriter:
    """Writes one corpus: `append` token ids, then `finish`.

    Used in a `with` statement; leaving it without `finish` removes all that was written, and whatever lay
    in the directory before is as it was. With an identity there is a journal, and the shards that are safe
    are kept, for a writer with the same identity and ``resume`` to go on behind them.
    """

    def __init__(
        self,
        output: Path,
        plan: CorpusMeta,
        *,
        overwrite: bool = False,
        resume: bool = False,
        identity: dict[str, Any] | None = None,
        task: int | None = None,
    ) -> None:
        """Claim the output directory.

        Args:
            output: Where the corpus is to lie; created where it does not exist.
            plan: What is known beforehand; its dtype and tokens_per_chunk say how to write.
            overwrite: Whether an older corpus may be replaced.
            resume: Whether to go on with an unfinished corpus, if there is one.
            identity: Everything that decides the tokens, in JSON types; None keeps no journal.
            task: Which of several tasks this is; its shards wait for a merge. None means the only one.

        Raises:
            ConfigError: If the plan cannot be followed, or is not that of the unfinished corpus.
            OutputError: If the directory cannot be used.
            CorpusError: If the unfinished corpus cannot be gone on with.
        """
        if plan.tokens_per_chunk < 1:
            raise ConfigError(f"tokens_per_chunk must be at least 1, got {plan.tokens_per_chunk}.")
        if plan.dtype not in DTYPES:
            raise ConfigError(f"dtype must be one of {', '.join(DTYPES)}, got {plan.dtype!r}.")
        self._plan = plan
        self._dtype = DTYPES[plan.dtype]
        self._entries: list[Entry] = []
        self._open_chunk: ChunkFile | None = None
        self._journal: Journal | None = None
        self._staging = Staging(output, overwrite=overwrite, resume=resume, task=task)
        try:
            self._begin(identity)
        except BaseException:
            self._leave()
            raise

    def _begin(self, identity: dict[str, Any] | None) -> None:
        staging = self._staging
        if identity is not None and staging.record is not None:
            _check_same(staging.record.identity, identity, staging.output)
        staging.clear()
        with explain_os_errors(staging.output):
            if staging.record is not None:
                self._entries = list(staging.record.entries)
                self._journal = Journal.go_on(staging.directory, staging.record)
            elif identity is not None:
                self._journal = Journal.begin(staging.directory, self._plan, identity)

    @property
    def entries(self) -> list[Entry]:
        """The shards that are safe, in their order."""
        return list(self._entries)

    @property
    def is_done(self) -> bool:
        """Whether this is a task that an earlier run completed."""
        return self._staging.record is not None and self._staging.record.done

    @property
    def num_tokens(self) -> int:
        """Tokens appended so far."""
        begun = self._open_chunk.num_tokens if self._open_chunk else 0
        return sum(entry.chunk.tokens for entry in self._entries) + begun

    def append(self, token_ids: NDArray[Any], note: Note | None = None) -> None:
        """Write token ids behind those already written, cutting shards wherever they are full.

        Args:
            token_ids: Integers, shape [num_tokens].
            note: Asked whenever a shard is full, with the number of these tokens that are written by then.

        Raises:
            CorpusError: If an id is negative or does not fit the storage type; none of them is written then.
            OutputError: If there is no room left, or the place cannot be written.
        """
        stored = self._stored(token_ids)
        with explain_os_errors(self._staging.output):
            start = 0
            while start < len(stored):
                chunk = self._chunk()
                stop = start + self._plan.tokens_per_chunk - chunk.num_tokens
                chunk.write(stored[start:stop])
                start = stop
                if chunk.num_tokens == self._plan.tokens_per_chunk:
                    self._close_chunk(note(stop) if note else {})

    def finish(self, *, num_documents: int, note: dict[str, Any] | None = None) -> CorpusMeta:
        """Complete the corpus and let readers see it.

        Args:
            num_documents: Documents that the appended tokens came from.
            note: What the journal is to say of the last shard.

        Returns:
            The content of its meta.json.

        Raises:
            CorpusError: If nothing was appended: a corpus holds at least one token.
            OutputError: If it cannot be completed.
        """
        with explain_os_errors(self._staging.output):
            self._close_chunk(note or {})
        if not self._entries:
            raise CorpusError("No token was written; a corpus holds at least one.")
        meta = meta_of(self._plan, self._entries, num_documents)
        self._staging.publish(meta)
        return meta

    def finish_task(self, note: dict[str, Any]) -> None:
        """Complete the shards of one task, which then wait for the merge; there may be none.

        Args:
            note: What the journal is to say of the last shard.

        Raises:
            OutputError: If they cannot be completed.
        """
        with explain_os_errors(self._staging.output):
            self._close_chunk(note)
            if self._journal is not None and not self.is_done:
                self._journal.finish()

    def __enter__(self) -> CorpusWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._open_chunk is not None:
            self._open_chunk.abandon()
        if self._journal is not None:
            self._journal.close()
        self._staging.discard()

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

    def _chunk(self) -> ChunkFile:
        if self._open_chunk is None:
            size = self._plan.tokens_per_chunk
            if self._entries and self._entries[-1].chunk.tokens != size:
                raise CorpusError(
                    f"{self._staging.output} was complete up to its last, shorter chunk, and now there is "
                    f"more to write: the dataset has grown. Begin again with --overwrite."
                )
            check_room(self._staging.directory, size * self._dtype.itemsize)
            self._open_chunk = ChunkFile(self._staging.directory / chunk_name(len(self._entries)))
        return self._open_chunk

    def _close_chunk(self, note: dict[str, Any]) -> None:
        if self._open_chunk is not None:
            chunk = self._open_chunk
            chunk.commit()
            entry = Entry(Chunk(chunk.path.name, chunk.num_tokens), chunk.checksum, note)
            if self._journal is not None:
                fsync_directory(self._staging.directory)  # The name has to be as durable as what tells of it.
                self._journal.add(entry)
            self._entries.append(entry)
            self._open_chunk = None


def meta_of(plan: CorpusMeta, entries: list[Entry], num_documents: int) -> CorpusMeta:
    """Return the meta.json of a corpus that is complete.

    Args:
        plan: What was known beforehand.
        entries: Its shards.
        num_documents: Documents that their tokens came from.
    """
    return replace(
        plan,
        chunks=tuple(entry.chunk for entry in entries),
        chunk_checksums={entry.chunk.file: entry.checksum for entry in entries},
        num_documents=num_documents,
        created_at_unix=int(time.time()),
        format_version=FORMAT_VERSION,
    )


def _check_same(before: dict[str, Any], now: dict[str, Any], output: Path) -> None:
    differences = changed(before, now)
    if differences:
        raise ConfigError(
            f"The unfinished preparation in {output} was begun otherwise: {'; '.join(differences)}. "
            f"Resume it with what it was begun with, or pass --overwrite without --resume to begin again."
        )
