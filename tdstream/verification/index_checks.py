"""Checks of the index of document ends, against meta.json and against the tokens it points at."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.corpus.document_index import ENDS_DTYPE, ENDS_SUFFIX, ends_name
from tdstream.corpus.mapped_array import find_size_fault, map_array
from tdstream.corpus.meta import DOC_INDEX, META_FILE, CorpusMeta, Shard
from tdstream.corpus.shard_reader import Tokens, byte_pieces
from tdstream.verification.verify_report import Findings

_PIECE = 1 << 20  # ends compared at once


def check_index_files(meta: CorpusMeta, sizes: dict[str, int], findings: Findings) -> frozenset[str]:
    """Report missing, stray and wrongly sized indices; return the shards whose index has the right size."""
    version = meta.doc_index.get("version")
    if version != DOC_INDEX["version"]:
        why = f"its version {version!r} is unknown" if meta.doc_index else "there is none"
        findings.unchecked.append(f"index of document ends: {why}")
        return frozenset()
    sound = frozenset(shard.file for shard in meta.chunks if _check_size(shard.file, meta, sizes, findings))
    expected = {ends_name(shard.file) for shard in meta.chunks}
    for name in sorted(name for name in sizes.keys() - expected if name.endswith(ENDS_SUFFIX)):
        findings.fault("stray", name, f"is not the index of a shard that {META_FILE} lists.")
    counts = [count for count in meta.chunk_documents.values() if _is_count(count)]
    if -1 < meta.num_documents != sum(counts):
        wrong = f"says {meta.num_documents:,} documents, but its chunk_documents add up to {sum(counts):,}."
        findings.fault("meta", META_FILE, wrong)
    findings.check_share("sizes of indices", len(sound), len(meta.chunks))
    return sound


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _check_size(file: str, meta: CorpusMeta, sizes: dict[str, int], findings: Findings) -> bool:
    name, documents = ends_name(file), meta.chunk_documents.get(file)
    if not _is_count(documents):
        findings.fault("meta", META_FILE, f"lacks the number of documents that end in {file}.")
        return False
    fault = find_size_fault(sizes.get(name), documents or 0, ENDS_DTYPE, "ends of documents")
    if fault is not None:
        findings.fault(fault.kind, name, fault.text)
    return fault is None


@dataclass(slots=True)
class IndexCheck:
    """Compares the index of a shard with the shard's tokens, piece by piece."""

    ends: NDArray[np.int64]
    """int64 [documents], memory-mapped; empty once it was compared, since a process may have few maps."""
    digest: str
    """Its checksum, in the format of meta.json."""
    out_of_order: int
    """The first entry that does not exceed the one before or lies outside of the shard; -1 if none."""
    bad_end: int = -1
    """That entry."""
    wrong: int = 0
    """Number of entries that do not follow an end-of-text token."""
    first_wrong: int = -1
    first_token: int = -1
    """The token before the first wrong entry."""
    seen: int = 0
    without_bos: int = 0
    """Number of documents that begin in the shard, but not with the BOS token."""
    first_without_bos: int = -1
    """Place of the first of them in the shard."""

    @classmethod
    def open(cls, path: Path, num_tokens: int) -> IndexCheck:
        """Open the index, known to be of the right size, of a shard of `num_tokens` tokens."""
        digest = hashlib.sha256()
        for piece in byte_pieces(path):
            digest.update(piece.data)
        ends: NDArray[np.int64] = map_array(path, ENDS_DTYPE)
        place = _first_out_of_order(ends, num_tokens)
        return cls(ends, f"sha256:{digest.hexdigest()}", place, -1 if place < 0 else int(ends[place]))

    def close(self) -> None:
        """Unmap the index."""
        self.ends = np.empty(0, np.int64)

    def feed(self, tokens: Tokens, place: int, eos_token_id: int) -> None:
        """Compare the next tokens [num_tokens] of the shard, which start at position `place`.

        With ends [3, 7], the piece of tokens 4 to 7 has one end, 7: the token before it, which is number
        7 - 1 - 4 = 2 of the piece, must be end-of-text.
        """
        if self.out_of_order >= 0:
            return
        stop = int(np.searchsorted(self.ends, place + len(tokens), side="right"))
        before_ends = tokens[self.ends[self.seen : stop] - 1 - place]
        others = np.flatnonzero(before_ends != eos_token_id)
        if len(others):
            if self.wrong == 0:
                self.first_wrong = int(self.ends[self.seen + others[0]])
                self.first_token = int(before_ends[others[0]])
            self.wrong += len(others)
        self.seen = stop

    def feed_begins(self, tokens: Tokens, place: int, bos_token_id: int, *, begins: bool) -> None:
        """Check that documents begin with BOS in the next tokens [num_tokens], which start at `place`.

        With ends [3, 7], documents begin at 3 and 7, and at 0 if the shard `begins` with one.
        """
        if self.out_of_order >= 0:
            return
        first, stop = np.searchsorted(self.ends, [place, place + len(tokens)])
        starts = self.ends[first:stop] - place
        if begins and place == 0 and len(tokens):
            starts = np.concatenate([[0], starts])
        others = starts[tokens[starts] != bos_token_id]
        if len(others):
            if self.without_bos == 0:
                self.first_without_bos = int(others[0]) + place
            self.without_bos += len(others)

    def describe_fault(self, shard: Shard) -> str:
        """Describe the fault of the index; empty if there is none."""
        if self.out_of_order >= 0:
            return (
                f"is not an index of {shard.file}: its entry {self.out_of_order:,} is {self.bad_end:,}, not "
                f"above the one before, or beyond the shard's {shard.tokens:,} tokens."
            )
        if self.wrong:
            return (
                f"points at {self.wrong:,} tokens that are not end-of-text; the first is token "
                f"{self.first_wrong - 1:,} of {shard.file}, whose id is {self.first_token:,}."
            )
        if self.without_bos:
            return (
                f"says where documents begin, and some documents do not begin with the BOS token: "
                f"{self.without_bos:,}; the first is at token {self.first_without_bos:,} of {shard.file}."
            )
        return ""


