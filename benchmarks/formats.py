"""Token files of other tools against a corpus of tdstream's own, with the same tokens.

    python benchmarks/formats.py [--quick]

Every form is read shuffled, in batches of 8 x 2,048 tokens, from the page cache. The forms take turns; a
figure is the median of the rounds, the ratio that of the rounds' ratios to tdstream's own corpus.

Mtok/s       million tokens per second of an empty loop over `tdstream.build`
/ own        divided by tdstream's own corpus of the same storage type
documents    the same with documents=True
"""

from __future__ import annotations

import json
import statistics
import struct
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from measuring import options

import tdstream

EOS, LENGTH, SHARDS = 1, 500, 8
SEQ_LEN, BATCH_SIZE = 2048, 8


def write_own(place: Path, shards: list[Any]) -> Path:
    """Write a corpus with an index."""
    place.mkdir()
    names = [f"chunk_{number:06d}" for number in range(len(shards))]
    for name, tokens in zip(names, shards, strict=True):
        tokens.tofile(place / f"{name}.bin")
        np.arange(LENGTH, len(tokens) + 1, LENGTH, dtype="<i8").tofile(place / f"{name}.ends")
    sizes = {f"{name}.bin": len(tokens) for name, tokens in zip(names, shards, strict=True)}
    counts = {file: size // LENGTH for file, size in sizes.items()}
    meta = {
        "dtype": shards[0].dtype.name,
        "eos_token_id": EOS,
        "chunks": [{"file": file, "tokens": size} for file, size in sizes.items()],
        "doc_index": {"version": 1, "suffix": ".ends", "dtype": "int64"},
        "chunk_documents": counts,
        "num_documents": sum(counts.values()),
    }
    (place / "meta.json").write_text(json.dumps(meta))
    return place


def write_megatron(place: Path, shards: list[Any]) -> Path:
    """Write a prefix for each shard."""
    place.mkdir()
    code = {"uint16": 8, "int32": 4}
    for number, tokens in enumerate(shards):
        kept = tokens if tokens.dtype == np.uint16 else tokens.astype("<i4")
        documents = len(tokens) // LENGTH
        kept.tofile(place / f"{number}.bin")
        head = struct.pack("<QBQQ", 1, code[kept.dtype.name], documents, documents + 1)
        begins = np.arange(documents, dtype="<i8") * LENGTH * kept.itemsize
        lengths = np.full(documents, LENGTH, "<i4")
        index = lengths.tobytes() + begins.tobytes() + np.arange(documents + 1, dtype="<i8").tobytes()
        (place / f"{number}.idx").write_bytes(b"MMIDIDX\0\0" + head + index)
    return place


def write_llmc(place: Path, shards: list[Any]) -> Path:
    """Write shards with a header."""
    place.mkdir()
    for number, tokens in enumerate(shards):
        header = np.zeros(256, "<i4")
        header[:3] = (20240520, 1, len(tokens)) if tokens.itemsize == 2 else (20240801, 7, len(tokens))
        (place / f"{number:06d}.bin").write_bytes(header.tobytes() + tokens.tobytes())
    return place


def write_datatrove(place: Path, shards: list[Any]) -> Path:
    """Write .ds files with an index."""
    place.mkdir()
    for number, tokens in enumerate(shards):
        tokens.tofile(place / f"{number:06d}.ds")
        np.arange(LENGTH, len(tokens) + 1, LENGTH, dtype="<u8").tofile(place / f"{number:06d}.ds.index")
    return place


def write_arrow(place: Path, shards: list[Any]) -> Path:
    """Write Arrow files with a row for each document."""
    import pyarrow as pa  # noqa: PLC0415

    place.mkdir()
    for number, tokens in enumerate(shards):
        kept = tokens if tokens.dtype == np.uint16 else tokens.astype("<i4")
        offsets = np.append(np.arange(0, len(kept), LENGTH), len(kept)).astype("<i4")
        offsets[-2] += 1  # rows of one length would be blocks
        column = pa.ListArray.from_arrays(pa.array(offsets), pa.array(kept))
        table = pa.table({"input_ids": column})
        with (
            pa.OSFile(str(place / f"{number:06d}.arrow"), "wb") as sink,
            pa.ipc.new_stream(sink, table.schema) as out,
        ):
            out.write_table(table, max_chunksize=1000)
    return place


WRITERS = {
    "own": write_own,
    "megatron": write_megatron,
    "llmc": write_llmc,
    "datatrove": write_datatrove,
    "arrow": write_arrow,
}


def measure(path: Path, seconds: float, documents: bool) -> float:
    """Return tokens per second."""
    told = {"eos_token_id": EOS} if path.name.startswith("llmc") else {}
    pipe = tdstream.build(
        path, seq_len=SEQ_LEN, batch_size=BATCH_SIZE, shuffle=True, documents=documents, **told
    )
    tokens, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for batch in pipe:
            tokens += batch["input_ids"].numel()
            if time.perf_counter() - begun >= seconds:
                break
    return tokens / (time.perf_counter() - begun)


def main() -> None:
    """Print the table."""
    quick = options(__doc__ or "").quick
    size, rounds, seconds = (4_000_000, 3, 0.4) if quick else (40_000_000, 7, 1.5)
    with tempfile.TemporaryDirectory() as directory:
        for dtype in ("<u2", "<u4"):
            stream = np.random.default_rng(0).integers(2, 50_000, size * SHARDS, dtype).reshape(SHARDS, -1)
            stream = stream[:, : size // LENGTH * LENGTH].copy()
            stream[:, LENGTH - 1 :: LENGTH] = EOS
            name = np.dtype(dtype).name
            paths = {
                form: write(Path(directory) / f"{form}-{name}", list(stream))
                for form, write in WRITERS.items()
            }
            for documents in (False, True):
                found: dict[str, list[float]] = {form: [] for form in paths}
                for _ in range(rounds + 1):
                    for form, path in paths.items():
                        found[form].append(measure(path, seconds, documents))
                print(f"\n{name}{', documents=True' * documents}\n{'':12}{'Mtok/s':>10}{'/ own':>8}")
                for form, speeds in found.items():
                    pairs = zip(speeds[1:], found["own"][1:], strict=True)
                    ratio = statistics.median(speed / own for speed, own in pairs)
                    print(f"{form:12}{statistics.median(speeds[1:]) / 1e6:>10,.0f}{ratio:>8.2f}")


if __name__ == "__main__":
    main()
