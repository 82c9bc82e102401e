"""The way of a dataset into a corpus: read, encode, put end-of-text tokens between documents, write."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import chain
from typing import Any

from tdstream.core.errors import ConfigError, SourceError, TdstreamError
from tdstream.corpus.meta import CorpusMeta
from tdstream.preparation.holdout import HeldOut, choose_held_out
from tdstream.preparation.identity import (
    check_like_base,
    find_appended,
    find_complete,
    make_identity,
    match_index,
    plan_corpus,
    short_hash,
    summarize_identity,
    with_base,
)
from tdstream.preparation.ledger import Ledger, TokenBlock
from tdstream.preparation.options import PrepareOptions, check_place
from tdstream.preparation.result import Counts, NoObserver, Observer, PrepareResult
from tdstream.preparation.tokenizing import Overlapped
from tdstream.preparation.worker_pool import EncoderPool, EncoderSetup
from tdstream.text.batches import TextBatch, TextSource
from tdstream.text.encoders.encoder import Encoder
from tdstream.text.encoders.select import Chosen, choosing
from tdstream.text.tokenizer import get_tokenizer, packed
from tdstream.writing.append import check_base
from tdstream.writing.staging import read_unfinished
from tdstream.writing.writer import CorpusWriter

logger = logging.getLogger(__name__)


def prepare_corpus(options: PrepareOptions, observer: Observer | None = None) -> PrepareResult:
    """Read a dataset, tokenize it and write it as a corpus; `observer` is told about the progress.

    Raises:
        TdstreamError: If that is not possible. An older corpus in the output directory is then unchanged, and
            the shards that were complete are kept for a start with `resume`.
    """
    check_place(options.output, options.tasks)
    base = check_base(options.output.output_path) if options.output.append else None
    options = match_index(options, base)
    tokenizer = get_tokenizer(options.text)
    plan = plan_corpus(options, tokenizer)
    if base is not None:
        check_like_base(options.output.output_path, base, plan)
    complete = find_complete(options, plan)
    if complete is not None:
        return complete
    try:
        with choosing(tokenizer, options.text.encoder) as chosen, _opened(options) as source:
            return _prepare(options, plan, base, chosen, source, observer or NoObserver())
    except TdstreamError as error:
        kept = describe_kept(options)
        if kept:
            error.add_hint(f"{kept} are safe: start again with {{resume}} to continue after them.")
        raise


def describe_kept(options: PrepareOptions) -> str:
    """Return the documents and tokens that a later start can continue after, in words; empty if none."""
    try:
        record = read_unfinished(options.output.output_path, options.tasks.task)
    except TdstreamError:
        return ""
    return "" if record is None else f"{record.num_documents:,} documents, {record.num_tokens:,} tokens"


def _opened(options: PrepareOptions) -> TextSource:
    # Importing datasets takes a second, in which the encoder is loaded.
    from tdstream.text.open import open_text  # noqa: PLC0415

    return open_text(options.text, options.tasks.share)


def _prepare(
    options: PrepareOptions,
    plan: CorpusMeta,
    base: CorpusMeta | None,
    chosen: Chosen,
    source: TextSource,
    observer: Observer,
) -> PrepareResult:
    output, tasks = options.output, options.tasks
    holdout = choose_held_out(options.holdout, source)
    identity = make_identity(options, plan, source.facts)
    before = find_appended(options, base, identity)
    if before is not None:
        return before
    begun = output.resume and read_unfinished(output.output_path, tasks.task) is not None
    # Nothing is written before there is a first record, unless there may be none.
    batches = source.batches() if begun or tasks.task is not None else _with_a_first_one(source)
    encoder = chosen()
    plan = replace(plan, encoder=encoder.name, made_from=summarize_identity(identity))
    writer = CorpusWriter(
        output.output_path,
        plan,
        overwrite=output.overwrite,
        resume=output.resume,
        identity=with_base(identity, base),
        task=tasks.task,
        base=base,
    )
    with writer:
        ledger = Ledger.of(writer.entries, source.begin)
        held_out = HeldOut(holdout, writer)
        if writer.entries:
            source.go_to(ledger.place, ledger.counts.records + held_out.counts.documents)
        _check_skipping(options, ledger.counts)
        observer.begin(source.total, ledger.counts + held_out.counts)
        if not writer.is_done:
            with closing(_blocks(batches, encoder, plan, options)) as blocks:
                _write(blocks, writer, ledger, held_out, observer)
        meta = _finish(options, writer, ledger, held_out, short_hash(identity))
    observer.end()
    _warn_about(ledger.counts)
    return PrepareResult(
        output_path=output.output_path,
        counts=ledger.counts,
        meta=meta,
        seconds=ledger.counts.seconds,
        lengths=ledger.lengths,
        val=None if holdout is None else held_out.counts,
    )


def _with_a_first_one(source: TextSource) -> Iterator[TextBatch]:
    """Return the batches of a source; raise, before anything is written, if there is none."""
    batches = source.batches()
    first = next(batches, None)
    if first is None:
        raise _no_document(source.name, 0)
    return chain([first], batches)


def _check_skipping(options: PrepareOptions, counts: Counts) -> None:
    if counts.skipped and not options.text.skip_bad:
        raise ConfigError(
            f"The unfinished preparation in {options.output.output_path} skipped {counts.skipped:,} bad "
            f"records, but skip_bad is off now.",
            "Resume it with {skip_bad}, or pass {overwrite} without {resume}.",
        )


def _blocks(
    batches: Iterator[TextBatch], encoder: Encoder, plan: CorpusMeta, options: PrepareOptions
) -> Overlapped | EncoderPool:
    text, eos_token_id = options.text, plan.eos_token_id or 0
    if text.num_proc == 1:
        return Overlapped(batches, encoder, eos_token_id)
    setup = EncoderSetup(
        tokenizer=text.tokenizer,
        pickled=b"" if text.given_tokenizer is None else packed(text.given_tokenizer),
        tokenizer_fingerprint=plan.tokenizer_fingerprint,
        encoder=encoder.name,  # Which has been proved; in each worker that need not be done again.
        eos_token_id=eos_token_id,
    )
    return EncoderPool(batches, setup, text.num_proc)


def _write(
    blocks: Iterable[TokenBlock], writer: CorpusWriter, ledger: Ledger, held_out: HeldOut, observer: Observer
) -> None:
    for block in blocks:
        _write_block(block, writer, ledger, held_out)
        observer.advance(block.num_records, ledger.counts + held_out.counts)
        del block  # It may be large, and the next one takes its time.


def _write_block(block: TokenBlock, writer: CorpusWriter, ledger: Ledger, held_out: HeldOut) -> None:
    kept, others = held_out.split(block)

    def note(num_written: int) -> dict[str, Any]:
        content = ledger.note(kept, num_written)
        return {**content, **held_out.note(others, content["row"] - block.begin.row)}

    ids, ends = ledger.unwritten(kept)
    writer.append(ids, note, ends=ends)
    ledger.end(kept)
    held_out.end(others)


def _finish(
    options: PrepareOptions, writer: CorpusWriter, ledger: Ledger, held_out: HeldOut, source_hash: str
) -> CorpusMeta | None:
    def note() -> dict[str, Any]:
        return {**ledger.last_note(), **held_out.last_note()}

    if options.tasks.task is not None:
        writer.finish_task(note)
        return None
    if ledger.counts.documents == 0 and held_out.counts.documents:
        raise ConfigError(
            f"All {held_out.counts.documents:,} documents were held out, and some have to stay. Hold out "
            f"fewer."
        )
    if ledger.counts.documents == 0:
        raise _no_document(options.text.dataset, ledger.counts.skipped)
    return writer.finish(num_documents=ledger.counts.documents, note=note(), source=source_hash)


def _no_document(dataset: str, skipped: int) -> SourceError:
    why = f"all of its {skipped:,} records were skipped" if skipped else "it holds no record"
    return SourceError(f"Dataset {dataset!r} gives no document: {why}. Check its files and its split.")


def _warn_about(counts: Counts) -> None:
    """Log what is unusual about the documents of a preparation."""
    if counts.with_eos:
        logger.warning(
            "%s of %s documents hold the end-of-text token in their own text; without an index of document "
            "ends, readers cannot tell it from the end of a document.",
            f"{counts.with_eos:,}",
            f"{counts.documents:,}",
        )
    if counts.skipped:
        logger.warning("%s records without text were skipped.", f"{counts.skipped:,}")
