"""`tdstream prepare` against a plain streaming script, as whole processes, imports included.

    python benchmarks/prepare_speed.py --megabytes 200 --rounds 3 --text_dir /usr/lib/python3 /usr/share

The text comes from this machine: sources, documentation and other files in the given directories, cut into
documents of a few KB and written as parquet, or in another `--format`, with a byte-level BPE of 50,257 ids
trained on a part of it. The programs take turns. The proof of each encoder is timed once, separately. All
corpora are compared by bytes.

Without the programs' start (measured with one document), each encoder's preparation is compared with the
encoder alone: the same texts in memory, 1,000 at a time. Target: at least half of its speed.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

EOS = "<|endoftext|>"
ENDINGS = {
    ".py",
    ".pyi",
    ".txt",
    ".md",
    ".rst",
    ".html",
    ".xml",
    ".json",
    ".c",
    ".h",
    ".js",
    ".css",
    ".pm",
    ".pl",
}
DOCUMENT_CHARACTERS = 4000
LARGEST_FILE = 400_000  # larger files are tables and generated code
ENCODERS = ("hf", "fastokens", "gigatoken")
FORMATS = ("parquet", "jsonl", "jsonl.gz")

PLAIN = """
import json, sys
import numpy as np
from datasets import load_dataset
from transformers import AutoTokenizer

path, name, output = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(name)
eos = tokenizer.eos_token_id
dtype = np.uint16 if len(tokenizer) <= 65536 else np.uint32
kind = "parquet" if path.endswith("parquet") else "json"
stream = load_dataset(kind, data_files=path, split="train", streaming=True)
texts = []
total = 0
with open(output, "wb") as file:
    def flush():
        ids = []
        for row in tokenizer(texts, add_special_tokens=False)["input_ids"]:
            ids.extend(row)
            ids.append(eos)
        file.write(np.array(ids, dtype).tobytes())
        texts.clear()
        return len(ids)
    for record in stream:
        texts.append(record["text"])
        if len(texts) == 1000:
            total += flush()
    total += flush() if texts else 0
print(total)
"""

ALONE = """
import sys, time
import pyarrow.parquet
from tdstream.text.encoders.encoder import HfEncoder
from tdstream.text.encoders.encoder import load_fast
from tdstream.text.tokenizer import load_tokenizer

parquet, name, kind = sys.argv[1:]
encoder = HfEncoder(load_tokenizer(name))
encoder = encoder if kind == "hf" else load_fast(kind, encoder.backend.to_str())
texts = pyarrow.parquet.read_table(parquet).column(0).to_pylist()
begun = time.perf_counter()
for begin in range(0, len(texts), 1000):
    encoder.encode(texts[begin : begin + 1000])
print(time.perf_counter() - begun)
"""


def documents(directories: list[Path], num_bytes: int) -> Iterator[str]:
    """Yield documents with so many bytes in all."""
    taken = 0
    for path in sorted(readable(directories), key=lambda path: hashlib.md5(str(path).encode()).digest()):  # noqa: S324
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        for begin in range(0, len(text), DOCUMENT_CHARACTERS):
            part = text[begin : begin + DOCUMENT_CHARACTERS]
            taken += len(part.encode())
            yield part
        if taken >= num_bytes:
            return
    print(f"The directories hold only {taken / 1e6:.0f} MB of text.")


def readable(directories: list[Path]) -> Iterator[Path]:
    """Yield the files of some directories that look like text."""
    for directory in directories:
        for path in directory.rglob("*"):
            if path.suffix in ENDINGS and path.is_file() and 0 < path.stat().st_size < LARGEST_FILE:
                yield path


def write_lines(texts: list[str], path: Path) -> None:
    """Write texts as JSON lines, compressed by the path's ending."""
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)


