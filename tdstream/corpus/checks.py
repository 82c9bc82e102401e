"""Compare what reading a corpus gave with what its meta.json promises."""

from __future__ import annotations

from collections import defaultdict

from tdstream.corpus.contents import ALGORITHM, Contents
from tdstream.corpus.meta import META_FILE, CorpusMeta
from tdstream.corpus.report import Findings


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
