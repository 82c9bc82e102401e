"""Verification of a corpus against its meta.json, with every fault named."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tdstream.core.words import count_of
from tdstream.corpus.meta import DTYPES, META_FILE, CorpusMeta
from tdstream.corpus.shard_reader import PIECE_BYTES, TokenFiles
from tdstream.verification.contents import ALGORITHM, Contents, ContentsReader, DocumentScan
from tdstream.verification.index_checks import check_index, check_index_files
from tdstream.verification.inventory import (
    check_dtype,
    check_held_out,
    check_sizes,
    check_staging,
    file_sizes,
    find_meta,
)
from tdstream.verification.roundtrip import LONGEST_SAMPLE, KnownTokenizer, check_round_trip, check_tokenizer
from tdstream.verification.verify_report import Findings, VerifyReport

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
) -> VerifyReport:
    """Verify sizes, checksums, ids, document ends, and the round trip of random documents.

    `fast` compares names and sizes only. `without_tokenizer` is the reason why there is no tokenizer. `dtype`
    and `eos_token_id` are those of bare shards. `advance` is called with the bytes of each piece.
    """
    directory, findings = Path(directory), Findings()
    sizes = file_sizes(directory)
    check_staging(directory, findings)
    meta = find_meta(directory, sizes, dtype, eos_token_id, findings)
    if meta is None:
        findings.unchecked.append(f"the shards: {META_FILE} does not say what they should be")
        return _report(directory, fast, None, None, findings)
    meta = check_dtype(meta, sizes, findings)
    damaged = check_sizes(meta, sizes, findings)
    check_held_out(directory, meta, findings)
    indexed = check_index_files(meta, sizes, findings)
    if fast:
        findings.unchecked.append("contents of the shards: only names and sizes were requested")
        return _report(directory, fast, meta, None, findings)
    known = None
    if tokenizer is not None:
        known = KnownTokenizer(tokenizer=tokenizer, fingerprint=tokenizer_fingerprint)
    if meta.eos_token_id is None:
        known_eos = tokenizer.eos_token_id if eos_token_id is None and known else eos_token_id
        meta = replace(meta, eos_token_id=known_eos)
    reader = ContentsReader(
        directory=directory,
        meta=meta,
        sizes=sizes,
        damaged=damaged,
        indexed=indexed,
        vocab_size=_count_ids(meta, known),
        piece_bytes=piece_bytes,
        advance=advance,
    )
    scan = None
    if meta.eos_token_id is not None and meta.dtype:
        scan = DocumentScan(meta.eos_token_id, samples=samples, seed=seed, longest=LONGEST_SAMPLE)
    contents = reader.read(scan, findings)
    _check_contents(reader, contents, findings)
    if known is None:
        findings.unchecked.append(f"decoding of documents: {without_tokenizer}")
    else:
        check_tokenizer(meta, known, findings)
        _check_samples(directory, meta, contents, known, findings)
    return _report(directory, fast, meta, contents, findings)


def _count_ids(meta: CorpusMeta, known: KnownTokenizer | None) -> int:
    """Return the number below which all ids must be; 0 if unknown."""
    if known is None or (meta.vocab_size and known.fingerprint != meta.tokenizer_fingerprint):
        return meta.vocab_size
    # Earlier versions counted the tokens of a vocabulary, whose ids may have holes.
    return max(meta.vocab_size, known.num_ids)


def _report(
    directory: Path, fast: bool, meta: CorpusMeta | None, contents: Contents | None, findings: Findings
) -> VerifyReport:
    documents = contents.documents if contents else None
    return VerifyReport(
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


def _check_contents(reader: ContentsReader, contents: Contents, findings: Findings) -> None:
    meta = reader.meta
    stated = {shard.file: meta.chunk_checksums.get(shard.file) for shard in meta.chunks}
    expected = {
        file: sha for file, sha in stated.items() if isinstance(sha, str) and sha.startswith(ALGORITHM)
    }
    _check_checksums(meta, expected, contents, reader.damaged, findings)
    _check_ids(meta, contents, reader.vocab_size, findings)
    _check_documents(meta, contents, reader.damaged, findings)
    faulty = {file for file, digest in contents.digests.items() if expected.get(file, digest) != digest}
    faulty |= {fault.file for fault in findings.faults}
    check_index(meta, contents.ends, faulty, findings)


def _check_checksums(
    meta: CorpusMeta, expected: dict[str, str], contents: Contents, damaged: set[str], findings: Findings
) -> None:
    """Compare checksums; report shards that hold each other's content as swapped."""
    missing = len({shard.file for shard in meta.chunks}) - len(expected)
    if missing:
        findings.unchecked.append(f"bytes of {count_of(missing, 'shard')}: there is no checksum for them")
    found = {file: digest for file, digest in contents.digests.items() if file in expected}
    wrong = {file: digest for file, digest in found.items() if digest != expected[file]}
    findings.check_share("checksums", len(found) - len(wrong), len(expected) + missing)
    moved = _check_swapped(expected, wrong, findings)
    for file in sorted(wrong.keys() - moved - damaged):
        differs = f"does not hold the bytes that were written: its SHA-256 differs from {META_FILE}'s."
        findings.fault("checksum", file, differs)
    findings.faults = [
        fault
        for fault in findings.faults
        if not (fault.kind in ("truncated", "extended") and fault.file in moved)  # explained by the swap
    ]


