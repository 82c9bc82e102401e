"""Make a tokenizer's rules for cutting a text visible, whatever its vocabulary.

Two encoders may cut a text at different places and still give the same ids: a cut shows only where some token
of the vocabulary reaches across it, which is rare, and rarest beside the characters they disagree on. So the
rules are tested with another vocabulary: the bytes, and every pair of bytes that can meet at a cut.
"""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer

from tdstream.errors import TokenizerError
from tdstream.preparation.encoder import Encoded, flat

_NEIGHBOURS = b"abA1.'= \n"
"""What stands beside a code point in the tests."""
_FIRST_BYTES = range(0xC2, 0xF5)
_LAST_BYTES = range(0x80, 0xC0)


class BackendEncoder:
    """Encodes with the backend of a Hugging Face tokenizer."""

    name = "hf"

    def __init__(self, content: str) -> None:
        self._backend: Any = Tokenizer.from_str(content)

    def encode(self, texts: list[str]) -> Encoded:
        """Return the ids of some texts, in their order."""
        encodings = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        return flat([encoding.ids for encoding in encodings])


def with_visible_cuts(content: str) -> str | None:
    """Return a tokenizer with the same rules and a vocabulary that shows every cut.

    Args:
        content: A tokenizer, as the JSON of its backend.

    Returns:
        Such JSON; None if the tokenizer cuts no text, or only at spaces, which any vocabulary shows.

    Raises:
        TokenizerError: If its rules cannot be made visible.
    """
    tokenizer = json.loads(content)
    kinds = _kinds(tokenizer["pre_tokenizer"])
    if kinds <= {"Metaspace"}:
        return None
    if tokenizer["model"]["type"] != "BPE" or "ByteLevel" not in kinds:
        raise TokenizerError(
            f"{tokenizer['model']['type']} behind {', '.join(sorted(kinds))} cannot be tested"
        )
    pairs = [(_letter(one), _letter(two)) for one, two in _pairs()]
    letters = [_letter(byte) for byte in range(256)]
    names = [*letters, *["".join(pair) for pair in pairs]]
    changed = {
        "vocab": {name: place for place, name in enumerate(names)},
        "merges": [list(pair) for pair in pairs],
    }
    model = {**tokenizer["model"], **changed, "unk_token": None}
    return json.dumps({**tokenizer, "model": model, "added_tokens": [], "post_processor": None})


def _kinds(pre_tokenizer: dict[str, Any] | None) -> set[str]:
    """Return the types of all steps that cut a text."""
    if pre_tokenizer is None:
        return set()
    steps = pre_tokenizer.get("pretokenizers")
    return set().union(*map(_kinds, steps)) if steps is not None else {pre_tokenizer["type"]}


def _pairs() -> list[tuple[int, int]]:
    """Return the pairs of bytes that meet at a cut: of two characters, or of one and a neighbour."""
    beside = [pair for one in _NEIGHBOURS for other in range(256) for pair in ((one, other), (other, one))]
    return list(dict.fromkeys([*beside, *[(last, first) for last in _LAST_BYTES for first in _FIRST_BYTES]]))


def _letter(byte: int) -> str:
    """Return the character that stands for a byte in such a vocabulary."""
    return _LETTERS[byte]


def _letters() -> dict[int, str]:
    """Return a letter for each byte: printable ones stand for themselves, others are counted from 256."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(kept)]
    return {
        **{byte: chr(byte) for byte in kept},
        **{byte: chr(256 + place) for place, byte in enumerate(others)},
    }


_LETTERS = _letters()
