"""Compare the index of document ends with what meta.json promises, and with the tokens it points at."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.corpus.document_index import ENDS_DTYPE, ENDS_SUFFIX, ends_name
from tdstream.corpus.meta import DOC_INDEX, META_FILE, CorpusMeta, Shard
from tdstream.corpus.shard_reader import Tokens, byte_pieces
from tdstream.verification.verify_report import Findings

_PIECE = 1 << 20  # Ends that are looked at together.


def check_index_files(meta: CorpusMeta, sizes: dict[str, int], findings: Findings) -> frozenset[str]:
    """Compare the size of each shard's index with what is promised.

    Args:
        meta: What is promised.
        sizes: The files that there are.
        findings: Told about differences, and where there is no index.

    Returns:
        The shards whose index has the size that it should have.
    """
    if meta.doc_index.get("version") != DOC_INDEX["version"]:
        version = meta.doc_index.get("version")
        why = f"version {version!r} of it is not known" if meta.doc_index else "there is none"
        findings.unchecked.append(f"index of document ends: {why}")
        return frozenset()
    sound = frozenset(chunk.file for chunk in meta.chunks if _has_its_size(chunk.file, meta, sizes, findings))
    expected = {ends_name(chunk.file) for chunk in meta.chunks}
    for name in sorted(name for name in sizes.keys() - expected if name.endswith(ENDS_SUFFIX)):
        findings.fault("stray", name, f"is the index of no chunk that {META_FILE} lists.")
    counts = [count for count in meta.chunk_documents.values() if _is_count(count)]
    if -1 < meta.num_documents != sum(counts):
        wrong = f"promises {meta.num_documents:,} documents, its chunk_documents add up to {sum(counts):,}."
        findings.fault("meta", META_FILE, wrong)
    findings.checked.append(f"sizes of indices: {len(sound):,} of {len(meta.chunks):,} chunks")
    return sound


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _has_its_size(file: str, meta: CorpusMeta, sizes: dict[str, int], findings: Findings) -> bool:
    name, documents = ends_name(file), meta.chunk_documents.get(file)
    if not _is_count(documents):
        findings.fault("meta", META_FILE, f"does not say in chunk_documents how many end in {file}.")
        return False
    promised = (documents or 0) * ENDS_DTYPE.itemsize
    if name not in sizes:
        missing = f"is missing; {META_FILE} promises {documents:,} ends of documents in it."
        findings.fault("missing", name, missing)
    elif sizes[name] != promised:
        kind = "truncated" if sizes[name] < promised else "extended"
        differs = f"is {kind}: it has {sizes[name]:,} bytes; {META_FILE} promises {promised:,}"
        findings.fault(kind, name, f"{differs} ({documents:,} ends of documents).")
    return sizes.get(name) == promised


@dataclass(slots=True)
class EndsCheck:
    """Looks at the tokens that the index of a shard points at, as they pass by."""

    ends: NDArray[np.int64]
    """int64 [documents], memory-mapped."""
    digest: str
    """Its checksum, as meta.json spells it."""
    out_of_order: int
    """The first that is not above the one before, or outside of the shard; -1 if none is."""
    wrong: int = 0
    """Ends behind another token than end-of-text."""
    first_wrong: int = -1
    first_token: int = -1
    """The token there."""
    seen: int = 0

    @classmethod
    def of(cls, path: Path, num_tokens: int) -> EndsCheck:
        """Open an index of the right size.

        Args:
            path: The index.
            num_tokens: Tokens of its shard.

        Raises:
            OSError: If it cannot be read.
        """
        digest = hashlib.sha256()
        for piece in byte_pieces(path):
            digest.update(piece.data)
        empty = path.stat().st_size == 0  # An empty file cannot be mapped.
        ends: NDArray[np.int64] = np.empty(0, ENDS_DTYPE) if empty else np.memmap(path, ENDS_DTYPE, mode="r")
        return cls(ends, f"sha256:{digest.hexdigest()}", _first_out_of_order(ends, num_tokens))

    def feed(self, tokens: Tokens, place: int, eos_token_id: int) -> None:
        """Look at the next tokens of the shard.

        Args:
            tokens: Shape [num_tokens].
            place: The place of the first of them.
            eos_token_id: What stands at every end.
        """
        if self.out_of_order >= 0:
            return
        stop = int(np.searchsorted(self.ends, place + len(tokens), side="right"))
        found = tokens[self.ends[self.seen : stop] - 1 - place]
        others = np.flatnonzero(found != eos_token_id)
        if len(others):
            if self.wrong == 0:
                self.first_wrong = int(self.ends[self.seen + others[0]])
                self.first_token = int(found[others[0]])
            self.wrong += len(others)
        self.seen = stop


def _first_out_of_order(ends: NDArray[np.int64], num_tokens: int) -> int:
    before = 0
    for first in range(0, len(ends), _PIECE):
        piece: NDArray[Any] = ends[first : first + _PIECE]
        bad = (np.diff(piece, prepend=before) < 1) | (piece > num_tokens)
        if bad.any():
            return first + int(np.argmax(bad))
        before = int(piece[-1])
    return -1


def check_index(meta: CorpusMeta, checks: dict[str, EndsCheck], faulty: set[str], findings: Findings) -> None:
    """Report what is wrong with the indices.

    Args:
        meta: What is promised.
        checks: Shard -> what was seen of its index.
        faulty: Shards with faults of their own: no index is judged by them.
        findings: Told about faults.
    """
    sound = 0
    for chunk in (chunk for chunk in meta.chunks if chunk.file in checks):
        check = checks[chunk.file]
        if chunk.file in faulty:
            findings.unchecked.append(f"index of {chunk.file}: the chunk has a fault itself")
        elif meta.doc_index_checksums.get(chunk.file, check.digest) != check.digest:
            differs = f"does not hold the bytes that were written (their SHA-256 differs from {META_FILE}'s)."
            findings.fault("checksum", ends_name(chunk.file), differs)
        elif wrong := _wrong(chunk, check):
            findings.fault("index", ends_name(chunk.file), wrong)
        else:
            sound += 1
    if checks and meta.eos_token_id is None:
        findings.unchecked.append("tokens that the indices point at: the end-of-text id is not known")
    if checks:
        findings.checked.append(f"indices of document ends: {sound:,} of {len(meta.chunks):,} chunks")


def _wrong(chunk: Shard, check: EndsCheck) -> str:
    """Return what is wrong with an index; empty if nothing is."""
    if check.out_of_order >= 0:
        end = int(check.ends[check.out_of_order])
        return (
            f"is no index of {chunk.file}: its entry {check.out_of_order:,} is {end:,}, not above the one "
            f"before or beyond the chunk's {chunk.tokens:,} tokens."
        )
    if check.wrong:
        return (
            f"points at {check.wrong:,} tokens that are no end-of-text token; the first is token "
            f"{check.first_wrong - 1:,} of {chunk.file}, whose id is {check.first_token:,}."
        )
    return ""