def _first_out_of_order(ends: NDArray[np.int64], num_tokens: int) -> int:
    before = 0
    for first in range(0, len(ends), _PIECE):
        piece: NDArray[Any] = ends[first : first + _PIECE]
        bad = (np.diff(piece, prepend=before) < 1) | (piece > num_tokens)
        if bad.any():
            return first + int(np.argmax(bad))
        before = int(piece[-1])
    return -1


def check_index(
    meta: CorpusMeta, checks: dict[str, IndexCheck], faulty: set[str], findings: Findings
) -> None:
    """Report faulty indices; the index of a faulty shard cannot be judged."""
    sound = 0
    for shard in (shard for shard in meta.chunks if shard.file in checks):
        check, name = checks[shard.file], ends_name(shard.file)
        if shard.file in faulty:
            findings.unchecked.append(f"index of {shard.file}: the shard itself has a fault")
        elif meta.doc_index_checksums.get(shard.file, check.digest) != check.digest:
            differs = f"does not hold the bytes that were written: its SHA-256 differs from {META_FILE}'s."
            findings.fault("checksum", name, differs)
        elif fault := check.describe_fault(shard):
            findings.fault("index", name, fault)
        else:
            sound += 1
    if checks and meta.eos_token_id is None:
        findings.unchecked.append("tokens that the indices point at: the end-of-text id is unknown")
    elif checks and meta.converted_from:
        findings.unchecked.append(
            "tokens that the indices point at: documents of other tools may end without a token"
        )
    if checks:
        findings.check_share("indices of document ends", sound, len(meta.chunks))
    if meta.bos_token_id is not None:
        _check_begins(meta, bool(checks), sound, findings)


def _check_begins(meta: CorpusMeta, has_index: bool, sound: int, findings: Findings) -> None:
    if has_index and sound == len(meta.chunks):
        findings.checked.append(f"every document begins with the BOS token, {meta.bos_token_id:,}")
    else:
        why = "not all shards and indices are sound" if has_index else "there is no index of document ends"
        findings.unchecked.append(f"whether every document begins with the BOS token: {why}")