def _check_swapped(expected: dict[str, str], wrong: dict[str, str], findings: Findings) -> set[str]:
    """Report content in the wrong shard; return the shards that hold another shard's content."""
    owners = defaultdict(list)
    for file, checksum in expected.items():
        owners[checksum].append(file)
    moved = {file: owners[digest] for file, digest in wrong.items() if digest in owners}
    for file, others in sorted(moved.items()):
        partner = next((other for other in others if wrong.get(other) == expected[file]), None)
        if partner is None:
            findings.fault("swapped", file, f"holds the content of {others[0]} instead of its own.")
        elif file < partner:
            swapped = f"has the content of {partner}, and {partner} has its: the two are swapped."
            findings.fault("swapped", file, swapped)
    return set(moved)


def _check_ids(meta: CorpusMeta, contents: Contents, vocab_size: int, findings: Findings) -> None:
    if vocab_size <= 0 or not meta.dtype:
        unknown = "the size of the vocabulary" if meta.dtype else "the type of the tokens"
        findings.unchecked.append(f"range of the ids: {unknown} is unknown")
        return
    for file, bad in contents.bad_ids.items():
        outside = (
            f"has {bad.count:,} ids outside the vocabulary of {vocab_size:,}; the first is token "
            f"{bad.first:,} of the shard, the highest is {bad.highest:,}."
        )
        findings.fault("id_range", file, outside)
    if not contents.bad_ids:
        findings.checked.append(f"all ids are below {vocab_size:,}")


def _check_documents(meta: CorpusMeta, contents: Contents, damaged: set[str], findings: Findings) -> None:
    """Check the last token of the corpus, and the number of end-of-text tokens."""
    if contents.documents is None:
        unknown = "end-of-text id" if meta.dtype else "type of the tokens"
        findings.unchecked.append(f"document ends: the {unknown} is unknown")
        return
    if contents.last_token == meta.eos_token_id:
        findings.checked.append("the corpus ends with an end-of-text token")
    elif meta.converted_from:
        findings.notes.append("The corpus does not end with an end-of-text token; its source did not.")
    elif contents.last_token is not None:
        wrong = f"ends with id {contents.last_token:,}, not with the end-of-text id {meta.eos_token_id:,}."
        findings.fault("last_token", meta.chunks[-1].file, wrong)
    if damaged:
        findings.unchecked.append("number of end-of-text tokens: a damaged shard hides some")
    elif meta.converted_from:
        found = count_of(contents.documents.eos_tokens, "end-of-text token")
        findings.unchecked.append(
            f"number of end-of-text tokens: {found}; documents of other tools may end without one"
        )
    elif meta.num_documents < 0:
        findings.unchecked.append(f"number of end-of-text tokens: {META_FILE} lacks the number of documents")
    else:
        in_each = 2 if meta.bos_token_id == meta.eos_token_id else 1  # one token may be BOS as well
        _check_eos_count(contents.documents.eos_tokens, meta.num_documents, in_each, findings)


def _check_eos_count(eos_tokens: int, num_documents: int, in_each: int, findings: Findings) -> None:
    found = f"{count_of(eos_tokens, 'end-of-text token')} for {count_of(num_documents, 'document')}"
    missing = in_each * num_documents - eos_tokens
    if missing > 0:
        findings.fault("eos_count", "", f"Found {found}: {missing:,} missing.")
        return
    findings.checked.append(found)
    if missing < 0:
        findings.notes.append(
            f"Found {found}: unless a document's own text holds the end-of-text token, the count in "
            f"{META_FILE} is wrong."
        )


def _check_samples(
    directory: Path, meta: CorpusMeta, contents: Contents, known: KnownTokenizer, findings: Findings
) -> None:
    """Check the round trip of the sampled documents that lie in sound shards."""
    if contents.documents is None:
        findings.unchecked.append("decoding of documents: their ends are unknown")
        return
    files = TokenFiles(directory, DTYPES[meta.dtype], meta.chunks)
    faulty = {fault.file for fault in findings.faults}
    sound = [
        document
        for document in contents.documents.chosen
        if faulty.isdisjoint(files.find_files(document.first, document.tokens))
    ]
    if sound:
        check_round_trip(files, sound, known, findings, meta.bos_token_id)
    else:
        findings.unchecked.append("decoding of documents: none was asked for, or all documents are damaged")
