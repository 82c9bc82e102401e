"""Turn a dataset into a corpus: read, encode, put end-of-text tokens between documents, write."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from tdstream.core.errors import ConfigError, SourceError, TdstreamError
from tdstream.corpus.meta import CorpusMeta
from tdstream.preparation.holdout import HeldOut, holdout_of
from tdstream.preparation.identity import (
    appended_before,
    as_begun,
    base_of,
    check_like_base,
    complete_result,
    identity_of,
    like_base,
    made_from,
    source_hash,
    with_base,
)
from tdstream.preparation.ledger import Ledger, TokenBlock
from tdstream.preparation.options import check_place
from tdstream.preparation.result import Counts, Nobody, Observer, PrepareResult
from tdstream.preparation.tokenizing import Overlapped
from tdstream.preparation.worker_pool import Orders, Pool
from tdstream.text.batches import TextBatch, TextSource
from tdstream.text.encoders.encoder import Encoder
from tdstream.text.encoders.select import Chosen, choosing
from tdstream.text.options import PrepareOptions
from tdstream.text.tokenizer import load_tokenizer, own_tokenizer, packed, plan_corpus
from tdstream.writing.staging import read_unfinished
from tdstream.writing.writer import CorpusWriter

logger = logging.getLogger(__name__)


def warn_of(counts: Counts) -> None:
    """Say what is unusual about the documents of a preparation.

    Args:
        counts: All of them.
    """
    if counts.with_eos:
        logger.warning(
            "%s of %s documents hold the end-of-text token in their own text; without an index of document "
            "ends, readers cannot tell it from the end of a document.",
            f"{counts.with_eos:,}",
            f"{counts.documents:,}",
        )
    if counts.skipped:
        logger.warning("%s records without text were skipped.", f"{counts.skipped:,}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """What a caller has in hand, instead of its name."""

    source: Any = None
    """A list of texts or records, a dataset, a function that returns an iterator, or another iterable."""
    tokenizer: Any = None
    """A Hugging Face tokenizer."""


def prepare_corpus(
    options: PrepareOptions, observer: Observer | None = None, inputs: Inputs | None = None
) -> PrepareResult:
    """Read a dataset, tokenize it and write it as a corpus.

    Args:
        options: What to read, how to tokenize it, where to write it.
        observer: Told how far it is.
        inputs: A dataset and a tokenizer in hand; the options then only say what to call them.

    Returns:
        What was done, over all runs that it took.

    Raises:
        TdstreamError: If that is not possible. An older corpus in the output directory is then as it was, and
            the chunks that were complete are kept for a start with ``resume``.
    """
    check_place(options)
    base = base_of(options)
    options = as_begun(like_base(options, base))
    inputs = inputs or Inputs()
    tokenizer = inputs.tokenizer
    tokenizer = load_tokenizer(options.tokenizer) if tokenizer is None else own_tokenizer(tokenizer)
    plan = plan_corpus(options, tokenizer)
    if inputs.tokenizer is not None:  # It may be from nowhere that could be named.
        plan = replace(plan, tokenizer_name_or_path=str(tokenizer.name_or_path))
    if base is not None:
        check_like_base(options, base, plan)
    complete = complete_result(options, plan, inputs.source)
    if complete is not None:
        return complete
    try:
        with choosing(tokenizer, options.encoder) as chosen, _opened(options, inputs) as source:
            return _prepare(options, inputs, plan, base, chosen, source, observer or Nobody())
    except TdstreamError as error:
        kept = describe_kept(options)
        if kept:
            error.add_hint(f"{kept} are safe: start again with {{resume}} to continue after them.")
        raise


def describe_kept(options: PrepareOptions) -> str:
    """Return the documents and tokens that a later start can continue after, in words; empty if none."""
    try:
        record = read_unfinished(options.output_path, options.task)
    except TdstreamError:
        return ""
    return "" if record is None else f"{record.num_documents:,} documents, {record.num_tokens:,} tokens"


def _opened(options: PrepareOptions, inputs: Inputs) -> TextSource:
    # Importing datasets takes a second, in which the encoder is loaded.
    from tdstream.text.open import open_source  # noqa: PLC0415

    return open_source(options, inputs.source)


def _prepare(
    options: PrepareOptions,
    inputs: Inputs,
    plan: CorpusMeta,
    base: CorpusMeta | None,
    chosen: Chosen,
    source: TextSource,
    observer: Observer,
) -> PrepareResult:
    holdout = holdout_of(options, source)
    identity = identity_of(options, plan, source.facts.files, source.facts.identity)
    before = appended_before(options, base, identity)
    if before is not None:
        return before
    begun = options.resume and read_unfinished(options.output_path, options.task) is not None
    # Nothing is written before there is a first record, unless there may be none.
    batches = source.batches() if begun or options.task is not None else _with_a_first_one(source, options)
    encoder = chosen()
    plan = replace(plan, encoder=encoder.name, made_from=made_from(identity))
    writer = CorpusWriter(
        options.output_path,
        plan,
        overwrite=options.overwrite,
        resume=options.resume,
        identity=with_base(identity, base),
        task=options.task,
        base=base,
    )
    with writer:
        ledger = Ledger.of(writer.entries, source.begin)
        held_out = HeldOut(holdout, writer)
        if writer.entries:
            source.go_to(ledger.place, ledger.counts.records + held_out.counts.documents)
        _check_skipping(options, ledger)
        observer.begin(source.total, ledger.counts + held_out.counts)
        if not writer.is_done:
            with closing(_blocks(batches, encoder, plan, options, inputs)) as blocks:
                _write(blocks, writer, ledger, held_out, observer)
        meta = _finish(options, writer, ledger, held_out, source_hash(identity))
    observer.end()
    warn_of(ledger.counts)
    return PrepareResult(
        output_path=options.output_path,
        counts=ledger.counts,
        meta=meta,
        seconds=ledger.counts.seconds,
        lengths=ledger.lengths,
        val=None if holdout is None else held_out.counts,
    )


def _with_a_first_one(source: TextSource, options: PrepareOptions) -> Iterator[TextBatch]:
    """Return the batches of a source after making sure, before anything is written, that there is one."""
    batches = source.batches()
    first = next(batches, None)
    if first is None:
        raise SourceError(_nothing(options, 0))
    return chain([first], batches)


def _check_skipping(options: PrepareOptions, ledger: Ledger) -> None:
    if ledger.counts.skipped and not options.skip_bad:
        raise ConfigError(
            f"The unfinished preparation in {options.output_path} skipped {ledger.counts.skipped:,} bad "
            f"records, but skip_bad is off now.",
            "Resume it with {skip_bad}, or pass {overwrite} without {resume}.",
        )


def _blocks(
    batches: Iterator[TextBatch],
    encoder: Encoder,
    plan: CorpusMeta,
    options: PrepareOptions,
    inputs: Inputs,
) -> Overlapped | Pool:
    eos_token_id = plan.eos_token_id or 0
    if options.num_proc == 1:
        return Overlapped(batches, encoder, eos_token_id)
    orders = Orders(
        tokenizer=options.tokenizer,
        pickled=b"" if inputs.tokenizer is None else packed(inputs.tokenizer),
        tokenizer_fingerprint=plan.tokenizer_fingerprint,
        encoder=encoder.name,  # Which has been proved; in each worker that need not be done again.
        eos_token_id=eos_token_id,
    )
    return Pool(batches, orders, options.num_proc)


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

    ids, ends = ledger.rest_of(kept)
    writer.append(ids, note, ends=ends)
    ledger.end(kept)
    held_out.end(others)


def _finish(
    options: PrepareOptions, writer: CorpusWriter, ledger: Ledger, held_out: HeldOut, made_from: str
) -> CorpusMeta | None:
    def note() -> dict[str, Any]:
        return {**ledger.last_note(), **held_out.last_note()}

    if options.task is not None:
        writer.finish_task(note)
        return None
    if ledger.counts.documents == 0 and held_out.counts.documents:
        raise ConfigError(
            f"All {held_out.counts.documents:,} documents were held out, and some have to stay. Hold out "
            f"fewer."
        )
    if ledger.counts.documents == 0:
        raise SourceError(_nothing(options, ledger.counts.skipped))
    return writer.finish(num_documents=ledger.counts.documents, note=note(), source=made_from)


def _nothing(options: PrepareOptions, skipped: int) -> str:
    why = f"all of its {skipped:,} records were skipped" if skipped else "it holds no record"
    return f"Dataset {options.dataset!r} gives no document: {why}. Check its files and its split."
