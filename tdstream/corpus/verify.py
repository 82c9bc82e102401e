"""Compare a corpus with what its meta.json promises, and name everything that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tdstream.corpus.checks import check_checksums, check_documents, check_ids, is_known
from tdstream.corpus.contents import Contents, ContentsReader
from tdstream.corpus.documents import DocumentScan
from tdstream.corpus.index_checks import check_index, check_index_files
from tdstream.corpus.inventory import (
    check_dtype,
    check_held_out,
    check_sizes,
    check_staging,
    file_sizes,
    promised,
)
from tdstream.corpus.meta import DTYPES, META_FILE, CorpusMeta
from tdstream.corpus.report import Fault, Findings, Report
from tdstream.corpus.roundtrip import LONGEST_SAMPLE, KnownTokenizer, check_round_trip, check_tokenizer
from tdstream.corpus.tokens import PIECE_BYTES, TokenFiles

__all__ = ["Fault", "Report", "verify_corpus"]

DEFAULT_SAMPLES = 16


def verify_corpus(
    directory: str | Path,
    *,
    fast: bool = False,
    tokenizer: Any = None,
    tokenizer_fingerprint: str = "",
    without_tokenizer: str = "no tokenizer was given",
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
    dtype: str | None = None,
    eos_token_id: int | None = None,
    piece_bytes: int = PIECE_BYTES,
    advance: Callable[[int], object] | None = None,
) -> Report:
    """Examine a corpus: sizes, checksums, ids, ends of documents, and whether samples decode.

    Args:
        directory: The corpus directory.
        fast: Compare names and sizes only.
        tokenizer: A Hugging Face tokenizer to decode samples with.
        tokenizer_fingerprint: Which one it is, as meta.json spells it.
        without_tokenizer: Why there is no tokenizer, for the report.
        samples: Documents to decode, chosen at random.
        seed: Decides which.
        dtype: The storage type, for bare shards without a meta.json.
        eos_token_id: The end-of-text id, where meta.json does not say it.
        piece_bytes: Bytes to read at once.
        advance: Told the number of bytes after each piece.

    Returns:
        What was found, and what could not be checked.

    Raises:
        CorpusNotFoundError: If there is nothing of a corpus.
        ConfigError: If an argument contradicts meta.json.
    """
    directory, findings = Path(directory), Findings()
    sizes = file_sizes(directory)
    check_staging(directory, findings)
    meta = promised(directory, sizes, dtype, eos_token_id, findings)
    if meta is None:
        findings.unchecked.append(f"the shards: {META_FILE} does not say what they should be")
        return _report(directory, fast, None, None, findings)
    meta = check_dtype(meta, sizes, findings)
    damaged = check_sizes(meta, sizes, findings)
    if META_FILE in sizes:
        findings.checked.append(f"sizes: {len(meta.chunks) - len(damaged):,} of {len(meta.chunks):,} chunks")
    check_held_out(directory, meta, findings)
    indexed = check_index_files(meta, sizes, findings)
    if fast:
        findings.unchecked.append("contents of the shards: only names and sizes were asked for")
        return _report(directory, fast, meta, None, findings)
    meta = _with_eos(meta, eos_token_id, tokenizer)
    known = (
        None if tokenizer is None else KnownTokenizer(tokenizer=tokenizer, fingerprint=tokenizer_fingerprint)
    )
    reader = ContentsReader(
        directory=directory,
        meta=meta,
        sizes=sizes,
        damaged=damaged,
        indexed=indexed,
        vocab_size=meta.vocab_size or (known.num_ids if known else 0),
        piece_bytes=piece_bytes,
        advance=advance,
    )
    contents = reader.read(_scan(meta, samples, seed), findings)
    _check_contents(reader, contents, known, findings)
    if known is None:
        findings.unchecked.append(f"decoding of documents: {without_tokenizer}")
    return _report(directory, fast, meta, contents, findings)


def _check_contents(
    reader: ContentsReader, contents: Contents, known: KnownTokenizer | None, findings: Findings
) -> None:
    check_checksums(reader.meta, contents, reader.damaged, findings)
    check_ids(reader.meta, contents, reader.vocab_size, findings)
    check_documents(reader.meta, contents, reader.damaged, findings)
    check_index(reader.meta, contents.ends, _faulty(reader.meta, contents, findings), findings)
    if known is not None:
        check_tokenizer(reader.meta, known, findings)
        _check_samples(reader.directory, reader.meta, contents, known, findings)


def _faulty(meta: CorpusMeta, contents: Contents, findings: Findings) -> set[str]:
    """Return the shards that hold what they should not, as far as is known."""
    expected = {file: checksum for file, checksum in meta.chunk_checksums.items() if is_known(checksum)}
    other = {file for file, digest in contents.digests.items() if expected.get(file, digest) != digest}
    return other | {fault.file for fault in findings.faults}


def _with_eos(meta: CorpusMeta, eos_token_id: int | None, tokenizer: Any) -> CorpusMeta:
    """Fill in the end-of-text id where meta.json does not say it."""
    if meta.eos_token_id is not None:
        return meta
    if eos_token_id is None and tokenizer is not None:
        eos_token_id = tokenizer.eos_token_id
    return replace(meta, eos_token_id=eos_token_id)


def _scan(meta: CorpusMeta, samples: int, seed: int) -> DocumentScan | None:
    if meta.eos_token_id is None or not meta.dtype:
        return None
    return DocumentScan(meta.eos_token_id, samples=samples, seed=seed, longest=LONGEST_SAMPLE)


def _check_samples(
    directory: Path, meta: CorpusMeta, contents: Contents, known: KnownTokenizer, findings: Findings
) -> None:
    """Decode those of the chosen documents that lie in shards without a fault."""
    if contents.documents is None:
        findings.unchecked.append("decoding of documents: their ends are not known")
        return
    files = TokenFiles(directory, DTYPES[meta.dtype], meta.chunks)
    faulty = {fault.file for fault in findings.faults}
    sound = [
        document
        for document in contents.documents.chosen
        if faulty.isdisjoint(files.files_of(document.first, document.tokens))
    ]
    if sound:
        check_round_trip(files, sound, known, findings)
    else:
        findings.unchecked.append("decoding of documents: none was asked for, or none is undamaged")


def _report(
    directory: Path, fast: bool, meta: CorpusMeta | None, contents: Contents | None, findings: Findings
) -> Report:
    documents = contents.documents if contents else None
    return Report(
        directory=str(directory),
        fast=fast,
        chunks=len(meta.chunks) if meta else 0,
        tokens=meta.total_tokens if meta else 0,
        eos_tokens=documents.eos_tokens if documents else None,
        faults=tuple(findings.faults),
        notes=tuple(findings.notes),
        checked=tuple(findings.checked),
        unchecked=tuple(findings.unchecked),
    )
