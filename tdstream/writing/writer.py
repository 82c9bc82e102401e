"""Writer of a corpus: a stream of token ids in, shards and meta.json out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import ConfigError, CorpusError
from tdstream.corpus.meta import DTYPES, CorpusMeta
from tdstream.writing.append import appended_meta, next_number
from tdstream.writing.held_out import NOTE_KEY, HeldOutWriter
from tdstream.writing.journal import Journal, JournalEntry, complete_meta, list_changes
from tdstream.writing.publish import explain_os_errors
from tdstream.writing.shard_writer import Note, ShardWriter
from tdstream.writing.staging import Staging

_NO_ENDS: NDArray[np.int64] = np.empty(0, np.int64)


class CorpusWriter:
    """Writes one corpus: `append` token ids, then `finish`.

    Use it in a `with` statement. Leaving that without `finish` removes what was written, and leaves what was
    in the directory before. With an identity there is a journal, and safe shards are kept: a writer with the
    same identity and `resume` continues after them.
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
        """Claim the output directory; `overwrite`, `resume` and `task` are those of `check_output`.

        The plan is the future meta.json as far as it is known: dtype, tokens_per_chunk and doc_index decide
        the files. The identity is everything that decides the tokens, in JSON types; without one there is no
        journal. `base` is the corpus to append to, if any.
        """
        if plan.tokens_per_chunk < 1:
            raise ConfigError(f"tokens_per_chunk must be at least 1, got {plan.tokens_per_chunk}.")
        if plan.dtype not in DTYPES:
            raise ConfigError(f"dtype must be one of {', '.join(DTYPES)}, got {plan.dtype!r}.")
        self._plan = plan
        self._base = base
        self._journal: Journal | None = None
        self._shards: ShardWriter | None = None
        self._held_out: HeldOutWriter | None = None
        self._staging = Staging(
            output, overwrite=overwrite, resume=resume, task=task, append=base is not None
        )
        try:
            self._shards = self._start(identity)
        except BaseException:
            self._leave()
            raise

    def _start(self, identity: dict[str, Any] | None) -> ShardWriter:
        staging, unfinished = self._staging, self._staging.unfinished
        if identity is not None and unfinished is not None:
            _check_identity(unfinished.identity, identity, staging.output)
        staging.clear()
        entries = [] if unfinished is None else unfinished.entries
        with explain_os_errors(staging.output):
            if unfinished is not None:
                self._journal = Journal.resume(staging.directory, unfinished)
            elif identity is not None:
                self._journal = Journal.create(staging.directory, self._plan, identity)
            if self._plan.holdout and not self.is_done:
                self._held_out = HeldOutWriter(staging.directory, self._plan, entries)
        first = next_number(self._base)
        return ShardWriter(staging.directory, self._plan, entries=entries, journal=self._journal, first=first)

    @property
    def entries(self) -> list[JournalEntry]:
        """The safe shards, in order; of a finished task also the entry of its tail, which has no file."""
        unfinished = self._staging.unfinished
        return [*self._writer.entries, *(unfinished.tail if unfinished is not None else [])]

    @property
    def is_done(self) -> bool:
        """Whether an earlier run finished this task."""
        return self._staging.unfinished is not None and self._staging.unfinished.done

    @property
    def num_tokens(self) -> int:
        """Tokens appended so far."""
        return self._writer.num_tokens

    def append(
        self, token_ids: NDArray[Any], note: Note | None = None, *, ends: NDArray[np.int64] = _NO_ENDS
    ) -> None:
        """Write token ids, integers [num_tokens], starting a new shard whenever one is full.

        `ends`, int64 [num_documents], are the ascending places among them just after end-of-text tokens.
        """
        with explain_os_errors(self._staging.output):
            self._writer.append(token_ids, ends, self._with_held_out(note))

    def _with_held_out(self, note: Note | None) -> Note | None:
        """Add the state of the held-out documents to a note."""
        if self._held_out is None or note is None:
            return note
        held_out, make_note = self._held_out, note
        return lambda num_written: {**make_note(num_written), NOTE_KEY: held_out.sync()}

    def hold_out(self, token_ids: NDArray[Any], ends: NDArray[np.int64]) -> None:
        """Write whole held-out documents: token ids [num_tokens], and where each ends [num_documents].

        By the time a shard is full, all documents held out before its end must be written; `note` may do so.
        """
        if self._held_out is None:
            raise CorpusError("The plan of this corpus holds no documents out.")
        with explain_os_errors(self._staging.output):
            self._held_out.append(token_ids, ends)

    def finish(
        self, *, num_documents: int, note: dict[str, Any] | None = None, source: str = ""
    ) -> CorpusMeta:
        """Complete the corpus, move it to its place, and return its meta.json.

        `note` is the journal's note on the last shard; `source`, when appending, a hash of the source.
        """
        self._close(note or {})
        entries = self._writer.entries
        if not entries:
            raise CorpusError(
                "No token was written; a corpus holds at least one. Check that the source holds text."
            )
        if self._base is None:
            meta = complete_meta(self._plan, entries, num_documents)
        else:
            meta = appended_meta(self._base, self._plan, entries, num_documents, source)
        if self._held_out is not None:
            with explain_os_errors(self._staging.output):
                self._held_out.finish(meta.encoder)
        self._staging.publish(meta)
        return meta

    def finish_task(self, note: Callable[[], dict[str, Any]]) -> None:
        """Complete the shards of one task, possibly none; they wait for the merge.

        `note` returns the journal's note on the last shard, and then on what follows it.
        """
        if self.is_done:
            return
        if not self._writer.is_full:
            self._close(note())
        with explain_os_errors(self._staging.output):
            held_out = {}
            if self._held_out is not None:
                self._held_out.close()
                held_out = {NOTE_KEY: self._held_out.sync()}
            if self._journal is not None:
                self._journal.finish({**note(), **held_out})

    def _close(self, note: dict[str, Any]) -> None:
        with explain_os_errors(self._staging.output):
            held_out = {} if self._held_out is None else {NOTE_KEY: self._held_out.sync()}
            self._writer.close({**note, **held_out})

    def __enter__(self) -> CorpusWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave()

    @property
    def _writer(self) -> ShardWriter:
        if self._shards is None:
            raise CorpusError("The corpus has not been started.")
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


def _check_identity(before: dict[str, Any], now: dict[str, Any], output: Path) -> None:
    changes = list_changes(before, now)
    if changes:
        raise ConfigError(
            f"The unfinished preparation in {output} was started with other settings: {'; '.join(changes)}.",
            "Resume it with the same ones, or pass {overwrite} without {resume} to start again.",
        )
