"""Blocks of tokens from batches of text: a thread reads, another encodes, the caller writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.read_ahead import ReadAhead
from tdstream.preparation.ledger import TokenBlock
from tdstream.preparation.result import DocumentCounts
from tdstream.text.batches import TextBatch
from tdstream.text.encoders.encoder import Encoded, Encoder


@dataclass(frozen=True, slots=True)
class BatchTokens:
    """The tokens of a batch of texts.

    Of the documents "a b" and "" with the ids 5, 7 and the end-of-text id 0: ids [5, 7, 0, 0], ends [3, 4].
    """

    ids: NDArray[Any]
    """Tokens of all documents, each followed by end-of-text; shape [num_tokens]."""
    ends: NDArray[np.int64]
    """Where each document ends among them, after its end-of-text token; shape [num_documents]."""
    holding: NDArray[np.bool_]
    """Whether each holds the end-of-text token in its own text, shape [num_documents]."""
    encoder: str = ""
    """Name of the encoder."""


_NOTHING = BatchTokens(np.zeros(0, np.uint32), np.zeros(0, np.int64), np.zeros(0, np.bool_))


def tokenize(encoder: Encoder, texts: list[str], eos_token_id: int) -> BatchTokens:
    """Return the tokens of texts; there may be none."""
    return add_eos(encoder.encode(texts), eos_token_id, encoder.name) if texts else _NOTHING


def add_eos(encoded: Encoded, eos_token_id: int, encoder: str) -> BatchTokens:
    """Return encoded documents, empty ones too, each followed by the end-of-text id."""
    ends = encoded.offsets[1:]
    ids = np.insert(encoded.ids, ends, eos_token_id).astype(np.uint32, copy=False)
    holding = np.zeros(len(ends), np.bool_)
    places = np.flatnonzero(encoded.ids == eos_token_id)
    holding[np.searchsorted(encoded.offsets, places, side="right") - 1] = True
    return BatchTokens(ids, ends + np.arange(1, len(encoded.offsets)), holding, encoder)


def make_block(batch: TextBatch, tokens: BatchTokens) -> TokenBlock:
    """Return the tokens of a batch together with where they came from; its texts are not needed any more."""
    return TokenBlock(
        ids=tokens.ids,
        documents=DocumentCounts(tokens.ends, batch.sizes, tokens.holding),
        begin=batch.begin,
        num_records=batch.num_records,
        rows=batch.rows,
        encoder=tokens.encoder,
    )


class Overlapped:
    """Blocks made in this process, read and encoded ahead in two threads. Close it when done."""

    def __init__(self, batches: Iterator[TextBatch], encoder: Encoder, eos_token_id: int) -> None:
        def encode(batch: TextBatch) -> TokenBlock:
            if not batch.texts:
                return make_block(batch, _NOTHING)
            encoded = encoder.encode(batch.texts)
            batch.texts.clear()  # Free them before the ids are copied.
            return make_block(batch, add_eos(encoded, eos_token_id, encoder.name))

        self._read = ReadAhead(batches)
        self._encoded = ReadAhead(map(encode, self._read))  # A generator would keep its last block alive.

    def __iter__(self) -> Iterator[TokenBlock]:
        return iter(self._encoded)

    def close(self) -> None:
        """Stop both threads."""
        self._read.close()
        self._encoded.close()
