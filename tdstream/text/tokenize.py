"""Token ids of texts, a block at a time, with an end-of-text token after every document."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import TokenizerError
from tdstream.core.state import IdentityState
from tdstream.corpus.meta import DTYPES
from tdstream.corpus.shard_reader import Tokens
from tdstream.text.options import TextOptions

if TYPE_CHECKING:  # it loads transformers
    from tdstream.text.encoders.encoder import Encoded

_started_in: list[int] = []  # processes in which a fast encoder has started its threads


@dataclass(frozen=True, slots=True)
class TokenizedDocuments:
    """The tokens of some documents, one after the other."""

    tokens: Tokens
    """Shape [num_tokens]; each document with its BOS token, if any, and its end-of-text token."""
    ends: NDArray[np.int64]
    """Shape [num_documents]: where each document ends, after its end-of-text token."""


def join_documents(
    encoded: Encoded, eos_token_id: int, bos_token_id: int | None = None
) -> TokenizedDocuments:
    """Return encoded documents, empty ones included, each between its BOS and its end-of-text token.

    The ids [5, 7, 8] of documents that end at 2 and 3, BOS 1 and end-of-text 0 become [1, 5, 7, 0, 1, 8, 0],
    with the ends [4, 7]; without BOS, [5, 7, 0, 8, 0] and [3, 5].
    """
    ends = encoded.offsets[1:]
    if bos_token_id is None:
        places, added = ends, [eos_token_id]
    else:
        places, added = np.stack([encoded.offsets[:-1], ends], axis=1).ravel(), [bos_token_id, eos_token_id]
    tokens: Tokens = np.insert(encoded.ids, places, added * len(ends))
    return TokenizedDocuments(tokens, ends + len(added) * np.arange(1, len(ends) + 1))


class Tokenize(IdentityState):
    """A tokenizer and the storage type of its ids, uint16 or uint32.

    With `strips`, white space at both ends of a text is left out; with `bos_token_id`, each document begins
    with that id. The encoder ("auto", "hf", or the name of a
    fast one) is chosen in each process.
    """

    name = "tokenize"

    def __init__(
        self,
        tokenizer: Any,
        *,
        dtype: np.dtype[Any],
        fingerprint: str,
        encoder: str = "auto",
        strips: bool = False,
        bos_token_id: int | None = None,
        vocab_size: int | None = None,
    ) -> None:
        self._tokenizer, self.dtype, self._fingerprint = tokenizer, dtype, fingerprint
        self._asked, self._strips, self._bos_token_id = encoder, strips, bos_token_id
        self.eos_token_id, self.vocab_size = int(tokenizer.eos_token_id), vocab_size or len(tokenizer)
        self.tokenizer_name_or_path = str(tokenizer.name_or_path or "")
        self._encoder: Any = None

    def __repr__(self) -> str:
        return f"Tokenize({self.vocab_size:,} ids)"

    @property
    def tokenizer(self) -> Any:
        """The tokenizer itself."""
        return self._tokenizer

    @property
    def pad_token_id(self) -> int:
        """The tokenizer's pad id, else its end-of-text id."""
        pad = self._tokenizer.pad_token_id
        return self.eos_token_id if pad is None else int(pad)

    def encode(self, texts: list[str]) -> TokenizedDocuments:
        """Return the tokens of some documents."""
        if self._encoder is None:
            self._encoder = self._choose_encoder()
        encoded = self._encoder.encode([text.strip() for text in texts] if self._strips else texts)
        highest = int(encoded.ids.max(initial=0))
        if highest > np.iinfo(self.dtype).max:
            raise TokenizerError(
                f"The tokenizer gave the id {highest:,}, which is not in its own vocabulary of "
                f"{self.vocab_size:,}. Use one that agrees with itself."
            )
        documents = join_documents(encoded, self.eos_token_id, self._bos_token_id)
        return TokenizedDocuments(documents.tokens.astype(self.dtype), documents.ends)

    def state_dict(self) -> dict[str, Any]:
        """Return what decides the ids."""
        bos = {} if self._bos_token_id is None else {"bos_token_id": self._bos_token_id}
        known = {"tokenizer": self._fingerprint, "eos_token_id": self.eos_token_id, "strips": self._strips}
        return {**known, **bos}

    def _choose_encoder(self) -> Any:
        """Return the encoder for this process: no fast one whose threads a fork has ended."""
        # Loads transformers, which a process that never tokenizes does without.
        from tdstream.text.encoders.select import choose_encoder  # noqa: PLC0415

        forked = any(pid != os.getpid() for pid in _started_in)
        encoder = choose_encoder(self._tokenizer, "hf" if forked else self._asked, prove=False)
        if encoder.name != "hf":
            _started_in.append(os.getpid())
        return encoder

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_encoder": None}  # chosen in each process


def make_tokenize(options: TextOptions) -> Tokenize:
    """Return the node for the tokenizer that the options name or hold."""
    # Loads transformers, which takes seconds that a reader of a corpus does not wait.
    from tdstream.text.tokenizer import describe_tokenizer, get_tokenizer  # noqa: PLC0415

    tokenizer = get_tokenizer(options)
    known = describe_tokenizer(tokenizer, options.tokenizer, prepend_bos=options.prepend_bos)
    return Tokenize(
        tokenizer,
        dtype=DTYPES[known["dtype"]],
        fingerprint=known["tokenizer_fingerprint"],
        encoder=options.encoder,
        strips=options.strip,
        bos_token_id=known["bos_token_id"],
        vocab_size=known["vocab_size"],
    )
