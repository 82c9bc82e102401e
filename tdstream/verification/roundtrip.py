"""Round trip of sample documents: decoding and encoding with the right tokenizer keeps their ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tdstream.corpus.meta import META_FILE, CorpusMeta
from tdstream.corpus.shard_reader import TokenFiles
from tdstream.verification.contents import Document
from tdstream.verification.verify_report import Findings

LONGEST_SAMPLE = 1 << 17
"""Tokens of the longest document decoded; bounds memory and time."""

_PROBES = (
    "Hello, world!  It's 3.14\n\n\tok",
    " na\u00efve \u65e5\u672c\u8a9e \U0001f600 e\u0301",
    "don't  stop .",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownTokenizer:
    """A Hugging Face tokenizer and its fingerprint."""

    tokenizer: Any
    fingerprint: str = ""
    """In the format of meta.json; empty if unknown."""

    @property
    def num_ids(self) -> int:
        """One above the tokenizer's highest id."""
        return 1 + max(self.tokenizer.get_vocab().values(), default=-1)

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids, with special tokens and unchanged spaces."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, as `prepare` makes them."""
        encoded = self.tokenizer(text, add_special_tokens=False, truncation=False, verbose=False)
        return list(encoded["input_ids"])

    def is_reversible(self) -> bool:
        """Return whether difficult texts survive encoding and decoding."""
        return all(self.decode(self.encode(probe)) == probe for probe in _PROBES)


def check_tokenizer(meta: CorpusMeta, known: KnownTokenizer, findings: Findings) -> None:
    """Compare a tokenizer with the one that wrote the corpus.

    A different fingerprint is only a note: it may come from another release of the tokenizers package.
    """
    num_tokens, eos = len(known.tokenizer), known.tokenizer.eos_token_id
    if meta.vocab_size > 0 and meta.vocab_size not in (num_tokens, max(num_tokens, known.num_ids)):
        other = (
            f"The tokenizer has {num_tokens:,} ids, the one that wrote the corpus had {meta.vocab_size:,}."
        )
        findings.fault("tokenizer", "", other)
    if meta.eos_token_id is not None and eos != meta.eos_token_id:
        other = f"The tokenizer's end-of-text id is {eos}, the corpus's is {meta.eos_token_id}."
        findings.fault("tokenizer", "", other)
    if meta.bos_token_id is not None and known.tokenizer.bos_token_id != meta.bos_token_id:
        bos = known.tokenizer.bos_token_id
        other = f"The tokenizer's BOS id is {bos}, the corpus's is {meta.bos_token_id}."
        findings.fault("tokenizer", "", other)
    if not (meta.tokenizer_fingerprint and known.fingerprint):
        findings.unchecked.append("whether this tokenizer wrote the corpus: its fingerprint is missing")
    elif meta.tokenizer_fingerprint == known.fingerprint:
        findings.checked.append("the tokenizer is the one that wrote the corpus")
    else:
        findings.notes.append(
            f"The tokenizer's fingerprint is not {META_FILE}'s: it is another tokenizer, or another release "
            f"of the tokenizers package describes it differently."
        )


def check_round_trip(
    files: TokenFiles,
    documents: list[Document],
    known: KnownTokenizer,
    findings: Findings,
    bos_token_id: int | None = None,
) -> None:
    """Decode and encode documents, without the BOS token that they begin with, if any.

    Different ids are a fault only if the tokenizer is lossless.
    """
    try:
        lossy, changed = _compare(files, documents, known, bos_token_id)
    except Exception as error:  # a tokenizer may raise anything
        findings.unchecked.append(
            f"decoding of documents: the tokenizer fails ({type(error).__name__}: {error})"
        )
        return
    same = len(documents) - len(lossy) - len(changed)
    if same:
        findings.checked.append(
            f"{same:,} of {len(documents):,} sample documents decode and encode to the same ids"
        )
    if lossy:
        findings.notes.append(
            f"{len(lossy):,} of {len(documents):,} sample documents get other ids, which says nothing about "
            f"the corpus: this tokenizer does not preserve every text (first: {_place(lossy[0])})."
        )
    if changed:
        names = ", ".join(f"{document.number:,}" for document in changed)
        findings.fault(
            "round_trip",
            "",
            f"{len(changed):,} of {len(documents):,} sample documents decode to text that has other ids "
            f"(first: {_place(changed[0])}; all: {names}): damaged, or written by another tokenizer.",
        )


def _compare(
    files: TokenFiles, documents: list[Document], known: KnownTokenizer, bos_token_id: int | None
) -> tuple[list[Document], list[Document]]:
    """Return the documents with different ids: those that a lossy tokenizer explains, and the others."""
    lossy: list[Document] = []
    changed: list[Document] = []
    reversible = known.is_reversible()
    for document in documents:
        ids = files.read(document.first, document.tokens).tolist()
        if ids and ids[0] == bos_token_id:
            ids = ids[1:]
        text = known.decode(ids)
        again = known.encode(text)
        if again != ids:
            certain = reversible and known.decode(again) == text
            (changed if certain else lossy).append(document)
    return lossy, changed


def _place(document: Document) -> str:
    return f"document {document.number:,}, {document.tokens:,} tokens from {document.first:,}"
