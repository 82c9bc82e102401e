"""A small corpus from text that every machine has: the sources of Python's standard library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

VOCAB_SIZE = 2048
_END_OF_TEXT = "<|endoftext|>"
_TOKENS_PER_SHARD = 25_000  # several shards, so that samples cross their borders


def make_corpus(directory: Path, text_bytes: int) -> Path:
    """Collect about so much text, train a tokenizer on it, prepare a corpus; return the corpus directory."""
    text, tokenizer, corpus = directory / "text.jsonl", directory / "tokenizer", directory / "corpus"
    documents = list(_first(text_bytes))
    if not documents:
        sys.exit(f"resume_demo: this Python has no sources in {sysconfig.get_path('stdlib')}.")
    text.write_text("".join(json.dumps({"text": document}) + "\n" for document in documents))
    _train_tokenizer(documents, tokenizer)
    _prepare(text, tokenizer, corpus)
    return corpus


def describe(corpus: Path) -> str:
    """Return the size of a corpus in words."""
    meta = json.loads((corpus / "meta.json").read_text())
    return f"{meta['total_tokens']:,} tokens in {len(meta['chunks'])} shards"


def _first(text_bytes: int) -> Iterator[str]:
    """Yield the library's modules in alphabetical order, one document each, until there is enough text."""
    taken = 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        try:
            document = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        yield document
        taken += len(document)
        if taken >= text_bytes:
            return


def _train_tokenizer(documents: list[str], directory: Path) -> None:
    """Train a byte-level BPE and save it as a directory that transformers loads."""
    # Imported here: they take seconds, and only this step needs them.
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: PLC0415
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[_END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(documents, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=_END_OF_TEXT)  # type: ignore[no-untyped-call]  # transformers leaves it unannotated
    fast.save_pretrained(directory)


def _prepare(text: Path, tokenizer: Path, corpus: Path) -> None:
    """Prepare the corpus with the command that a user would type."""
    tdstream = shutil.which("tdstream", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if tdstream is None:
        sys.exit("resume_demo: there is no tdstream command; install the package with: pip install .")
    command = [tdstream, "prepare", "--dataset", str(text)]
    command += ["--tokenizer", str(tokenizer), "--output_path", str(corpus)]
    command += ["--tokens_per_chunk", str(_TOKENS_PER_SHARD), "--batch_size", "16"]
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(corpus.parent / "cache")}
    done = subprocess.run(command, env=offline, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"resume_demo: the preparation failed.\n{done.stdout}{done.stderr}")
