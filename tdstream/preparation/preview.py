"""What a preparation reads and writes, in sentences, with estimates from a sample of the text."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tdstream.core.errors import TdstreamError
from tdstream.corpus.document_index import ENDS_DTYPE
from tdstream.corpus.meta import DTYPES, CorpusMeta
from tdstream.preparation.options import PrepareOptions
from tdstream.text.batches import TextBatch, TextBatches
from tdstream.text.encoders.encoder import Encoder

logger = logging.getLogger(__name__)

_SEGMENT_BYTES = 4 << 20  # of text that are read of a segment, more only up to where the reader reads on
_ENCODED_TEXTS, _ENCODED_BYTES = 200, 200_000  # of a segment
_SHOWN = 100  # characters of the first text


@dataclass
class Sample:
    """Sums over some records."""

    first: str | None = None
    """The first text."""
    records: int = 0
    documents: int = 0
    text_bytes: int = 0
    file_bytes: int = 0
    """Bytes of the files that held them, compressed as they are; 0 if unknown."""
    encoded: int = 0
    """Texts that were encoded."""
    encoded_bytes: int = 0
    tokens: int = 0
    """Of the texts that were encoded."""

    def add_tokens(self, texts: list[str], encoder: Encoder) -> None:
        """Encode some of the texts, evenly spaced."""
        chosen: list[str] = []
        size = 0
        for text in texts[:: max(1, len(texts) // _ENCODED_TEXTS)]:
            if size < _ENCODED_BYTES:
                chosen.append(text)
                size += len(text.encode())
        self.encoded += len(chosen)
        self.encoded_bytes += size
        self.tokens += len(encoder.encode(chosen).ids) if chosen else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """The expected size of a corpus."""

    documents: float
    tokens: float
    """With the BOS token, if any, and the end-of-text token of each document."""
    num_bytes: float
    """Room that the shards, and the index of document ends, take."""


def take_sample(source: TextBatches, encoder: Encoder, segments: int) -> Sample:
    """Read the beginnings of some segments, evenly spaced; the text keeps its place.

    Where text can be read only once, the first records are taken.
    """
    sample = Sample()
    for segment in source.choose_segments(segments):
        texts: list[str] = []
        read = 0
        for batch, file_bytes in _read_part(source, segment):
            read = file_bytes
            texts += batch.texts
            sample.records += batch.num_records
            sample.documents += len(batch.texts)
            sample.text_bytes += int(batch.sizes.sum())
        sample.file_bytes += read
        sample.first = texts[0] if sample.first is None and texts else sample.first
        sample.add_tokens(texts, encoder)
    return sample


def _read_part(source: TextBatches, segment: int) -> Iterator[tuple[TextBatch, int]]:
    """Yield the first batches of a segment, each with the bytes of files up to where it ends.

    Where only bytes tell how much there is, it ends between two blocks that the reader takes of a file.
    """
    by_bytes = source.total is None
    text_bytes, last = 0, None
    begin = source.find_begin(segment)
    with source.open_segment(segment) as part:
        for batch in part.batches():
            if text_bytes >= _SEGMENT_BYTES and not (by_bytes and batch.bytes_read == last):
                break
            text_bytes, last = text_bytes + int(batch.sizes.sum()), batch.bytes_read
            yield batch, 0 if last is None else last - begin


def make_estimate(sample: Sample, source: TextBatches, plan: CorpusMeta) -> Estimate | None:
    """Scale a sample by records, or by bytes of the files; None if nothing says how much there is."""
    if source.total is not None and sample.records:
        factor = source.total / sample.records
    elif source.total_bytes is not None and sample.file_bytes:
        factor = source.total_bytes / sample.file_bytes
    else:
        return None
    documents = sample.documents * factor
    per_byte = sample.tokens / sample.encoded_bytes if sample.encoded_bytes else 0.0
    marks = 1 if plan.bos_token_id is None else 2
    tokens = sample.text_bytes * factor * per_byte + marks * documents
    index = documents * ENDS_DTYPE.itemsize if plan.doc_index else 0
    return Estimate(
        documents=documents, tokens=tokens, num_bytes=tokens * DTYPES[plan.dtype].itemsize + index
    )


def describe_input(options: PrepareOptions, source: TextBatches, sample: Sample) -> list[str]:
    """Return sentences about the records and their text."""
    facts, field = source.facts, options.text.text_field
    size = f"{len(facts.files):,} {'file' if len(facts.files) == 1 else 'files'}" if facts.files else "Text"
    if facts.num_bytes is not None:
        size += f" of {show_bytes(facts.num_bytes)}"
    if source.total is not None:
        size += f", {source.total:,} records" + " at most" * (options.text.max_samples is not None)
    fields = f" Fields: {', '.join(facts.columns)}; the text is in {field}." if facts.columns else ""
    lines = [f"{size}.{fields}"]
    if sample.first is not None:
        text = sample.first
        lines.append(f"First text: {text[:_SHOWN]!r}{' ...' * (len(text) > _SHOWN)}")
    return lines


def describe_tokens(plan: CorpusMeta, tokenizer: Any) -> str:
    """Return a sentence about the tokenizer."""
    name = plan.tokenizer_name_or_path or type(tokenizer).__name__
    bos = "" if plan.bos_token_id is None else f"{tokenizer.bos_token!r} ({plan.bos_token_id}) begins and "
    return (
        f"Tokenizer {name}: {plan.vocab_size:,} ids, stored as {plan.dtype}; "
        f"{bos}{tokenizer.eos_token!r} ({plan.eos_token_id}) ends each document."
    )


def describe_estimate(estimate: Estimate | None, sample: Sample, output: Path) -> str:
    """Return a sentence about the size of the corpus, and the room on its disk."""
    free = shutil.disk_usage(_find_existing(output)).free
    if estimate is None:
        return f"How much text there is cannot be told before it is read. {show_bytes(free)} are free."
    sentence = (
        f"Estimated from {sample.encoded:,} texts: {show_count(estimate.tokens)} tokens in "
        f"{show_count(estimate.documents)} documents, {show_bytes(estimate.num_bytes)} in {output}; "
        f"{show_bytes(free)} are free."
    )
    return sentence + " This will not fit." * (estimate.num_bytes > free)


def log_preview(
    options: PrepareOptions,
    source: TextBatches,
    tokenizer: Any,
    plan: CorpusMeta,
    encoder: Encoder,
    segments: int,
) -> None:
    """Log what a preparation reads and writes, from a sample of so many segments.

    Raises what reading raises.
    """
    sample = take_sample(source, encoder, segments)
    for line in (*describe_input(options, source, sample), describe_tokens(plan, tokenizer)):
        logger.info(line)
    logger.info(describe_estimate(make_estimate(sample, source, plan), sample, options.output.output_path))


def log_preview_if_shown(
    options: PrepareOptions, source: TextBatches, tokenizer: Any, plan: CorpusMeta, encoder: Encoder
) -> bool:
    """Log a preview from a small sample, unless nobody reads the log or the text can be read only once.

    Returns whether a sample was read.
    """
    if not (logger.isEnabledFor(logging.INFO) and source.is_on_disk):
        return False
    try:
        log_preview(options, source, tokenizer, plan, encoder, segments=2)
    except TdstreamError as error:  # which will be raised when its record is reached
        logger.debug("No preview: %s", error)
    return True


def show_bytes(number: float) -> str:
    """Return a number of bytes with its unit: "1.2 GB"."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:,.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


def show_count(number: float) -> str:
    """Return an estimated number: "about 1,230,000", with three digits that count."""
    whole = round(number)
    digits = max(len(str(whole)) - 3, 0)
    return f"about {round(whole, -digits):,}"


def _find_existing(path: Path) -> Path:
    """Return a path, or the nearest directory above it that exists."""
    path = Path(os.path.abspath(path))
    return next(place for place in (path, *path.parents) if place.exists())
