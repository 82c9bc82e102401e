"""Verification and overview of token files of other tools, as far as their format lets one check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tdstream.core.errors import ConfigError, TdstreamError
from tdstream.core.words import count_of
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.formats.adopted import hash_file
from tdstream.formats.description import DelimiterEnds, Description, IndexedEnds, Piece, UnknownEnds
from tdstream.formats.ends import open_ends, read_piece
from tdstream.formats.raw import NAME as RAW
from tdstream.verification.contents import LengthCounter, LengthStatistics
from tdstream.verification.overview import SHOWN_TOKENS
from tdstream.verification.verify_report import Findings, VerifyReport

_DOCUMENTS = 1 << 20  # measured at a time


def verify_description(
    description: Description,
    *,
    fast: bool = False,
    vocab_size: int = 0,
    advance: Callable[[int], object] | None = None,
) -> VerifyReport:
    """Check what a format lets one check; sizes, headers and indices were compared when it was described.

    `fast` reads no tokens. `advance` is called with the bytes of each part that was read.
    """
    findings, pieces = Findings(), description.pieces
    files = len({piece.path for piece in pieces})
    if description.format == RAW:
        findings.unchecked.append("whether a file was cut: raw tokens have no header or index that tells")
    else:
        findings.checked.append(
            f"sizes: {count_of(files, 'file')} as the {description.format} format promises"
        )
    _check_bytes(description, findings, fast=fast)
    ends = _check_ends(description, findings)
    ids = _Ids()
    if fast:
        findings.unchecked.append("the tokens: only names, sizes and indices were requested")
    else:
        _read_all(description, ends, ids, advance)
        _check_ids(description, ids, vocab_size, findings)
        _check_tokens_at_ends(description, ends, ids, findings)
    return VerifyReport(
        directory=description.path,
        fast=fast,
        chunks=files,
        tokens=sum(piece.tokens for piece in pieces),
        eos_tokens=None if fast or description.facts.get("eos_token_id") is None else ids.eos_tokens,
        faults=tuple(findings.faults),
        notes=tuple(findings.notes),
        checked=tuple(findings.checked),
        unchecked=tuple(findings.unchecked),
    )


@dataclass(slots=True)
class _Ids:
    """What was seen of the tokens."""

    highest: int = -1
    eos_tokens: int = 0
    marked_ends: int = 0
    """Document ends at which the token stands that should mark them."""
    negative: dict[str, int] = field(default_factory=dict)
    """File -> place of the first token whose id would be negative."""


def _check_bytes(description: Description, findings: Findings, *, fast: bool) -> None:
    """Compare the files with their checksums, if there are some."""
    if not description.checksums:
        findings.unchecked.append(
            f"bytes of the files: the {description.format} format has no checksums of tokens"
        )
    elif fast:
        findings.unchecked.append("checksums of the files: only names and sizes were requested")
    else:
        for path, promised in description.checksums.items():
            if hash_file(Path(path)) != promised:
                findings.fault("checksum", path, "does not have the checksum that meta.json promises.")
        findings.checked.append(f"checksums: {count_of(len(description.checksums), 'file')} compared")


def _check_ends(description: Description, findings: Findings) -> DocumentEnds | None:
    rule = description.ends
    if isinstance(rule, UnknownEnds):
        findings.unchecked.append(f"document ends: {rule.ask}")
        return None
    try:
        ends = open_ends(description)
    except TdstreamError as error:
        findings.fault("index", "", str(error))
        return None
    if isinstance(rule, IndexedEnds):
        findings.checked.append(
            f"document ends: {ends.num_ends:,} in the index, ascending, inside their files"
        )
        empty = rule.num_documents - ends.num_ends
        if empty > 0:
            findings.notes.append(
                f"{count_of(empty, 'document')} of the index hold no token, and are left out."
            )
    return ends


def _read_all(
    description: Description, ends: DocumentEnds | None, ids: _Ids, advance: Callable[[int], object] | None
) -> None:
    eos, first = description.facts.get("eos_token_id"), description.ends
    leads = isinstance(first, DelimiterEnds) and first.first
    top = np.iinfo(description.dtype).max // 2 if description.dtype.kind == "u" else -1
    for number, piece in enumerate(description.pieces):
        own, done = (None if ends is None else ends.in_part(number)), 0
        for tokens in read_piece(piece, description):
            ids.highest = max(ids.highest, int(tokens.max()))
            if description.signed:
                bad = np.flatnonzero(tokens > top if top >= 0 else tokens < 0)
                if len(bad):
                    ids.negative.setdefault(piece.path, done + int(bad[0]))
            if eos is not None:
                ids.eos_tokens += int((tokens == eos).sum())
                if own is not None:
                    here = own[(own > done) & (own <= done + len(tokens))] - done
                    ids.marked_ends += 0 if leads else int((tokens[here - 1] == eos).sum())
            done += len(tokens)
            if advance is not None:
                advance(tokens.nbytes)


def _check_ids(description: Description, ids: _Ids, vocab_size: int, findings: Findings) -> None:
    for path, place in ids.negative.items():
        findings.fault(
            "id_range",
            path,
            f"holds a negative id, as {description.stored_dtype}; the first is token {place:,} of the "
            f"piece. It is no plain stream of token ids: some tools keep a loss mask in the highest bit.",
        )
    if vocab_size and ids.highest >= vocab_size and not ids.negative:
        findings.fault(
            "id_range", "", f"There is an id {ids.highest:,}, outside the vocabulary of {vocab_size:,}."
        )
    elif vocab_size and not ids.negative:
        findings.checked.append(f"all ids are below {vocab_size:,}")
    elif not ids.negative:
        findings.unchecked.append(
            f"range of the ids: the size of the vocabulary is unknown; the highest is {ids.highest:,}"
        )


def _check_tokens_at_ends(
    description: Description, ends: DocumentEnds | None, ids: _Ids, findings: Findings
) -> None:
    """Compare an index of documents with the token that should mark them, if it is known."""
    eos = description.facts.get("eos_token_id")
    if eos is None or ends is None or not isinstance(description.ends, IndexedEnds):
        return
    if ids.marked_ends == ends.num_ends:
        findings.checked.append(f"every document ends with the token {eos}")
    else:
        missing = ends.num_ends - ids.marked_ends
        findings.notes.append(
            f"{missing:,} of {ends.num_ends:,} documents of the index do not end with the token {eos}."
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class FilesOverview:
    """Facts about token files, and the first document."""

    path: str
    format: str
    evidence: str
    stored_dtype: str
    tokens: int
    pieces: tuple[Piece, ...]
    documents: str
    """How many there are, or why that is unknown."""
    lengths: LengthStatistics | None
    facts: dict[str, Any]
    first_ids: list[int]

    def to_json(self) -> dict[str, Any]:
        """Return the overview in JSON types."""
        return {
            "path": self.path, "format": self.format, "evidence": self.evidence, "dtype": self.stored_dtype,
            "tokens": self.tokens, "pieces": [piece._asdict() for piece in self.pieces],
            "documents": self.documents, **self.facts, "first_ids": self.first_ids,
        }  # fmt: skip


def overview_files(description: Description) -> FilesOverview:
    """Return what token files are and hold."""
    lengths, documents = None, ""
    try:
        ends = open_ends(description)
        documents = _describe_documents(description, ends)
        lengths = _count_lengths(ends)
    except ConfigError as error:
        documents = f"unknown: {error}"
    first = next((part for piece in description.pieces for part in read_piece(piece, description)), None)
    return FilesOverview(
        path=description.path,
        format=description.format,
        evidence=description.evidence,
        stored_dtype=description.stored_dtype,
        tokens=sum(piece.tokens for piece in description.pieces),
        pieces=description.pieces,
        documents=documents,
        lengths=lengths,
        facts=description.facts,
        first_ids=[] if first is None else first[:SHOWN_TOKENS].tolist(),
    )


def _count_lengths(ends: DocumentEnds) -> LengthStatistics | None:
    """Return the lengths of documents, without a token that marks them."""
    counter = LengthCounter()
    for first in range(0, ends.num_documents, _DOCUMENTS):
        last = min(first + _DOCUMENTS, ends.num_documents)
        lengths = np.diff(ends.between(first, last), prepend=ends.at(np.array([first - 1])))
        marked = np.arange(first, last) < ends.num_ends
        counter.add(lengths - marked if ends.hold_token else lengths)
    return counter.statistics()


def _describe_documents(description: Description, ends: DocumentEnds) -> str:
    if isinstance(description.ends, IndexedEnds):
        return f"{ends.num_documents:,} (by the index)"
    token = description.ends.token_id if isinstance(description.ends, DelimiterEnds) else None
    place = "first" if isinstance(description.ends, DelimiterEnds) and description.ends.first else "last"
    return f"{ends.num_documents:,} (by the token {token}, which stands {place})"
