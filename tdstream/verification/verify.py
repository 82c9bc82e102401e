"""Compare a corpus with what its meta.json promises, and name everything that is wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

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
    promised,
)
from tdstream.verification.roundtrip import LONGEST_SAMPLE, KnownTokenizer, check_round_trip, check_tokenizer
from tdstream.verification.verify_report import Fault, Findings, VerifyReport


def check_checksums(meta: CorpusMeta, contents: Contents, damaged: set[str], findings: Findings) -> None:
    """Compare checksums; a shard that holds the content of another one is named together with it.

    Args:
        meta: What is promised.
        contents: What was read.
        damaged: Shards of a wrong size, whose checksum cannot be right.
        findings: Told about differences.
    """
    promised = {chunk.file: meta.chunk_checksums.get(chunk.file) for chunk in meta.chunks}
    expected = {file: checksum for file, checksum in promised.items() if is_known(checksum)}
    if len(expected) < len(promised):
        missing = len(promised) - len(expected)
        findings.unchecked.append(f"bytes of {missing:,} chunks: there is no checksum for them")
    found = {file: digest for file, digest in contents.digests.items() if file in expected}
    wrong = {file: digest for file, digest in found.items() if digest != expected[file]}
    if len(found) > len(wrong):
        findings.checked.append(f"checksums: {len(found) - len(wrong):,} of {len(promised):,} chunks")
    moved = _check_places(expected, wrong, findings)
    for file in sorted(wrong.keys() - moved - damaged):
        differs = f"does not hold the bytes that were written (their SHA-256 differs from {META_FILE}'s)."
        findings.fault("checksum", file, differs)
    explained = [
        fault for fault in findings.faults if fault.kind in ("truncated", "extended") and fault.file in moved
    ]
    findings.faults = [fault for fault in findings.faults if fault not in explained]


def is_known(checksum: object) -> bool:
    """Return whether a checksum is of the kind that can be compared."""
    return isinstance(checksum, str) and checksum.startswith(ALGORITHM)


def _check_places(expected: dict[str, str | None], wrong: dict[str, str], findings: Findings) -> set[str]:
    """Look for content that lies in the wrong shard; return the shards that hold another one's."""
    owners = defaultdict(list)
    for file, checksum in expected.items():
        owners[checksum].append(file)
    moved = {file: owners[digest] for file, digest in wrong.items() if owners.get(digest)}
    for file, others in sorted(moved.items()):
        partner = next((other for other in others if wrong.get(other) == expected[file]), None)
        if partner is None:
            findings.fault("swapped", file, f"holds the content of {others[0]} instead of its own.")
        elif file < partner:
            findings.fault(
                "swapped",
                file,
                f"has the content of {partner}, and {partner} has its: the two are exchanged.",
            )
    return set(moved)


def check_ids(meta: CorpusMeta, contents: Contents, vocab_size: int, findings: Findings) -> None:
    """Report ids that are not in the vocabulary.

    Args:
        meta: What is promised.
        contents: What was read.
        vocab_size: Ids are to be below; 0 where unknown.
        findings: Told about ids that are not.
    """
    if vocab_size <= 0 or not meta.dtype:
        unknown = "the size of the vocabulary" if meta.dtype else "the type of the tokens"
        findings.unchecked.append(f"range of the ids: {unknown} is not known")
        return
    for file, bad in contents.bad_ids.items():
        message = (
            f"has {bad.count:,} ids outside the vocabulary of {vocab_size:,}; the first is token "
            f"{bad.first:,} of the shard, the highest is {bad.highest:,}."
        )
        findings.fault("id_range", file, message)
    if not contents.bad_ids:
        findings.checked.append(f"all ids are below {vocab_size:,}")


def check_documents(meta: CorpusMeta, contents: Contents, damaged: set[str], findings: Findings) -> None:
    """Compare the end-of-text tokens with the number of documents, and look at the corpus's last token.

    Args:
        meta: What is promised.
        contents: What was read.
        damaged: Shards whose tokens were not counted.
        findings: Told about differences.
    """
    if contents.documents is None:
        unknown = "end-of-text id" if meta.dtype else "type of the tokens"
        findings.unchecked.append(f"ends of documents: the {unknown} is not known")
        return
    _check_last_token(meta, contents, findings)
    if damaged:
        findings.unchecked.append("number of end-of-text tokens: a damaged chunk hides some")
    elif meta.num_documents < 0:
        findings.unchecked.append(
            f"number of end-of-text tokens: {META_FILE} does not say how many documents"
        )
    else:
        _check_count(contents.documents.eos_tokens, meta.num_documents, findings)


def _check_last_token(meta: CorpusMeta, contents: Contents, findings: Findings) -> None:
    if contents.last_token is None:
        return
    if contents.last_token == meta.eos_token_id:
        findings.checked.append("the corpus ends with an end-of-text token")
        return
    wrong = f"ends with id {contents.last_token:,}, not with the end-of-text id {meta.eos_token_id:,}."
    findings.fault("last_token", meta.chunks[-1].file, wrong)


def _check_count(eos_tokens: int, num_documents: int, findings: Findings) -> None:
    said = f"{eos_tokens:,} end-of-text tokens for {num_documents:,} documents"
    if eos_tokens < num_documents:
        findings.fault("eos_count", "", f"There are {said}: {num_documents - eos_tokens:,} are missing.")
        return
    findings.checked.append(said)
    if eos_tokens > num_documents:
        findings.notes.append(
            f"There are {said}: unless a document's own text holds the end-of-text token, "
            f"{META_FILE} counts wrongly."
        )


__all__ = ["Fault", "VerifyReport", "verify_corpus"]

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
    """Examine a corpus: sizes, checksums, ids, ends of documents, and whether samples decode.

    Args:
        directory: The corpus directory.
        fast: Compare names and sizes only.
        tokenizer: A Hugging Face tokenizer to decode samples with.
        tokenizer_fingerprint: Which one it is, as meta.json spells it.
        without_tokenizer: Why there is no tokenizer, for the report.
        samples: DocumentCounts to decode, chosen at random.
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
