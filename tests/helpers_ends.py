"""Where documents end, by the rule, without the code under test."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from transformers import AutoTokenizer


def document_lengths(tokenizer_dir: Path, texts: list[str]) -> list[int]:
    """Return the tokens of each document, its end-of-text token too."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
    return [len(tokenizer(text, add_special_tokens=False)["input_ids"]) + 1 for text in texts]


def expected_ends(lengths: list[int], sizes: list[int]) -> list[list[int]]:
    """Return, for chunks of some sizes, where documents of some lengths end in each."""
    ends: list[list[int]] = [[] for _ in sizes]
    number, place = 0, 0
    for length in lengths:
        place += length
        while place > sizes[number]:
            place -= sizes[number]
            number += 1
        ends[number].append(place)
    return ends


def stored_ends(directory: Path) -> list[list[int]]:
    """Return what the indices of a corpus hold, in the order of its chunks."""
    chunks = json.loads((directory / "meta.json").read_text())["chunks"]
    files = [directory / chunk["file"].replace(".bin", ".ends") for chunk in chunks]
    return [np.frombuffer(file.read_bytes(), "<i8").tolist() for file in files]


def chunk_sizes(directory: Path) -> list[int]:
    """Return the tokens of each chunk of a corpus."""
    return [chunk["tokens"] for chunk in json.loads((directory / "meta.json").read_text())["chunks"]]
