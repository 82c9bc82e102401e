"""Encode batches for another process: its first message says how, the others are texts.

The process ends when the one at the other end of the connection does, however that happens.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from tdstream.errors import TdstreamError, TokenizerError
from tdstream.preparation.blocks import tokenize
from tdstream.preparation.encoder import Encoder
from tdstream.preparation.encoder_choice import choose_encoder
from tdstream.preparation.hub import in_one_line
from tdstream.preparation.tokenizer import fingerprint, load_tokenizer, unpacked

PROGRAM = (
    "import sys; sys.path[:] = [path for path in sys.path if path]; "
    "from tdstream.preparation.own_process import settle_in; "
    "sys.argv[2:] == ['without_torch'] and settle_in(); "
    "from tdstream.preparation.worker import serve; serve(int(sys.argv[1]))"
)
"""What a worker's interpreter runs; its arguments are a connection's descriptor and "without_torch" or ""."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Orders:
    """How to encode."""

    tokenizer: str
    """Name on the hub, or a local directory."""
    pickled: bytes = b""
    """The tokenizer itself, where the caller has it in hand; then its name is of no use."""
    tokenizer_fingerprint: str
    """Which tokenizer that has to be."""
    encoder: str
    """The encoder that was asked for."""
    eos_token_id: int


@dataclass(frozen=True, slots=True)
class Failure:
    """An error in a worker, for the process that it works for."""

    kind: type[TdstreamError]
    message: str


def serve(descriptor: int) -> None:
    """Answer every list of texts with its `Tokens`, until there are no more.

    Args:
        descriptor: Of the connection.
    """
    try:
        _serve(Connection(descriptor))
    except (EOFError, OSError):  # Nobody is there any more.
        os._exit(1)


def _serve(connection: Connection[Any, Any]) -> None:
    orders: Orders = connection.recv()
    encoder: Encoder | None = None
    while True:
        texts = connection.recv()
        if texts is None:
            return
        try:
            encoder = encoder or _encoder(orders)
            answer: object = tokenize(encoder, texts, orders.eos_token_id)
        except TdstreamError as error:
            answer = Failure(type(error), str(error))
        except Exception as error:  # It raises whatever the tokenizer raises.
            answer = Failure(TdstreamError, f"The tokenizer failed: {in_one_line(error)}.")
        connection.send(answer)


def _encoder(orders: Orders) -> Encoder:
    tokenizer = unpacked(orders.pickled) if orders.pickled else load_tokenizer(orders.tokenizer)
    if fingerprint(tokenizer) != orders.tokenizer_fingerprint:
        raise TokenizerError(
            f"Tokenizer {orders.tokenizer!r} has changed since the preparation began. Begin again."
        )
    try:
        return choose_encoder(tokenizer, orders.encoder)
    except TokenizerError:  # Another worker has just found out that it is not exact.
        return choose_encoder(tokenizer, "hf")
