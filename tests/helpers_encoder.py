"""Small tokenizers of every family, and encoders that are wrong on purpose."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizer, PreTrainedTokenizerFast

from tdstream.text.encoders.encoder import Encoded

TEXT = [Path(module.__file__).read_text(encoding="utf-8") for module in (json, argparse)]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<tool>"]
UNKNOWN = "<unk>"
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level(more: list[str] | None = None) -> Tokenizer:
    """Train what GPT-2 has: its own regular expression, then bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return trained_on_bytes(tokenizer, more)


def split_level(normalizer: Any = None) -> Tokenizer:
    """Train what Llama 3 has, or Qwen with NFC: a regular expression of its own, then bytes."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=normalizer is None))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return trained_on_bytes(tokenizer)


def trained_on_bytes(tokenizer: Tokenizer, more: list[str] | None = None) -> Tokenizer:
    """Train a tokenizer whose alphabet is the 256 bytes."""
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([*TEXT, *(more or [])], trainer)
    return tokenizer


def byte_fallback() -> Tokenizer:
    """Train what Llama 2 has: no words, spaces written as a character, bytes for what is unknown."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    specials = [UNKNOWN, "<s>", *SPECIALS, *[f"<0x{byte:02X}>" for byte in range(256)]]
    lines = [line for text in TEXT for line in text.split("\n")]
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=specials, show_progress=False, max_token_length=8
    )
    tokenizer.train_from_iterator(lines, trainer)
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = [
        item for item in content["added_tokens"] if not item["content"].startswith("<0x")
    ]
    return Tokenizer.from_str(json.dumps(content))


def unigram() -> Tokenizer:
    """Train what T5 has: a unigram model behind Metaspace."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=500, special_tokens=[UNKNOWN, *SPECIALS], unk_token=UNKNOWN, show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def word_piece() -> Tokenizer:
    """Train what BERT has."""
    tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=600, special_tokens=[UNKNOWN, "[CLS]", "[SEP]", *SPECIALS], show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def with_odd_tokens() -> Tokenizer:
    """Train a byte-level BPE with added tokens of all kinds: stripping, whole words, not special."""
    tokenizer = byte_level()
    tokenizer.add_tokens(
        [
            AddedToken("<strip>", lstrip=True, rstrip=True),
            AddedToken("lambda", single_word=True, normalized=True),
            AddedToken("  ", normalized=False),
            AddedToken("\u00e9t\u00e9", normalized=True),
        ]
    )
    return tokenizer


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "byte_level": byte_level,
    "odd_tokens": with_odd_tokens,
    "llama3": split_level,
    "qwen": lambda: split_level(normalizers.NFC()),
    "llama2": byte_fallback,
    "unigram": unigram,
    "word_piece": word_piece,
}


def wrapped(tokenizer: Tokenizer, **named: Any) -> PreTrainedTokenizerFast:
    """Return the Hugging Face tokenizer around a backend."""
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **{"eos_token": SPECIALS[0], **named})


def by_call(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    """Return what is right: the ids by the tokenizer's own call."""
    return tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []


def encoded(rows: list[list[int]]) -> Encoded:
    """Return documents as an encoder gives them."""
    ids = np.array([token for row in rows for token in row], np.uint32)
    return Encoded(ids, np.cumsum([0, *map(len, rows)]))


def split(given: Encoded) -> list[list[int]]:
    """Return the ids document by document."""
    return (
        [part.tolist() for part in np.split(given.ids, given.offsets[1:-1])] if len(given.offsets) > 1 else []
    )


class Wrong:
    """An encoder that gives what the tokenizer gives, but for what it is told to spoil."""

    name = "fastokens"

    def __init__(
        self, tokenizer: Any, spoil: Callable[[str, int], bool] = lambda text, ordinal: False
    ) -> None:
        self._tokenizer = tokenizer
        self._spoil = spoil
        self.seen: list[str] = []

    def encode(self, texts: list[str]) -> Encoded:
        """Return the ids of some texts, one more for the spoiled ones."""
        rows = by_call(self._tokenizer, texts)
        for place, text in enumerate(texts):
            if self._spoil(text, len(self.seen) + place):
                rows[place] = [*rows[place], 7]
        self.seen += texts
        return encoded(rows)


class CharTokenizer(PreTrainedTokenizer):
    """A tokenizer without a backend: every character is its own code point."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**{"eos_token": "<e>", **named})

    @property
    def vocab_size(self) -> int:
        return 300

    def get_vocab(self) -> dict[str, int]:
        return {**{chr(code): code for code in range(300)}, **self.added_tokens_encoder}

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        return list(text)

    def _convert_token_to_id(self, token: str) -> int:
        return min(ord(token), 299)

    def _convert_id_to_token(self, index: int) -> str:
        return chr(index)
