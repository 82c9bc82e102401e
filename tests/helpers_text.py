"""Small real tokenizers, and the rule of a corpus's bytes in a few lines of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

EOS = "<|endoftext|>"


def train_tokenizer(directory: Path, *, eos: bool = True) -> Path:
    """Train a byte-level BPE on the source of this standard library's json module, and save it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=[EOS], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([Path(json.__file__).read_text(encoding="utf-8")], trainer)
    named = {"eos_token": EOS} if eos else {}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named).save_pretrained(directory)
    return directory


def numbers_tokenizer(directory: Path, ids: dict[str, int]) -> Path:
    """Save a tokenizer of whole words with chosen ids; "<eos>" and "<unk>" must be among them."""
    special = {"unk_token": "<unk>", "eos_token": "<eos>"}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=special["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    fast.save_pretrained(directory)
    return directory


def expected_tokens(tokenizer_dir: Path, texts: list[str], dtype: str) -> np.ndarray:
    """Return the tokens of a corpus by the rule: each text without special tokens, then end-of-text."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
    tokens: list[int] = []
    for text in texts:
        tokens += [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    return np.array(tokens, dtype)


def corpus_bytes(directory: Path) -> bytes:
    """Return the bytes of all shards, in the order of their names."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.bin")))


def write_jsonl(path: Path, records: list[Any]) -> Path:
    """Write records as JSON lines."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path
