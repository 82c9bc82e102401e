"""Writer of a corpus: token ids in, shards and meta.json out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import ConfigError, CorpusError
from tdstream.corpus.meta import DTYPES, CorpusMeta
from tdstream.writing.append import appended_meta, next_number
from tdstream.writing.held_out import NOTE_KEY, HeldOutWriter
from tdstream.writing.journal import (
    PROVENANCE_KEY,
    Journal,
    JournalEntry,
    complete_meta,
    list_changes,
)
from tdstream.writing.publish import explain_os_errors
from tdstream.writing.shard_writer import Note, ShardWriter
from tdstream.writing.staging import Staging

_NO_ENDS: NDArray[np.int64] = np.empty(0, np.int64)


class CorpusWriter:
    """Writes one corpus: `append` token ids, then `finish`, in a `with` statement.

    Without `finish`, the directory is left as it was before. With an identity there is a journal, and safe
    shards are kept: a writer with the same identity and `resume` continues after them.
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

        `plan` is the future meta.json without shards; its dtype, tokens_per_chunk and doc_index decide the
        files. `identity` is everything that decides the tokens, in JSON types; without it there is no
        journal. `base` is the corpus to append to, if any.
        """
        if plan.tokens_per_chunk < 1:
            raise ConfigError(f"tokens_per_chunk must be at least 1, got {plan.tokens_per_chunk}.")
        if plan.dtype not in DTYPES:
            raise ConfigError(f"dtype must be one of {', '.join(DTYPES)}, got {plan.dtype!r}.")
        self._plan = plan
        self._base = base
        self._journal: Journal | None = None
        self._held_out: HeldOutWriter | None = None
        self._staging = Staging(
            output, overwrite=overwrite, resume=resume, task=task, append=base is not None
        )
        with ExitStack() as stack:
            stack.callback(self._staging.discard)
            self._writer = self._start(identity, stack)
            self._opened = stack.pop_all()

    def _start(self, identity: dict[str, Any] | None, stack: ExitStack) -> ShardWriter:
        staging, unfinished = self._staging, self._staging.unfinished
        if identity is not None and unfinished is not None:
            asked = dict(identity)
            if PROVENANCE_KEY not in unfinished.identity:
                asked.pop(PROVENANCE_KEY, None)
            changes = list_changes(unfinished.identity, asked)
            if changes:
                raise ConfigError(
                    f"The unfinished preparation in {staging.output} was started with other settings: "
                    f"{'; '.join(changes)}.",
                    "Resume it with the same ones, or pass {overwrite} without {resume} to start again.",
                )
        staging.clear()
        entries = [] if unfinished is None else unfinished.entries
        with explain_os_errors(staging.output):
            if unfinished is not None:
                self._journal = Journal.resume(staging.directory, unfinished)
            elif identity is not None:
                self._journal = Journal.create(staging.directory, self._plan, identity)
            if self._journal is not None:
                stack.callback(self._journal.close)
            if self._plan.holdout and not self.is_done:
                self._held_out = HeldOutWriter(staging.directory, self._plan, entries)
                stack.callback(self._held_out.leave)
        first = next_number(self._base)
        writer = ShardWriter(
            staging.directory, self._plan, entries=entries, journal=self._journal, first=first
        )
        stack.callback(writer.abandon)
        return writer

    @property
    def entries(self) -> list[JournalEntry]:
        """The safe shards, in order; in a finished task also the tail, which has no file."""
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

        `ends`, int64 [num_documents], are the ascending positions among them just after end-of-text tokens.
        """
        with explain_os_errors(self._staging.output):
            self._writer.append(token_ids, ends, self._with_held_out(note))

    def _with_held_out(self, note: Note | None) -> Note | None:
        """Return a note that also records the held-out documents."""
        if self._held_out is None or note is None:
            return note
        held_out, make_note = self._held_out, note
        return lambda num_written: {**make_note(num_written), NOTE_KEY: held_out.sync()}

    def hold_out(self, token_ids: NDArray[Any], ends: NDArray[np.int64]) -> None:
        """Write whole held-out documents: token ids [num_tokens], and the end of each [num_documents].

        When a shard is full, all documents held out before its end must be written; `note` may write them.
        """
        if self._held_out is None:
            raise CorpusError("The plan of this corpus holds no documents out.")
        with explain_os_errors(self._staging.output):
            self._held_out.append(token_ids, ends)

    def finish(
        self,
        *,
        num_documents: int,
        note: dict[str, Any] | None = None,
        source: str = "",
        input_files: list[str] | None = None,
    ) -> CorpusMeta:
        """Complete the corpus, move it into place, and return its meta.json.

        `note` is the journal's note on the last shard; `source` is the hash of an appended source;
        `input_files` takes the place of the plan's.
        """
        self._close(note or {})
        entries = self._writer.entries
        if not entries:
            raise CorpusError(
                "No token was written; a corpus holds at least one. Check that the source holds text."
            )
        plan = self._plan if input_files is None else replace(self._plan, input_files=input_files)
        if self._base is None:
            meta = complete_meta(plan, entries, num_documents)
        else:
            meta = appended_meta(self._base, plan, entries, num_documents, source)
        if self._held_out is not None:
            with explain_os_errors(self._staging.output):
                self._held_out.finish(meta.encoder)
        self._staging.publish(meta)
        return meta

    def finish_task(self, note: Callable[[], dict[str, Any]]) -> None:
        """Complete the shards of one task, possibly none, for the merge.

        `note` returns the journal's note on the last shard and, called again, on what follows it.
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
        self._opened.close()
