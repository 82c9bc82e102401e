"""Texts as one token stream in memory, tokenized once."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.progress_bar import ProgressBar
from tdstream.core.state import IdentityState
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.corpus.shard_reader import Tokens
from tdstream.nodes.base import TokenArray
from tdstream.text.records import Place
from tdstream.text.text_stream import TextStream
from tdstream.text.tokenize import Tokenize, TokenizedDocuments

_RECORDS = 1000  # tokenized at a time
_PATIENCE = 1.0  # seconds before a bar is shown


class TextTokens(IdentityState):
    """The tokens of all texts of a source; raises SourceError if a record holds no text.

    The texts are tokenized in the process that builds the pipeline, not again in each worker. `quiet` hides
    the progress bar.
    """

    name = "source"
    what = "the text"

    def __init__(self, source: TextStream, tokenize: Tokenize, *, quiet: bool = False) -> None:
        self.dtype, self.pad_id = tokenize.dtype, tokenize.pad_token_id
        self.vocab_size, self.eos_token_id = tokenize.vocab_size, tokenize.eos_token_id
        self.tokenizer_name_or_path = tokenize.tokenizer_name_or_path
        documents = _tokenized(source, tokenize, quiet)
        self._tokens, self._ends = documents.tokens, documents.ends
        self.total_tokens = len(self._tokens)
        self._identity = {
            **tokenize.state_dict(),
            "dtype": self.dtype.name,
            "total_tokens": self.total_tokens,
            "content": hashlib.sha256(self._tokens.tobytes()).hexdigest()[:16],
        }

    def __repr__(self) -> str:
        return f"TextTokens({len(self._ends):,} documents, {self.total_tokens:,} tokens)"

    def open(self) -> TokenArray:
        """Return the token stream."""
        return TokenArray(self._tokens)

    def ends(self) -> DocumentEnds:
        """Return where documents end."""
        return DocumentEnds.of(self._ends, self.total_tokens)

    def state_dict(self) -> dict[str, Any]:
        """Return the identity of the text and its tokenizer."""
        return dict(self._identity)


def _tokenized(source: TextStream, tokenize: Tokenize, quiet: bool) -> TokenizedDocuments:
    parts: list[TokenizedDocuments] = []
    total = source.records.num_rows
    with ProgressBar(total=total, desc="Tokenizing", unit=" doc", delay=_PATIENCE, disable=quiet) as bar:
        for block in source.blocks(0, 0, 1, Place(), _RECORDS):
            parts.append(tokenize.encode(block.texts))
            bar.update(len(block.texts))
    sizes = np.cumsum([0, *(len(part.tokens) for part in parts)])
    ends: list[NDArray[np.int64]] = [part.ends + size for part, size in zip(parts, sizes, strict=False)]
    tokens: Tokens = np.concatenate([np.empty(0, tokenize.dtype), *(part.tokens for part in parts)])
    return TokenizedDocuments(tokens, np.concatenate([np.empty(0, np.int64), *ends]))
