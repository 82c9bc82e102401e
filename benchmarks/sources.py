"""One text in every form that `build` accepts: the cost before the first batch and at every step.

    python benchmarks/sources.py [--quick]

The text is this Python's own library, in pieces of 1,500 characters, under a byte-level BPE of 8,000 ids
trained on a part of it. Every form is shuffled, with batches of 8 x 512 tokens.

first batch   seconds from calling `loader` to the first batch, including preparation or tokenization
tokens/s      of an empty loop, from the second batch on: whole epochs, at least a second
wait          the share of the time that a loop with steps of a given length waits for data
"""

from __future__ import annotations

import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import datasets
from measuring import options
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

import tdstream

SEQ_LEN, BATCH_SIZE, BUFFER = 512, 8, 500
PIECE = 1500  # characters of a document
EOS = "<eos>"
_AT_LEAST = 1.0  # second


def pieces(count: int) -> list[str]:
    """Return documents of Python source."""
    found: list[str] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
        if len(found) >= count:
            return found[:count]
    return (found * (count // len(found) + 1))[:count]


def trained(texts: list[str], directory: Path) -> str:
    """Train a tokenizer and save it; return its directory."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=8000, special_tokens=[EOS], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS).save_pretrained(directory)
    return str(directory)


def ways(texts: list[str], place: Path) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return (source, options) of each form, in the order of measurement."""
    stream = datasets.Dataset.from_dict({"text": texts}).to_iterable_dataset(num_shards=8)
    buffer = {"shuffle_buffer": BUFFER}
    return {
        "text, cache_dir, first run": (texts, {"cache_dir": place / "cache"}),
        "text, cache_dir, next run (a corpus)": (texts, {"cache_dir": place / "cache"}),
        "list in memory": (texts, {}),
        "live stream, no workers": (stream, buffer),
        "live stream, 1 worker": (stream, {**buffer, "num_workers": 1}),
        "live stream, 2 workers": (stream, {**buffer, "num_workers": 2}),
    }


def measured(make: Callable[[], Any], step: float) -> tuple[float, float, float]:
    """Return seconds to the first batch, tokens/s without steps, and the share of waiting with steps."""
    begun = time.perf_counter()
    loader = make()
    batches = iter(loader)
    next(batches)
    first = time.perf_counter() - begun
    begun, count = time.perf_counter(), sum(1 for _ in batches)
    while time.perf_counter() - begun < _AT_LEAST:
        count += sum(1 for _ in loader)
    rate = count * BATCH_SIZE * SEQ_LEN / (time.perf_counter() - begun)
    return first, rate, waiting(iter(loader), step)


def waiting(batches: Iterator[Any], step: float) -> float:
    """Return the share of the time that a loop waits for its batches, after the first."""
    next(batches)
    begun, waited = time.perf_counter(), 0.0
    while True:
        asked = time.perf_counter()
        batch = next(batches, None)
        waited += time.perf_counter() - asked
        if batch is None:
            return waited / (time.perf_counter() - begun)
        time.sleep(step)


def main() -> None:
    """Measure, print a table."""
    chosen = options(__doc__)
    datasets.disable_progress_bars()
    count, step = (1_500, 0.02) if chosen.quick else (20_000, 0.02)
    texts = pieces(count)
    with tempfile.TemporaryDirectory(prefix="tdstream-bench-", dir=chosen.dir) as name:
        place = Path(name)
        tokenizer = trained(texts[:: max(count // 2000, 1)], place / "tokenizer")
        print(f"{count:,} documents, {sum(map(len, texts)) / 1e6:.0f} MB; steps of {1000 * step:.0f} ms\n")
        print("| source | first batch, s | tokens/s | wait |\n|---|---|---|---|")
        for way, (source, more) in ways(texts, place).items():
            how = {"tokenizer": tokenizer, "seq_len": SEQ_LEN, "batch_size": BATCH_SIZE, "encoder": "hf"}

            make = partial(tdstream.loader, source, shuffle=True, **how, **more)
            first, rate, wait = measured(make, step)
            print(f"| {way} | {first:.1f} | {rate:,.0f} | {wait:.1%} |", flush=True)


if __name__ == "__main__":
    main()
