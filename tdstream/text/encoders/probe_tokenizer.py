"""A tokenizer whose ids show every split of its pre-tokenizer.

A tokenizer's vocabulary hides most of its rules: two encoders may split a text at different places and still
give the same ids, since a split shows only where some token of the vocabulary crosses it. So encoders are
also compared with the same rules and another vocabulary: the bytes, and every pair of bytes that can meet at
a split.
"""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer

from tdstream.core.errors import TokenizerError
from tdstream.text.encoders.encoder import Encoded, concatenate

_NEIGHBORS = b"abA1.'= \n"
"""The characters beside a code point in the tests."""
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
        return concatenate([encoding.ids for encoding in encodings])


def make_probe_tokenizer(content: str) -> str | None:
    """Return a tokenizer with the same rules and a vocabulary that shows every split, as its backend's JSON.

    None if the tokenizer splits no text, or only at spaces, which any vocabulary shows. Raises TokenizerError
    if its rules cannot be shown.
    """
    tokenizer = json.loads(content)
    types = _find_types(tokenizer["pre_tokenizer"])
    if types <= {"Metaspace"}:
        return None
    if tokenizer["model"]["type"] != "BPE" or "ByteLevel" not in types:
        raise TokenizerError(
            f"{tokenizer['model']['type']} after {', '.join(sorted(types))} cannot be tested"
        )
    pairs = [(_LETTERS[one], _LETTERS[two]) for one, two in _make_pairs()]
    letters = [_LETTERS[byte] for byte in range(256)]
    names = [*letters, *["".join(pair) for pair in pairs]]
    changed = {
        "vocab": {name: place for place, name in enumerate(names)},
        "merges": [list(pair) for pair in pairs],
    }
    model = {**tokenizer["model"], **changed, "unk_token": None}
    return json.dumps({**tokenizer, "model": model, "added_tokens": [], "post_processor": None})


def _find_types(pre_tokenizer: dict[str, Any] | None) -> set[str]:
    """Return the types of all steps that split a text."""
    if pre_tokenizer is None:
        return set()
    steps = pre_tokenizer.get("pretokenizers")
    return set().union(*map(_find_types, steps)) if steps is not None else {pre_tokenizer["type"]}


def _make_pairs() -> list[tuple[int, int]]:
    """Return the pairs of bytes that meet at a split: of two characters, or of one and a neighbor."""
    beside = [pair for one in _NEIGHBORS for other in range(256) for pair in ((one, other), (other, one))]
    return list(dict.fromkeys([*beside, *[(last, first) for last in _LAST_BYTES for first in _FIRST_BYTES]]))


def _make_letters() -> dict[int, str]:
    """Return a letter for each byte: printable ones stand for themselves, others are counted from 256."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(kept)]
    return {
        **{byte: chr(byte) for byte in kept},
        **{byte: chr(256 + place) for place, byte in enumerate(others)},
    }


_LETTERS = _make_letters()