def make_inputs(directories: list[Path], num_bytes: int, place: Path, kind: str) -> int:
    """Write the text and the tokenizer; return how many bytes of text there are."""
    texts = list(dict.fromkeys(documents(directories, num_bytes)))
    pq.write_table(pa.table({"text": texts}), place / "text.parquet", row_group_size=1000)
    if kind != "parquet":
        write_lines(texts, place / f"text.{kind}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=50_257, special_tokens=[EOS], initial_alphabet=alphabet, show_progress=False
    )
    sample = texts[:: max(1, len(texts) // 4000)]
    tokenizer.train_from_iterator(sample, trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS).save_pretrained(place / "tokenizer")
    return sum(len(text.encode()) for text in texts)


def environment(place: Path) -> dict[str, str]:
    """Return the environment of the programs: a cache of their own, no network, no bars in their logs."""
    quiet = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    return {**os.environ, "XDG_CACHE_HOME": str(place / "cache"), "HF_HUB_OFFLINE": "1", **quiet}


def timed(command: list[str], place: Path) -> tuple[float, float, float]:
    """Run a program; return its seconds, its CPU seconds, and its largest memory in MB."""
    begun = time.perf_counter()
    with (place / "log.txt").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment(place))
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit((place / "log.txt").read_text(errors="replace").replace("\r", "\n"))
    return time.perf_counter() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def plain(place: Path, kind: str) -> list[str]:
    """Return the command of the plain script."""
    arguments = [str(place / f"text.{kind}"), str(place / "tokenizer"), str(place / "plain.bin")]
    return [sys.executable, "-c", PLAIN, *arguments]


def ours(place: Path, kind: str, encoder: str, *more: str) -> list[str]:
    """Return the command of tdstream with an encoder."""
    flags = {
        "--dataset": place / f"text.{kind}",
        "--tokenizer": place / "tokenizer",
        "--output_path": place / encoder,
        "--encoder": encoder,
    }
    words = [str(word) for pair in flags.items() for word in pair]
    return [sys.executable, "-m", "tdstream", "prepare", *words, "--overwrite", *more]


def alone(place: Path, encoder: str) -> float:
    """Return the seconds that an encoder takes for all texts in memory."""
    arguments = [str(place / "text.parquet"), str(place / "tokenizer"), encoder]
    command = [sys.executable, "-c", ALONE, *arguments]
    return float(subprocess.check_output(command, text=True, env=environment(place)))


def steady(
    place: Path, kind: str, encoders: list[str], results: dict[str, list[tuple[float, float, float]]]
) -> None:
    """Print the time of each preparation after its start, and that of the encoder alone."""
    for encoder in encoders:
        shares = []
        for seconds, *_ in results[encoder]:
            after_start = seconds - timed(ours(place, kind, encoder, "--max_samples", "1"), place)[0]
            by_itself = alone(place, encoder)
            shares.append((by_itself / after_start, after_start, by_itself))
        share, after_start, by_itself = (statistics.median(column) for column in zip(*shares, strict=True))
        figures = f"after the start {after_start:.1f} s, alone {by_itself:.1f} s"
        print(f"{encoder}: {figures}: {share:.0%} of its speed")


def digest(files: list[Path]) -> str:
    """Return a hash of the concatenated bytes of files."""
    total = hashlib.sha256()
    for file in files:
        total.update(file.read_bytes())
    return total.hexdigest()


def check_bytes(place: Path, encoder: str) -> None:
    """Stop if a corpus differs from the plain script's."""
    if digest(sorted((place / encoder).glob("*.bin"))) != digest([place / "plain.bin"]):
        raise SystemExit(f"The corpus by {encoder} differs from the plain script's.")


def measure(
    place: Path, kind: str, encoders: list[str], rounds: int
) -> dict[str, list[tuple[float, float, float]]]:
    """Run the programs in turns."""
    results: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ("plain", *encoders)}
    for number in range(rounds):
        results["plain"].append(timed(plain(place, kind), place))
        for encoder in encoders:
            results[encoder].append(timed(ours(place, kind, encoder), place))
            check_bytes(place, encoder)
        line = {name: [round(value, 1) for value in runs[-1]] for name, runs in results.items()}
        print(f"round {number}: {json.dumps(line)}", flush=True)
    return results


def report(results: dict[str, list[tuple[float, float, float]]], num_bytes: int) -> None:
    """Print medians over the rounds, and ratios within them."""
    print(f"\n{'':10} {'seconds':>8} {'x':>6} {'CPU s':>7} {'x':>6} {'MB/s':>6} {'peak MB':>8}")
    for name, runs in results.items():
        seconds, cpu, peak = (statistics.median(column) for column in zip(*runs, strict=True))
        gains = [
            statistics.median(
                base[kind] / run[kind] for base, run in zip(results["plain"], runs, strict=True)
            )
            for kind in (0, 1)
        ]
        speed = num_bytes / 1e6 / seconds
        print(f"{name:10} {seconds:8.1f} {gains[0]:6.1f} {cpu:7.1f} {gains[1]:6.1f} {speed:6.1f} {peak:8.0f}")


def main() -> None:
    """Make the inputs, prove the encoders, let all run, report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--format", default="parquet", choices=FORMATS)
    parser.add_argument("--encoders", nargs="+", default=list(ENCODERS), choices=ENCODERS)
    parser.add_argument(
        "--text_dir", nargs="+", type=Path, default=[Path(os.__file__).parent, Path("/usr/share")]
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        # In a process of its own: the peak memory of a child includes its parent's at the start.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            wanted = int(arguments.megabytes * 1e6)
            num_bytes = pool.submit(make_inputs, arguments.text_dir, wanted, place, arguments.format).result()
        print(f"{num_bytes / 1e6:.1f} MB of text as {arguments.format}, {os.cpu_count()} cores")
        for encoder in arguments.encoders:
            seconds = timed(ours(place, arguments.format, encoder, "--max_samples", "1"), place)[0]
            print(f"{encoder}: one document, with the proof: {seconds:.1f} s", flush=True)
        results = measure(place, arguments.format, arguments.encoders, arguments.rounds)
        report(results, num_bytes)
        steady(place, arguments.format, arguments.encoders, results)


if __name__ == "__main__":
    main()
