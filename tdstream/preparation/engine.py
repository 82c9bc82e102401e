"""Preparation of a corpus: read texts, encode them, mark documents, write shards."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import chain
from typing import Any

from tdstream.core.errors import ConfigError, SourceError, TdstreamError
from tdstream.corpus.meta import CorpusMeta
from tdstream.preparation.append_files import check_list, skip_known_files
from tdstream.preparation.holdout import HeldOut, choose_held_out
from tdstream.preparation.identity import (
    APPEND_KEY,
    check_like_base,
    find_appended,
    find_complete,
    make_identity,
    match_index,
    plan_corpus,
    summarize_identity,
)
from tdstream.preparation.input_files import record_files, short_hash
from tdstream.preparation.ledger import Ledger, TokenBlock
from tdstream.preparation.options import OutputOptions, PrepareOptions
from tdstream.preparation.preview import log_preview, log_preview_if_shown
from tdstream.preparation.result import Counts, Observer, PrepareResult
from tdstream.preparation.tokenizing import EncoderPool, EncoderSetup, Marks, Overlapped
from tdstream.text.batches import TextBatch, TextBatches
from tdstream.text.encoders.encoder import Encoder, HfEncoder
from tdstream.text.encoders.select import Chosen, choose_encoder, choose_in_background
from tdstream.text.source import SourceType, find_source_type
from tdstream.text.tokenizer import get_tokenizer, pack_tokenizer
from tdstream.writing.append import base_identity, check_base
from tdstream.writing.staging import read_unfinished
from tdstream.writing.writer import CorpusWriter

logger = logging.getLogger(__name__)

_PREVIEWED_SEGMENTS = 16


def prepare_corpus(options: PrepareOptions, observer: Observer | None = None) -> PrepareResult:
    """Read a dataset, tokenize it and write it as a corpus; `observer` receives the progress.

    On failure, an older corpus in the output directory is unchanged; complete shards are kept for `resume`.
    """
    return Preparation(options, observer or Observer()).run()


def preview_corpus(options: PrepareOptions) -> None:
    """Log what `prepare_corpus` would read and write, with estimates; raise what it would raise first."""
    Preparation(options, Observer()).preview()


def describe_kept(output: OutputOptions, task: int | None) -> str:
    """Describe the documents and tokens that a resumed run can keep; empty if none."""
    try:
        record = read_unfinished(output.output_path, task)
    except TdstreamError:
        return ""
    return "" if record is None else f"{record.num_documents:,} documents, {record.num_tokens:,} tokens"


class Preparation:
    """One run of a preparation."""

    def __init__(self, options: PrepareOptions, observer: Observer) -> None:
        self._observer = observer
        options.check_output()
        self._base = check_base(options.output.output_path) if options.output.append else None
        self._options = match_index(options, self._base)

    def run(self) -> PrepareResult:
        """Do the remaining work; return the result over all runs."""
        options, base = self._options, self._base
        self._tokenizer = tokenizer = get_tokenizer(options.text)
        plan = plan_corpus(options, tokenizer)
        if base is not None:
            check_like_base(options.output.output_path, base, plan)
        complete = find_complete(options, plan)
        if complete is not None:
            return complete
        try:
            with choose_in_background(tokenizer, options.text.encoder) as chosen, ExitStack() as stack:
                # Importing datasets takes a second, in which the encoder is loaded.
                from tdstream.text.open import open_text  # noqa: PLC0415

                source = stack.enter_context(open_text(options.text, options.tasks.share))
                identity = make_identity(options, plan, source.facts)
                before = None if base is None else self._skip_known(base, plan, identity, source.facts.files)
                if before is not None:
                    return before
                if self._options.text.skipped_files:
                    source = stack.enter_context(open_text(self._options.text))
                    identity = make_identity(self._options, plan, source.facts)
                return self._prepare(plan, identity, chosen, source)
        except TdstreamError as error:
            kept = describe_kept(options.output, options.tasks.task)
            is_bad_record = isinstance(error, SourceError) and "skip_bad" in error.options
            if kept and is_bad_record and _is_known_by_content(options):
                error.add_hint(
                    f"{kept} are safe: start again with {{resume}} and {{skip_bad}} to continue after them. "
                    f"A repaired source counts as another one: pass {{overwrite}} without {{resume}} to "
                    f"prepare it from its beginning."
                )
            elif kept and "overwrite" not in error.options:  # which says that they cannot be kept
                error.add_hint(f"{kept} are safe: start again with {{resume}} to continue after them.")
            raise

    def preview(self) -> None:
        """Log what `run` would read and write, as far as that is known without writing anything."""
        from tdstream.text.open import open_text  # noqa: PLC0415 - imports pyarrow, after the tokenizer is checked

        options, base = self._options, self._base
        tokenizer = get_tokenizer(options.text)
        plan = plan_corpus(options, tokenizer)
        if base is not None:
            check_like_base(options.output.output_path, base, plan)
        complete = find_complete(options, plan)
        if complete is not None:
            logger.info("Complete already, there is nothing to resume: %s", complete.output_path)
            return
        if options.text.encoder in ("auto", "hf"):
            encoder = choose_encoder(tokenizer, options.text.encoder, prove=False)
        else:  # may have to be tested, and a verdict written
            encoder = HfEncoder(tokenizer)
            logger.info("Encoder %s, if it is exact for this tokenizer.", options.text.encoder)
        with open_text(options.text, options.tasks.share) as source:
            log_preview(options, source, tokenizer, plan, encoder, _PREVIEWED_SEGMENTS)
        kept = describe_kept(options.output, options.tasks.task) if options.output.resume else ""
        if kept:
            logger.info("%s of them are safe from an earlier run, which would be resumed.", kept)

    def _skip_known(
        self, base: CorpusMeta, plan: CorpusMeta, identity: dict[str, Any], files: list[str]
    ) -> PrepareResult | None:
        """Leave out what is in the corpus that is appended to; return the result if all of it is."""
        before = find_appended(self._options, base, identity)
        if before is None:
            check_list(self._options, base, plan)
        if before is None and files:
            found = skip_known_files(self._options, base, identity, files)
            if isinstance(found, PrepareResult):
                return found
            self._options = found
        return before

    def _prepare(
        self, plan: CorpusMeta, identity: dict[str, Any], chosen: Chosen, source: TextBatches
    ) -> PrepareResult:
        output, task = self._options.output, self._options.tasks.task
        holdout = choose_held_out(self._options.holdout, source)
        # Write nothing before the first record is read, unless there may be none.
        is_begun = output.resume and read_unfinished(output.output_path, task) is not None
        batches = source.batches() if is_begun or task is not None else _check_first_batch(source)
        encoder = chosen()
        if not is_begun and log_preview_if_shown(self._options, source, self._tokenizer, plan, encoder):
            batches = source.batches()  # those begun before have lost their place to the sample
        files = source.facts.files if not task else []  # one task's records are those of all
        plan = replace(
            plan,
            encoder=encoder.name,
            made_from=summarize_identity(identity),
            input_files=record_files(files, identity, source.find_files_reached()),
        )
        with self._writer(plan, identity) as writer:
            ledger = Ledger.of(writer.entries, source.begin)
            held_out = HeldOut(holdout, writer)
            if writer.entries:
                source.go_to(ledger.place, ledger.counts.records + held_out.counts.documents)
            if ledger.counts.skipped and not self._options.text.skip_bad:
                raise ConfigError(
                    f"The unfinished preparation in {output.output_path} skipped "
                    f"{ledger.counts.skipped:,} bad records, but skip_bad is off now.",
                    "Resume it with {skip_bad}, or pass {overwrite} without {resume}.",
                )
            self._observer.begin(source.total, ledger.counts + held_out.counts, source.total_bytes)
            if not writer.is_done:
                with closing(self._blocks(batches, encoder, plan)) as blocks:
                    for block in blocks:
                        write_block(block, writer, ledger, held_out)
                        self._observer.advance(
                            block.num_records, ledger.counts + held_out.counts, block.bytes_read
                        )
                        del block  # free a possibly large block while waiting for the next
            reached = source.find_files_reached()  # known only now where max_samples ended the reading
            read = plan.input_files if reached is None else record_files(files, identity, reached)
            meta = self._finish(writer, ledger, held_out, short_hash(identity), read)
        self._observer.end()
        _warn_about(ledger.counts)
        return PrepareResult(
            output_path=output.output_path,
            counts=ledger.counts,
            meta=meta,
            seconds=ledger.counts.seconds,
            lengths=ledger.lengths,
            val=None if holdout is None else held_out.counts,
        )

    def _writer(self, plan: CorpusMeta, identity: dict[str, Any]) -> CorpusWriter:
        output, base = self._options.output, self._base
        return CorpusWriter(
            output.output_path,
            plan,
            overwrite=output.overwrite,
            resume=output.resume,
            identity=identity if base is None else {**identity, APPEND_KEY: base_identity(base)},
            task=self._options.tasks.task,
            base=base,
        )

    def _blocks(
        self, batches: Iterator[TextBatch], encoder: Encoder, plan: CorpusMeta
    ) -> Overlapped | EncoderPool:
        text, marks = self._options.text, Marks(plan.eos_token_id or 0, plan.bos_token_id)
        if text.num_proc == 1:
            return Overlapped(batches, encoder, marks)
        setup = EncoderSetup(
            tokenizer=text.tokenizer,
            pickled=b"" if text.given_tokenizer is None else pack_tokenizer(text.given_tokenizer),
            tokenizer_fingerprint=plan.tokenizer_fingerprint,
            encoder=encoder.name,  # proved already, so workers need not prove it again
            marks=marks,
        )
        return EncoderPool(batches, setup, text.num_proc)

    def _finish(
        self,
        writer: CorpusWriter,
        ledger: Ledger,
        held_out: HeldOut,
        source_hash: str,
        input_files: list[str],
    ) -> CorpusMeta | None:
        def note() -> dict[str, Any]:
            return {**ledger.last_note(), **held_out.last_note()}

        if self._options.tasks.task is not None:
            writer.finish_task(note)
            return None
        if ledger.counts.documents == 0 and held_out.counts.documents:
            raise ConfigError(
                f"All {held_out.counts.documents:,} documents were held out, and some must stay. Hold out "
                f"fewer."
            )
        if ledger.counts.documents == 0:
            raise _no_document(self._options.text.dataset, ledger.counts.skipped)
        return writer.finish(
            num_documents=ledger.counts.documents, note=note(), source=source_hash, input_files=input_files
        )


def write_block(block: TokenBlock, writer: CorpusWriter, ledger: Ledger, held_out: HeldOut) -> None:
    """Write the kept and the held-out documents of a block."""
    kept, others = held_out.split(block)

    def note(num_written: int) -> dict[str, Any]:
        content = ledger.note(kept, num_written)
        return {**content, **held_out.note(others, content["row"] - block.begin.row)}

    ids, ends = ledger.unwritten(kept)
    writer.append(ids, note, ends=ends)
    ledger.end(kept)
    held_out.end(others)


def _is_known_by_content(options: PrepareOptions) -> bool:
    """Return whether any change of the source is a change of its identity."""
    by_name = (SourceType.FUNCTION, SourceType.SEQUENCE, SourceType.ITERABLE)
    return options.text.given is None or find_source_type(options.text.given) not in by_name


def _check_first_batch(source: TextBatches) -> Iterator[TextBatch]:
    """Return the batches of a source; refuse a source without any."""
    batches = source.batches()
    first = next(batches, None)
    if first is None:
        raise _no_document(source.name, 0)
    return chain([first], batches)


def _no_document(dataset: str, skipped: int) -> SourceError:
    why = f"all of its {skipped:,} records were skipped" if skipped else "it holds no record"
    return SourceError(f"Dataset {dataset!r} has no documents: {why}. Check its files and its split.")


def _warn_about(counts: Counts) -> None:
    """Log unusual counts."""
    if counts.with_eos:
        logger.warning(
            "%s of %s documents hold the end-of-text token in their own text; without an index of document "
            "ends, readers cannot tell it from the end of a document.",
            f"{counts.with_eos:,}",
            f"{counts.documents:,}",
        )
    if counts.skipped:
        logger.warning("%s records without text were skipped.", f"{counts.skipped:,}")
