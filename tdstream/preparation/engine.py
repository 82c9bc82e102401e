"""Turn a dataset into a corpus: read, encode, put end-of-text tokens between documents, write."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Protocol

from tdstream.corpus.meta import CorpusMeta
from tdstream.corpus.staging import check_output
from tdstream.corpus.writer import CorpusWriter
from tdstream.errors import SourceError
from tdstream.preparation.documents import count_empty, count_holding, with_eos
from tdstream.preparation.encoder import Encoder, HfEncoder
from tdstream.preparation.options import PrepareOptions
from tdstream.preparation.records import TextBatch, TextSource
from tdstream.preparation.source import open_source
from tdstream.preparation.tokenizer import load_tokenizer, plan_corpus

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """What has been prepared so far."""

    documents: int = 0
    """Documents written, empty ones too."""
    empty: int = 0
    """Documents among them without a token of their own."""
    skipped: int = 0
    """Records that were left out because they hold no text."""
    with_eos: int = 0
    """Documents whose own text holds the end-of-text token."""
    tokens: int = 0
    """Tokens written, end-of-text tokens too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PrepareResult:
    """What a preparation has done."""

    output_path: Path
    counts: Counts
    meta: CorpusMeta
    seconds: float
    """From the first record to the finished corpus."""


class Observer(Protocol):
    """Somebody who wants to know how far a preparation is."""

    def begin(self, total: int | None) -> None:
        """Take note of the number of records to read; None where unknown."""

    def advance(self, num_records: int, counts: Counts) -> None:
        """Take note of records that were read since the last call, and of all that was done."""

    def end(self) -> None:
        """Take note that the corpus is complete."""


class _Nobody:
    """The observer of a preparation that nobody watches."""

    def begin(self, total: int | None) -> None:
        """Ignore it."""

    def advance(self, num_records: int, counts: Counts) -> None:
        """Ignore it."""

    def end(self) -> None:
        """Ignore it."""


def prepare_corpus(options: PrepareOptions, observer: Observer | None = None) -> PrepareResult:
    """Read a dataset, tokenize it and write it as a corpus.

    Args:
        options: What to read, how to tokenize it, where to write it.
        observer: Told how far it is.

    Returns:
        What was done.

    Raises:
        TdstreamError: If that is not possible. The output directory is then as it was before.
    """
    watcher = observer or _Nobody()
    check_output(options.output_path, overwrite=options.overwrite)
    tokenizer = load_tokenizer(options.tokenizer)
    plan = plan_corpus(options, tokenizer)
    with open_source(options) as source:
        begun = time.monotonic()
        batches = _with_a_first_one(source, options)
        with CorpusWriter(options.output_path, plan, overwrite=options.overwrite) as writer:
            watcher.begin(source.total)
            counts = _write(batches, HfEncoder(tokenizer), writer, plan, watcher)
            if counts.documents == 0:
                raise SourceError(_nothing(options, counts.skipped))
            meta = writer.finish(num_documents=counts.documents)
    watcher.end()
    _report(counts)
    seconds = time.monotonic() - begun
    return PrepareResult(output_path=options.output_path, counts=counts, meta=meta, seconds=seconds)


def _with_a_first_one(source: TextSource, options: PrepareOptions) -> Iterator[TextBatch]:
    """Return the batches of a source after making sure, before anything is written, that there is one."""
    batches = source.batches()
    first = next(batches, None)
    if first is None:
        raise SourceError(_nothing(options, 0))
    return chain([first], batches)


def _write(
    batches: Iterator[TextBatch], encoder: Encoder, writer: CorpusWriter, plan: CorpusMeta, observer: Observer
) -> Counts:
    counts = Counts()
    for batch in batches:
        added = _write_batch(batch, encoder, writer, plan.eos_token_id or 0)
        counts = Counts(
            documents=counts.documents + added.documents,
            empty=counts.empty + added.empty,
            skipped=counts.skipped + added.skipped,
            with_eos=counts.with_eos + added.with_eos,
            tokens=counts.tokens + added.tokens,
        )
        observer.advance(batch.num_records, counts)
    return counts


def _write_batch(batch: TextBatch, encoder: Encoder, writer: CorpusWriter, eos_token_id: int) -> Counts:
    skipped = Counts(skipped=batch.num_records - len(batch.texts))
    if not batch.texts:
        return skipped
    encoded = encoder.encode(batch.texts)
    ids = with_eos(encoded, eos_token_id)
    writer.append(ids)
    return replace(
        skipped,
        documents=len(batch.texts),
        empty=count_empty(encoded),
        with_eos=count_holding(encoded, eos_token_id),
        tokens=len(ids),
    )


def _nothing(options: PrepareOptions, skipped: int) -> str:
    why = f"all of its {skipped:,} records were skipped" if skipped else "it holds no record"
    return f"Dataset {options.dataset!r} gives no document: {why}. Check its files and its split."


def _report(counts: Counts) -> None:
    if counts.with_eos:
        logger.warning(
            "%s of %s documents hold the end-of-text token in their own text; readers cannot tell it "
            "from the end of a document.",
            f"{counts.with_eos:,}",
            f"{counts.documents:,}",
        )
    if counts.skipped:
        logger.warning("%s records without text were skipped.", f"{counts.skipped:,}")
