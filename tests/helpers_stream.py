"""Text whose words are numbers, so that a wrong token shows itself; and the rules of both cuts, spelt out."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers_text import numbers_tokenizer

VOCABULARY = 3_000
EOS = 0
SEQ_LEN = 8
BATCH_SIZE = 4


def word_ids() -> dict[str, int]:
    """Return a vocabulary in which the word "w7" has the id 7."""
    return {"<eos>": EOS, "<unk>": 1, **{f"w{number}": number for number in range(2, VOCABULARY)}}


@pytest.fixture(scope="session")
def tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a tokenizer of whole words, "w7" being 7, without a pad token."""
    return numbers_tokenizer(tmp_path_factory.mktemp("words"), word_ids())


@pytest.fixture(scope="session", autouse=True)
def user_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's cache out of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("HF_DATASETS_OFFLINE", "1")
        yield


@cache
def some_texts(count: int, seed: int = 0, longest: int = 40) -> tuple[str, ...]:
    """Return texts of 0 to `longest` words; every word is another one than the word before."""
    random_ = random.Random(seed)
    words = (f"w{2 + number % (VOCABULARY - 2)}" for number in range(10**9))
    return tuple(
        " ".join(next(words) for _ in range(random_.choice([0, 1, 3, 7, 8, 9, longest])))
        for _ in range(count)
    )


def ids_of_text(text: str) -> list[int]:
    """Return the ids of a text by the vocabulary's rule."""
    return [int(word[1:]) for word in text.split()]


def joined_rows(
    texts: tuple[str, ...] | list[str], seq_len: int = SEQ_LEN, stride: int | None = None
) -> list[Any]:
    """Return what cut="stream" must give: rows [seq_len + 1] of all texts, each with an end-of-text token."""
    tokens = [token for text in texts for token in [*ids_of_text(text), EOS]]
    stride = stride or seq_len + 1
    return [tokens[at : at + seq_len + 1] for at in range(0, len(tokens) - seq_len, stride)]


def document_rows(
    texts: tuple[str, ...] | list[str], seq_len: int = SEQ_LEN, stride: int | None = None, min_tail: int = 2
) -> list[tuple[list[int], list[int], int, bool]]:
    """Return what cut="document" must give: (inputs, labels, tokens, stop) of each window."""
    stride = stride or seq_len
    rows = []
    for text in texts:
        ids = ids_of_text(text.strip())
        if len(ids) < max(min_tail, 1):
            continue
        tokens = [*ids, EOS]
        starts = list(range(0, len(tokens) - seq_len + 1, stride))
        num_full, covered = len(starts), starts[-1] + seq_len if starts else 0
        if not starts or len(tokens) - covered >= max(min_tail, 1):
            starts.append(covered)
        for number, start in enumerate(starts):
            inputs = tokens[start : start + seq_len]
            is_last = number == len(starts) - 1
            labels = inputs[1:] if is_last else tokens[start + 1 : start + seq_len + 1]
            labels = labels + [-100] * (seq_len - len(labels))
            overlap = seq_len - stride if 0 < number < num_full else 0
            labels = [-100] * overlap + labels[overlap:]
            rows.append((inputs + [EOS] * (seq_len - len(inputs)), labels, len(inputs), is_last))
    return rows


def rows_of(batches: Any) -> list[list[int]]:
    """Return the inputs of all rows."""
    return [row for batch in batches for row in batch["input_ids"].tolist()]


def marked_rows_of(batches: Any) -> list[tuple[list[int], list[int], int, bool]]:
    """Return (inputs, labels, tokens, stop) of all rows."""
    names = ("input_ids", "labels", "attention_mask", "is_natural_stop")
    found = []
    for batch in batches:
        for inputs, labels, mask, stop in zip(*(batch[name].tolist() for name in names), strict=True):
            assert mask == [1] * sum(mask) + [0] * (len(mask) - sum(mask))
            found.append((inputs, labels, sum(mask), stop))
    return found


def ids_of(batch: Any) -> list[list[int]]:
    """Return a batch's inputs."""
    return batch["input_ids"].tolist()


def through_file(state: Any) -> Any:
    """Send a state through a checkpoint, as JSON types and as torch saves it."""
    assert json.loads(json.dumps(state)) == state
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def write_shards(directory: Path, texts: tuple[str, ...], shards: int) -> list[str]:
    """Write texts as JSON lines into so many files; return their paths."""
    paths = []
    for number in range(shards):
        path = directory / f"shard-{number}.jsonl"
        own = texts[len(texts) * number // shards : len(texts) * (number + 1) // shards]
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in own))
        paths.append(str(path))
    return paths


class Texts:
    """Texts that can be iterated over again and again, and know how many were asked for."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.texts, self.taken = texts, 0

    def __iter__(self) -> Iterator[str]:
        for text in self.texts:
            self.taken += 1
            yield text
