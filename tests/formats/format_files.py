"""Token files of other tools, written byte by byte as their documentation says."""

from __future__ import annotations

import csv
import gzip
import json
import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float64": 6, "float32": 7, "uint16": 8}
MAGICS = {"uint16": (20240520, 1), "uint32": (20240801, 7)}
Documents = Sequence[Sequence[int]]


def join(documents: Documents) -> list[int]:
    """Return all tokens in order."""
    return [token for document in documents for token in document]


def find_ends(documents: Documents) -> list[int]:
    """Return where documents with tokens end in the stream."""
    ends = np.cumsum([len(document) for document in documents]).tolist()
    return [end for end, document in zip(ends, documents, strict=True) if document]


def write_megatron(
    prefix: Path,
    documents: Documents,
    dtype: str = "uint16",
    *,
    sequences: Sequence[int] = (),
    modes: Sequence[int] = (),
) -> Path:
    """Write P.bin and P.idx; `sequences` are the sequences of each document, 1 by default."""
    tokens = np.array(join(documents), dtype)
    tokens.tofile(f"{prefix}.bin")
    counts = list(sequences) or [1] * len(documents)
    lengths: list[int] = []
    for document, count in zip(documents, counts, strict=True):
        cuts = [len(document) * part // count for part in range(count + 1)]
        lengths += [last - first for first, last in pairwise(cuts)]
    pointers = np.cumsum([0, *lengths])[:-1] * tokens.itemsize
    with open(f"{prefix}.idx", "wb") as file:
        header = struct.pack("<QBQQ", 1, CODES[dtype], len(lengths), len(documents) + 1)
        file.write(b"MMIDIDX\0\0" + header)
        file.write(np.array(lengths, "<i4").tobytes())
        file.write(pointers.astype("<i8").tobytes())
        file.write(np.cumsum([0, *counts]).astype("<i8").tobytes())
        file.write(np.array(modes, "<i1").tobytes())
    return prefix


def write_llmc(path: Path, tokens: Sequence[int], dtype: str = "uint16", *, magic: int = 0) -> Path:
    """Write a shard of llm.c."""
    header = np.zeros(256, "<i4")
    header[:3] = magic or MAGICS[dtype][0], MAGICS[dtype][1], len(tokens)
    path.write_bytes(header.tobytes() + np.array(tokens, dtype).tobytes())
    return path


def write_litpacked(path: Path, tokens: Sequence[int], dtype: str = "uint16") -> Path:
    """Write a file of lit-gpt's packed dataset."""
    head = b"LITPKDS" + struct.pack("<QBQ", 1, CODES[dtype], len(tokens))
    path.write_bytes(head + np.array(tokens, dtype).tobytes())
    return path


def write_datatrove(
    path: Path, documents: Documents, dtype: str = "uint16", *, index: bool = True, metadata: bool = True
) -> Path:
    """Write X.ds, and its index and metadata."""
    tokens = np.array(join(documents), dtype)
    tokens.tofile(path)
    if index:
        ends = np.cumsum([len(document) for document in documents])
        ends.astype("<u8").tofile(f"{path}.index")
    if metadata:
        text = f"gpt2|{tokens.itemsize}\n{len(tokens)}\n{len(tokens)} T"
        Path(f"{path}.metadata").write_text(text)
    return path


def write_olmo(path: Path, documents: Documents, dtype: str = "uint16", *, table: bool = True) -> Path:
    """Write raw tokens named .npy, and the table of documents."""
    np.array(join(documents), dtype).tofile(path)
    if table:
        ends = np.cumsum([0, *(len(document) for document in documents)]).tolist()
        with gzip.open(path.with_name(f"{path.stem}.csv.gz"), "wt", newline="") as file:
            for number, (first, last) in enumerate(pairwise(ends)):
                csv.writer(file).writerow([first, last, f"id-{number}", "a.jsonl.gz", number])
    return path


def write_litdata(directory: Path, chunks: Sequence[Documents], dtype: str = "uint16", **config: Any) -> Path:
    """Write a folder of litData with TokensLoader."""
    codes = {"uint16": 5, "int32": 2, "int64": 3, "uint32": 6}
    directory.mkdir()
    listed = []
    for number, documents in enumerate(chunks):
        tokens, first = np.array(join(documents), dtype), 4 * (len(documents) + 2)
        places = first + np.cumsum([0, *(len(one) for one in documents)]) * tokens.itemsize
        name = f"chunk-0-{number}.bin"
        content = struct.pack("<I", len(documents)) + places.astype("<u4").tobytes() + tokens.tobytes()
        (directory / name).write_bytes(content)
        listed.append(
            {"filename": name, "chunk_bytes": len(content), "chunk_size": len(documents), "dim": len(tokens)}
        )
    settings = {
        "data_format": [f"no_header_numpy:{codes[dtype]}"], "item_loader": "TokensLoader",
        "compression": None, "encryption": None, "chunk_bytes": 64000000, "chunk_size": None,
    }  # fmt: skip
    (directory / "index.json").write_text(json.dumps({"chunks": listed, "config": settings | config}))
    return directory


def write_mds(
    directory: Path, shards: Sequence[Documents], encoding: str = "ndarray:int32:4", **changes: Any
) -> Path:
    """Write a folder of MosaicML streaming with one column of rows of one length."""
    _, dtype, length = encoding.split(":")
    directory.mkdir()
    listed = []
    for number, rows in enumerate(shards):
        tokens, config = np.array(join(rows), dtype), json.dumps({"column_names": ["tokens"]}).encode()
        row_bytes = int(length) * tokens.itemsize
        first = 4 * (len(rows) + 2) + len(config)
        places = first + np.arange(len(rows) + 1) * row_bytes
        content = struct.pack("<I", len(rows)) + places.astype("<u4").tobytes() + config + tokens.tobytes()
        name = f"shard.{number:05d}.mds"
        (directory / name).write_bytes(content)
        shard = {
            "column_encodings": [encoding], "column_names": ["tokens"], "column_sizes": [row_bytes],
            "compression": None, "format": "mds", "hashes": [], "samples": len(rows), "version": 2,
            "raw_data": {"basename": name, "bytes": len(content), "hashes": {}}, "zip_data": None,
        }  # fmt: skip
        listed.append(shard | changes)
    (directory / "index.json").write_text(json.dumps({"version": 2, "shards": listed}))
    return directory
