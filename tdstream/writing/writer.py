"""Write a stream of token ids, and make the shards a corpus when the last one is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import ConfigError, CorpusError
from tdstream.corpus.meta import DTYPES, CorpusMeta
from tdstream.writing.append import appended, next_number
from tdstream.writing.held_out import NOTE_KEY, HeldOutWriter
from tdstream.writing.journal import Journal, JournalEntry, changed, meta_of
from tdstream.writing.publish import explain_os_errors
from tdstream.writing.shard_writer import Note, ShardWriter
from tdstream.writing.staging import Staging

_NO_ENDS: NDArray[np.int64] = np.empty(0, np.int64)


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
        base: CorpusMeta | None = None,
    ) -> None:
        """Claim the output directory.

        Args:
            output: Where the corpus is to lie; created where it does not exist.
            plan: What is known beforehand; its dtype and tokens_per_chunk say how to write.
            overwrite: Whether an older corpus may be replaced.
            resume: Whether to go on with an unfinished corpus, if there is one.
            identity: Everything that decides the tokens, in JSON types; None keeps no journal.
            task: Which of several tasks this is; its shards wait for a merge. None means the only one.
            base: The corpus that lies there, to append to; None makes a new one.

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
        self._journal: Journal | None = None
        self._shards: ShardWriter | None = None
        self._held_out: HeldOutWriter | None = None
        self._base = base
        self._staging = Staging(
            output, overwrite=overwrite, resume=resume, task=task, append=base is not None
        )
        try:
            self._shards = self._begun(identity)
        except BaseException:
            self._leave()
            raise

    def _begun(self, identity: dict[str, Any] | None) -> ShardWriter:
        staging = self._staging
        if identity is not None and staging.record is not None:
            _check_same(staging.record.identity, identity, staging.output)
        staging.clear()
        entries: list[JournalEntry] = []
        with explain_os_errors(staging.output):
            if staging.record is not None:
                entries = staging.record.entries
                self._journal = Journal.go_on(staging.directory, staging.record)
            elif identity is not None:
                self._journal = Journal.begin(staging.directory, self._plan, identity)
            if self._plan.holdout and not self.is_done:
                self._held_out = HeldOutWriter(staging.directory, self._plan, entries)
        first = next_number(self._base)
        return ShardWriter(staging.directory, self._plan, entries=entries, journal=self._journal, first=first)

    @property
    def entries(self) -> list[JournalEntry]:
        """The shards that are safe, in their order; behind those of a completed task an entry without one."""
        tail = self._staging.record.tail if self._staging.record is not None else []
        return [*self._written.entries, *tail]

    @property
    def is_done(self) -> bool:
        """Whether this is a task that an earlier run completed."""
        return self._staging.record is not None and self._staging.record.done

    @property
    def num_tokens(self) -> int:
        """Tokens appended so far."""
        return self._written.num_tokens

    def append(
        self, token_ids: NDArray[Any], note: Note | None = None, *, ends: NDArray[np.int64] = _NO_ENDS
    ) -> None:
        """Write token ids behind those already written, cutting shards wherever they are full.

        Args:
            token_ids: Integers, shape [num_tokens].
            note: Asked whenever a shard is full, with the number of these tokens that are written by then.
            ends: Where documents end among them, just behind their end-of-text tokens, ascending; shape
                [num_documents]. They become the index, if the plan has one.

        Raises:
            CorpusError: If an id is negative or does not fit the storage type; none of them is written then.
            OutputError: If there is no room left, or the place cannot be written.
        """
        with explain_os_errors(self._staging.output):
            self._written.append(token_ids, ends, self._with_state(note))

    def hold_out(self, token_ids: NDArray[Any], ends: NDArray[np.int64]) -> None:
        """Write whole documents that are held out; the plan says that there are some.

        When a shard is full, all that were held out before its end have to be written: `note` may do it.

        Args:
            token_ids: Their tokens, shape [num_tokens].
            ends: Where each ends, just behind its end-of-text token; shape [num_documents].

        Raises:
            CorpusError: If an id is negative or does not fit the storage type.
            OutputError: If there is no room left, or the place cannot be written.
        """
        if self._held_out is None:
            raise CorpusError("The plan of this corpus holds no documents out.")
        with explain_os_errors(self._staging.output):
            self._held_out.append(token_ids, ends)

    def _with_state(self, note: Note | None) -> Note | None:
        """Let a note say how far the held-out documents reach."""
        if self._held_out is None or note is None:
            return note
        held_out, told = self._held_out, note
        return lambda num_written: {**told(num_written), NOTE_KEY: held_out.state()}

    def finish(
        self, *, num_documents: int, note: dict[str, Any] | None = None, source: str = ""
    ) -> CorpusMeta:
        """Complete the corpus and let readers see it.

        Args:
            num_documents: DocumentCounts that the appended tokens came from.
            note: What the journal is to say of the last shard.
            source: Of documents that are appended, a hash of what they were made from.

        Returns:
            The content of its meta.json.

        Raises:
            CorpusError: If nothing was appended: a corpus holds at least one token.
            OutputError: If it cannot be completed.
        """
        self._close(note or {})
        if not self._written.entries:
            raise CorpusError("No token was written; a corpus holds at least one.")
        meta = meta_of(self._plan, self._written.entries, num_documents)
        if self._base is not None:
            meta = appended(self._base, self._plan, self._written.entries, num_documents, source)
        if self._held_out is not None:
            with explain_os_errors(self._staging.output):
                self._held_out.finish(meta.encoder)
        self._staging.publish(meta)
        return meta

    def _close(self, note: dict[str, Any]) -> None:
        with explain_os_errors(self._staging.output):
            state = {} if self._held_out is None else {NOTE_KEY: self._held_out.state()}
            self._written.close({**note, **state})

    def finish_task(self, note: Callable[[], dict[str, Any]]) -> None:
        """Complete the shards of one task, which then wait for the merge; there may be none.

        Args:
            note: Asked what the journal is to say of the last shard, and what there is to say behind that.

        Raises:
            OutputError: If they cannot be completed.
        """
        if self.is_done:
            return
        if not self._written.is_full:
            self._close(note())
        with explain_os_errors(self._staging.output):
            state = {}
            if self._held_out is not None:
                self._held_out.close()
                state = {NOTE_KEY: self._held_out.state()}
            if self._journal is not None:
                self._journal.finish({**note(), **state})

    def __enter__(self) -> CorpusWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave()

    @property
    def _written(self) -> ShardWriter:
        if self._shards is None:
            raise CorpusError("The corpus has not been begun.")
        return self._shards

    def _leave(self) -> None:
        if self._held_out is not None:
            self._held_out.leave()
        if self._journal is not None:
            self._journal.close()
        try:
            if self._shards is not None:
                self._shards.abandon()
        finally:
            self._staging.discard()


def _check_same(before: dict[str, Any], now: dict[str, Any], output: Path) -> None:
    differences = changed(before, now)
    if differences:
        raise ConfigError(
            f"The unfinished preparation in {output} was begun otherwise: {'; '.join(differences)}.",
            "Resume it with what it was begun with, or pass {overwrite} without {resume} to begin again.",
        )
