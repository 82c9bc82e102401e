"""`tdstream.count`: the number of documents, tokens and samples of a text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tdstream.core.checks import check_int
from tdstream.core.errors import ConfigError
from tdstream.distributed.topology import find_topology
from tdstream.schedule.windows import DocumentCut, SampleSpec, count_samples
from tdstream.text.options import TextOptions


@dataclass(frozen=True, kw_only=True, slots=True)
class TextCount:
    """Size of a source of text."""

    documents: int
    """Documents, empty ones included."""
    tokens: int
    """Their tokens, with the BOS token, if any, and the end-of-text token of each document."""
    text_bytes: int
    """Bytes of their texts in UTF-8."""
    samples: int | None = None
    """Samples per epoch over all ranks; None without seq_len."""
    batches: int | None = None
    """Batches per epoch on each rank; None without batch_size."""


def count(
    source: Any,
    tokenizer: Any,
    *,
    seq_len: int | None = None,
    batch_size: int | None = None,
    stride: int | None = None,
    cut: str = "stream",
    min_tail_len: int | None = None,
    dp_world_size: int = 1,
    text_field: str = "text",
    split: str = "train",
    data_name: str | None = None,
    data_files: Sequence[str] = (),
    lines: bool = False,
    prepend_bos: bool = False,
    max_samples: int | None = None,
    skip_bad: bool = False,
    encoder: str = "auto",
    name: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> TextCount:
    """Tokenize a source once and count its documents and tokens; later calls read the count from a file.

    Counts are kept per source and tokenizer. Files are recognized by name, size and modification time, other
    sources as in `tdstream.prepare`. A function without a name or ``text_version`` is counted each time.

    Args:
        source: As in `tdstream.prepare`; it must be possible to read it again.
        tokenizer: A name, a path, or a Hugging Face tokenizer, which is copied.
        seq_len: T, to count samples.
        batch_size: B, samples per rank and step, to count batches; requires seq_len.
        stride: As in `build`, like the next two; all three require seq_len.
        cut: "stream" or "document". "document" strips the texts, as `build` does.
        min_tail_len: For cut="document".
        dp_world_size: Ranks that receive different rows.
        text_field: As in `tdstream.prepare`, like the next eight.
        split: Split of the dataset.
        data_name: Configuration of the dataset.
        data_files: Files of the dataset to read.
        lines: One document per line of a text file.
        prepend_bos: Whether each document begins with the tokenizer's BOS token.
        max_samples: Maximum number of records to read.
        skip_bad: Whether to skip records without text.
        encoder: Implementation of the tokenizer; does not change the count.
        name: Name of a source that is no path or name.
        cache_dir: Directory for counts; default `$XDG_CACHE_HOME/tdstream/counts`, or below `~/.cache`.
        progress: Whether rank 0 shows a progress bar on stderr.

    Raises:
        ConfigError: If an option is out of range, or does not apply to the source.
        SourceError: If the text cannot be found or read, or a record has no text.
        TokenizerError: If the tokenizer cannot be found, or has no end-of-text token.
    """
    if source is None or tokenizer is None:
        raise ConfigError("count needs a source and a tokenizer, got None.")
    _check_numbers(seq_len=seq_len, batch_size=batch_size, stride=stride, dp_world_size=dp_world_size)
    windows = _make_document_cut(seq_len, stride, cut, min_tail_len)
    options = TextOptions.of(
        source, tokenizer, name=name, text_field=text_field, split=split, data_name=data_name, lines=lines,
        prepend_bos=prepend_bos, skip_bad=skip_bad, encoder=encoder, strip=windows is not None,
        max_samples=max_samples,
        data_files=(data_files,) if isinstance(data_files, str) else tuple(map(str, data_files)),
    )  # fmt: skip
    # Imported after the checks: datasets and transformers take seconds to load.
    from tdstream.preparation.count_cache import count_text  # noqa: PLC0415
    from tdstream.preparation.result import Bar  # noqa: PLC0415

    visible = progress and find_topology().dp_rank == 0
    with Bar(visible=visible, desc="Counting") as bar:
        found = count_text(options, windows, None if cache_dir is None else Path(cache_dir), bar)
    counted, samples = found.counts, found.windows
    if windows is None and seq_len is not None:
        samples = count_samples(counted.tokens, seq_len, stride)
    return TextCount(
        documents=counted.documents,
        tokens=counted.tokens,
        text_bytes=counted.text_bytes,
        samples=samples,
        batches=None if samples is None or batch_size is None else samples // (batch_size * dp_world_size),
    )


def _check_numbers(**numbers: int | None) -> None:
    for name, number in numbers.items():
        if number is not None:
            check_int(name, number, at_least=1)
    if numbers["batch_size"] is not None and numbers["seq_len"] is None:
        raise ConfigError("batch_size counts batches only together with seq_len.")
    if numbers["dp_world_size"] != 1 and numbers["batch_size"] is None:
        raise ConfigError("dp_world_size counts the batches of a rank only together with batch_size.")


def _make_document_cut(
    seq_len: int | None, stride: int | None, cut: str, min_tail_len: int | None
) -> DocumentCut | None:
    """Return the cut of separate documents; None if documents are joined."""
    if seq_len is None:
        if stride is not None or min_tail_len is not None or cut != "stream":
            raise ConfigError("stride, cut and min_tail_len count samples only together with seq_len.")
        return None
    how = SampleSpec(seq_len=seq_len, stride=stride, cut=cut, min_tail_len=min_tail_len)
    if how.cut == "pack":
        raise ConfigError(
            'cut="pack" makes a number of rows that depends on the lengths of all documents, which a count '
            "does not keep. Prepare the text, then take len(build(...))."
        )
    if how.cut == "document":
        return DocumentCut.of(seq_len, stride, min_tail_len)
    if stride is not None and stride > seq_len + 1:
        raise ConfigError(f"stride must be 1 to seq_len + 1 = {seq_len + 1}, got {stride}.")
    return None
