"""Make blocks of tokens from batches of text, while the batches to come are read and blocks are written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.preparation.ledger import TokenBlock
from tdstream.preparation.result import DocumentCounts
from tdstream.text.batches import TextBatch
from tdstream.text.encoders.encoder import Encoded, Encoder
from tdstream.text.read_ahead import Ahead


def with_eos(encoded: Encoded, eos_token_id: int) -> NDArray[np.integer[Any]]:
    """Return the ids of all documents, each followed by the end-of-text id.

    Args:
        encoded: Some documents.
        eos_token_id: The id to put behind each, empty ones too.

    Returns:
        Shape [num_tokens + num_documents].
    """
    return np.insert(encoded.ids, encoded.offsets[1:], eos_token_id)


def ends_with_eos(encoded: Encoded) -> NDArray[np.int64]:
    """Return where each document ends among the ids of `with_eos`, shape [num_documents]."""
    return encoded.offsets[1:] + np.arange(1, len(encoded.offsets))


def which_hold(encoded: Encoded, token_id: int) -> NDArray[np.bool_]:
    """Return whether each document holds a token id in its own text, shape [num_documents]."""
    holding = np.zeros(len(encoded.offsets) - 1, np.bool_)
    places: NDArray[Any] = np.flatnonzero(encoded.ids == token_id)
    holding[np.searchsorted(encoded.offsets, places, side="right") - 1] = True
    return holding


@dataclass(frozen=True, slots=True)
class Tokens:
    """What becomes of the texts of a batch."""

    ids: NDArray[Any]
    """Tokens of all documents, each followed by end-of-text; shape [num_tokens]."""
    ends: NDArray[np.int64]
    """Where each document ends among them, shape [num_documents]."""
    holding: NDArray[np.bool_]
    """Whether each holds the end-of-text token in its own text, shape [num_documents]."""
    encoder: str = ""
    """What encoded them."""


_NOTHING = Tokens(np.zeros(0, np.uint32), np.zeros(0, np.int64), np.zeros(0, np.bool_))


def tokenize(encoder: Encoder, texts: list[str], eos_token_id: int) -> Tokens:
    """Encode the texts of a batch.

    Args:
        encoder: What encodes.
        texts: DocumentCounts; there may be none.
        eos_token_id: The id to put behind each.
    """
    return tokens_of(encoder.encode(texts), eos_token_id, encoder.name) if texts else _NOTHING


def tokens_of(encoded: Encoded, eos_token_id: int, encoder: str) -> Tokens:
    """Return encoded documents as tokens.

    Args:
        encoded: Some documents.
        eos_token_id: The id to put behind each.
        encoder: What encoded them.
    """
    ids = with_eos(encoded, eos_token_id).astype(np.uint32, copy=False)
    return Tokens(ids, ends_with_eos(encoded), which_hold(encoded, eos_token_id), encoder)


def block_of(batch: TextBatch, tokens: Tokens) -> TokenBlock:
    """Return the tokens of a batch together with where they came from.

    Args:
        batch: The batch; its texts are not needed any more.
        tokens: What became of its texts.
    """
    documents = DocumentCounts(tokens.ends, batch.sizes, tokens.holding)
    return TokenBlock(
        ids=tokens.ids,
        documents=documents,
        begin=batch.begin,
        num_records=batch.num_records,
        rows=batch.rows,
        encoder=tokens.encoder,
    )


class Overlapped:
    """Blocks from one process: a thread reads, another encodes, the caller writes. Close it when done."""

    def __init__(self, batches: Iterator[TextBatch], encoder: Encoder, eos_token_id: int) -> None:
        """Begin to read and to encode.

        Args:
            batches: The texts.
            encoder: What encodes.
            eos_token_id: The id to put behind each document.
        """

        def encoded(batch: TextBatch) -> TokenBlock:
            if not batch.texts:
                return block_of(batch, _NOTHING)
            ids = encoder.encode(batch.texts)
            batch.texts.clear()  # They are not needed any more, and what follows copies the ids.
            return block_of(batch, tokens_of(ids, eos_token_id, encoder.name))

        self._read = Ahead(batches)
        self._encoded = Ahead(map(encoded, self._read))  # A generator would hold what it has handed out.

    def __iter__(self) -> Iterator[TokenBlock]:
        return iter(self._encoded)

    def close(self) -> None:
        """Stop both threads."""
        self._read.close()
        self._encoded.close()
