"""`tdstream.convert`: token files of other tools, also those that cannot be mapped, as a corpus."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tdstream.core.checks import check_int
from tdstream.core.errors import ConfigError, CorpusError, OutputError, TdstreamError
from tdstream.core.progress_bar import ProgressBar
from tdstream.corpus.document_ends import Ends
from tdstream.corpus.meta import DOC_INDEX, META_FILE, CorpusMeta, read_meta
from tdstream.exchange.row_files import RowFiles, open_rows
from tdstream.exchange.source import describe_path
from tdstream.exchange.token_blocks import list_blocks
from tdstream.formats.description import (
    STORED_AS,
    DelimiterEnds,
    Description,
    EndsRule,
    FormatOptions,
    IndexedEnds,
    UnknownEnds,
    delimiter,
)
from tdstream.formats.identity import identify
from tdstream.writing.staging import check_output, read_unfinished
from tdstream.writing.writer import CorpusWriter


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvertResult:
    """What a conversion made."""

    output_path: Path
    meta: CorpusMeta
    """The meta.json of the corpus."""
    note: str = ""
    """Why there is no document index; "" if there is one."""
    was_complete: bool = False
    """Whether an earlier run had completed it."""


def convert(
    source: str | os.PathLike[str],
    output_path: str | os.PathLike[str],
    *,
    resume: bool = False,
    overwrite: bool = False,
    dtype: Any = None,
    eos_token_id: int | None = None,
    eos_first: bool | None = None,
    format: str | None = None,  # noqa: A002 - as build's
    column: str | None = None,
    tokenizer: str = "",
    tokens_per_chunk: int = 100_000_000,
    progress: bool = False,
) -> ConvertResult:
    """Write token files of another tool as a corpus, as ``tdstream convert`` does.

    It takes what `build` reads, and what cannot be mapped: compressed MDS and litData, MDS rows of any
    length, parquet and compressed Arrow with lists of ids, and caches of Levanter. Nothing is unpickled.
    Every token is written exactly once, no matter how often the program is killed and started again with
    ``resume=True``.

    Args:
        source: Token files: a directory, a file, a prefix or a pattern.
        output_path: Directory for the corpus.
        resume: Continue an unfinished conversion; always safe.
        overwrite: Replace an older corpus.
        dtype: Type of the source's tokens, if the files do not tell.
        eos_token_id: The token that marks documents.
        eos_first: Whether it stands first in each document.
        format: Format of the files, if they could be of several.
        column: The column of token ids, if it has another name than input_ids, tokens or token_ids.
        tokenizer: Name or path of the tokenizer, to be noted.
        tokens_per_chunk: Tokens of each shard.
        progress: Whether to show a progress bar on stderr.

    Returns:
        Where the corpus is, and its meta.json.

    Raises:
        ConfigError: If the files do not tell what has to be known.
        CorpusNotFoundError: If there is nothing.
        CorpusError: If the files are damaged, encrypted, pickled, or hold something else than ids.
        OutputError: If output_path is in use, holds something else, or is on a full disk.
    """
    told, output = FormatOptions.of(format, dtype, eos_token_id, eos_first), Path(output_path)
    check_int("tokens_per_chunk", tokens_per_chunk, at_least=1)
    check_output(output, overwrite=overwrite, resume=resume)
    found = _open(source, told, column)
    rule = _find_rule(found, told, Path(source))
    plan = _make_plan(found, rule, told, tokenizer, tokens_per_chunk)
    identity = _make_identity(found, plan, told, column)
    plan = replace(plan, made_from={"convert": _hash(identity)})
    if resume and not overwrite and (output / META_FILE).exists():
        return _find_complete(output, identity)
    note = rule.ask if isinstance(rule, UnknownEnds) else ""
    total = None if isinstance(found, RowFiles) else sum(piece.tokens for piece in found.pieces)
    try:
        with (
            CorpusWriter(output, plan, overwrite=overwrite, resume=resume, identity=identity) as writer,
            ProgressBar(
                total=total, initial=writer.num_tokens, unit=" tok", unit_scale=True, dynamic_ncols=True,
                desc="Converting", disable=not progress,
            ) as bar,
        ):  # fmt: skip
            meta = _write(found, rule, writer, plan.dtype, bar.update)
    except TdstreamError as error:
        kept = describe_kept(output)
        if kept and "overwrite" not in error.options:
            error.add_hint("{kept}: start again with {resume} to continue after them.", kept=kept)
        raise
    return ConvertResult(output_path=output, meta=meta, note=note)


def describe_kept(output: Path) -> str:
    """Describe the tokens that a resumed run keeps; "" if there are none."""
    try:
        record = read_unfinished(output)
    except TdstreamError:
        return ""
    return "" if record is None else f"{record.num_tokens:,} tokens are safe"


def _open(source: str | os.PathLike[str], told: FormatOptions, column: str | None) -> Description | RowFiles:
    """Return the files as described, if they can be mapped, else their rows."""
    if column is None:
        try:
            return describe_path(source, told)
        except (CorpusError, ConfigError) as error:
            found = open_rows(Path(source).absolute(), told, column) if told.format is None else None
            if found is None:
                raise error from None
            return found
    rows = open_rows(Path(source).absolute(), told, column)
    if rows is None:
        raise ConfigError(f"{source} has no columns.", "Leave {column} out.")
    return rows


def _find_rule(found: Description | RowFiles, told: FormatOptions, path: Path) -> EndsRule | None:
    """Return what tells documents; None if rows are documents."""
    if isinstance(found, Description):
        return found.ends
    if not found.are_blocks:
        return None
    return delimiter(told, None, first=None, what=f"{path}, whose rows are blocks,")


def _make_plan(
    found: Description | RowFiles, rule: EndsRule | None, told: FormatOptions, tokenizer: str, chunk: int
) -> CorpusMeta:
    facts = {} if isinstance(found, RowFiles) else found.facts
    stored = found.dtype if isinstance(found, RowFiles) else found.stored_dtype
    eos = told.eos_token_id
    if eos is None:
        eos = rule.token_id if isinstance(rule, DelimiterEnds) else facts.get("eos_token_id")
    return CorpusMeta(
        dtype="uint16" if STORED_AS[stored].itemsize <= 2 else "uint32",
        chunks=(),
        eos_token_id=eos,
        tokenizer_name_or_path=tokenizer or str(facts.get("tokenizer_name_or_path", "")),
        vocab_size=int(facts.get("vocab_size") or 0),
        tokens_per_chunk=chunk,
        doc_index={} if isinstance(rule, UnknownEnds) else DOC_INDEX,
        converted_from=identify(found) if isinstance(found, Description) else {"format": found.format},
    )


def _make_identity(
    found: Description | RowFiles, plan: CorpusMeta, told: FormatOptions, column: str | None
) -> dict[str, Any]:
    """Return all that decides the tokens and their documents, in JSON types."""
    if isinstance(found, RowFiles):
        files: list[Any] = [str(path) for path in found.files]
    else:
        files = [piece.path for piece in found.pieces]
        files += found.ends.files if isinstance(found.ends, IndexedEnds) else ()
    versions = [[Path(file).name, (status := os.stat(file)).st_size, status.st_mtime_ns] for file in files]
    return {
        "convert": 1,
        "format": found.format,
        "dtype": plan.dtype,
        "column": column,
        "eos_token_id": plan.eos_token_id,
        "eos_first": told.eos_first,
        "tokens_per_chunk": plan.tokens_per_chunk,
        "tokenizer": plan.tokenizer_name_or_path,
        "files": hashlib.sha256(json.dumps(versions).encode()).hexdigest()[:16],
    }


def _hash(identity: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def _find_complete(output: Path, identity: dict[str, Any]) -> ConvertResult:
    """Return the corpus in a directory, if it is the one that is asked for."""
    meta = read_meta(output / META_FILE)
    if meta.made_from != {"convert": _hash(identity)}:
        raise OutputError(
            f"{output} holds a corpus of another source, or with other options.",
            "Pass {overwrite} to replace it, or choose another output path.",
        )
    return ConvertResult(output_path=output, meta=meta, was_complete=True)


class _Documents:
    """The documents written so far, as the journal's notes on shards count them."""

    def __init__(self, writer: CorpusWriter) -> None:
        notes = [entry.note for entry in writer.entries]
        self.number = self._noted = sum(int(note.get("documents", 0)) for note in notes)

    def note(self, ends: Ends, num_written: int) -> dict[str, Any]:
        """Return the note on a shard that is full when `num_written` tokens of a block are written."""
        here = int(np.searchsorted(ends, num_written, side="right"))
        in_shard = self.number + here - self._noted
        self._noted += in_shard
        return {"documents": in_shard}


def _write(
    found: Description | RowFiles,
    rule: EndsRule | None,
    writer: CorpusWriter,
    dtype: str,
    advance: Callable[[int], object],
) -> CorpusMeta:
    """Write what is missing; return the meta.json."""
    documents, limit = _Documents(writer), int(np.iinfo(dtype).max)
    for ids, ends in list_blocks(found, rule, writer.num_tokens):
        begin = writer.num_tokens
        _check_ids(ids, limit, begin)
        writer.append(ids, partial(documents.note, ends), ends=ends)
        documents.number += len(ends)
        advance(len(ids))
    note = documents.note(np.zeros(0, np.int64), 0)
    number = -1 if isinstance(rule, UnknownEnds) else documents.number
    return writer.finish(num_documents=number, note=note)


def _check_ids(ids: Any, limit: int, begin: int) -> None:
    """Refuse ids that no shard can hold."""
    lowest, highest = int(ids.min()), int(ids.max())
    if lowest < 0 or highest > limit:
        number = lowest if lowest < 0 else highest
        place = begin + int((ids == number).argmax())
        raise CorpusError(
            f"The source holds the id {number:,} (token {place:,}); ids are 0 to {limit:,}. It is no plain "
            f"stream of token ids, or its type is another."
        )
