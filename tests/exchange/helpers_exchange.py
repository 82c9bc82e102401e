"""Corpora to exchange, and readers of other tools' files, written from the layouts that those document."""

from __future__ import annotations

import csv
import gzip
import itertools
import os
import signal
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tdstream.corpus.meta import DOC_INDEX, CorpusMeta
from tdstream.writing.writer import CorpusWriter

EOS = 7
LENGTHS = (5, 1, 12, 30, 2, 40, 7, 1, 1, 9)
# A token tells its place; 7 ends each document.
DOCUMENTS = [[*range(1000 + 50 * n, 1000 + 50 * n + size - 1), EOS] for n, size in enumerate(LENGTHS)]
HELD_OUT = [[3000, 3001, EOS], [EOS], [3002, EOS]]
Documents = Sequence[Sequence[int]]


def join(documents: Documents) -> list[int]:
    """Return all tokens in order."""
    return [token for document in documents for token in document]


def find_ends(documents: Documents) -> list[int]:
    """Return where documents end."""
    return np.cumsum([len(document) for document in documents]).tolist()


def cut(documents: Documents, size: int) -> list[list[list[int]]]:
    """Return the documents of each shard of `size` tokens; one that crosses is two."""
    tokens, ends = join(documents), find_ends(documents)
    borders = sorted({0, *ends, *range(0, len(tokens), size), len(tokens)})
    shards: list[list[list[int]]] = [[] for _ in range(-(-len(tokens) // size))]
    for first, last in itertools.pairwise(borders):
        shards[first // size].append(tokens[first:last])
    return shards


def make_corpus(
    path: Path,
    documents: Documents = DOCUMENTS,
    *,
    shard: int = 50,
    dtype: str = "uint16",
    index: bool = True,
    held_out: Documents = (),
    tail: Sequence[int] = (),
) -> Path:
    """Write a corpus with the writer; `tail` is a document without an end."""
    plan = CorpusMeta(
        dtype=dtype, chunks=(), eos_token_id=EOS, tokens_per_chunk=shard, vocab_size=60_000,
        tokenizer_name_or_path="gpt2", doc_index=DOC_INDEX if index else {},
        holdout={"version": 1, "part": "train"} if held_out else {},
    )  # fmt: skip
    with CorpusWriter(path, plan) as writer:
        writer.append(np.array([*join(documents), *tail]), ends=np.array(find_ends(documents)))
        if held_out:
            writer.hold_out(np.array(join(held_out)), np.array(find_ends(held_out)))
        writer.finish(num_documents=len(documents))
    return path


def read_megatron(prefix: Path) -> tuple[str, list[list[int]]]:
    """Return the type and the documents of P.bin and P.idx."""
    index = Path(f"{prefix}.idx").read_bytes()
    assert index[:9] == b"MMIDIDX\0\0"
    version, code, sequences, entries = struct.unpack_from("<QBQQ", index, 9)
    assert version == 1
    assert len(index) == 34 + 12 * sequences + 8 * entries
    lengths = np.frombuffer(index, "<i4", sequences, 34)
    pointers = np.frombuffer(index, "<i8", sequences, 34 + 4 * sequences)
    firsts = np.frombuffer(index, "<i8", entries, 34 + 12 * sequences)
    dtype = {8: "uint16", 4: "int32"}[code]
    content = Path(f"{prefix}.bin").read_bytes()
    parts = [
        np.frombuffer(content, dtype, length, pointer).tolist()
        for length, pointer in zip(lengths, pointers, strict=True)
    ]
    assert sum(map(len, parts)) * np.dtype(dtype).itemsize == len(content)
    return dtype, [join(parts[low:high]) for low, high in itertools.pairwise(firsts.tolist())]


def read_datatrove(file: Path) -> tuple[str, list[list[int]]]:
    """Return the first line of the metadata, and the documents of X.ds."""
    tokenizer, count, words = Path(f"{file}.metadata").read_text().split("\n")
    width = int(tokenizer.split("|")[-1])
    tokens = np.fromfile(file, f"<u{width}").tolist()
    ends = np.fromfile(f"{file}.index", "<u8").tolist()
    assert int(count) == len(tokens) == ends[-1]
    assert words.endswith("T")
    return tokenizer, [tokens[first:last] for first, last in itertools.pairwise([0, *ends])]


def read_olmo(file: Path, dtype: str = "<u2") -> list[list[int]]:
    """Return the documents of a raw .npy and its table."""
    tokens = np.fromfile(file, dtype).tolist()
    with gzip.open(file.with_name(f"{file.stem}.csv.gz"), "rt", newline="") as table:
        rows = [(int(start), int(end), one, src, int(loc)) for start, end, one, src, loc in csv.reader(table)]
    assert [row[0] for row in rows] == [0, *(row[1] for row in rows[:-1])]
    assert rows[-1][1] == len(tokens)
    assert len({row[2] for row in rows}) == len(rows)
    assert [row[4] for row in rows] == list(range(len(rows)))
    return [tokens[row[0] : row[1]] for row in rows]


def read_llmc(file: Path) -> tuple[str, list[int]]:
    """Return the type and the tokens of a shard of llm.c."""
    content = file.read_bytes()
    header = np.frombuffer(content, "<i4", 256)
    dtype = {(20240520, 1): "<u2", (20240801, 7): "<u4"}[header[0].item(), header[1].item()]
    assert not header[3:].any()
    tokens = np.frombuffer(content, dtype, offset=1024).tolist()
    assert len(tokens) == header[2]
    return dtype, tokens


CHANGES = ("write", "fsync", "link", "replace", "rename", "mkdir")
"""The calls by which a directory changes."""


def die_at(call: int, run: Callable[[], Any]) -> bool:
    """Run in a child that is killed by SIGKILL before its n-th change of the disk; return whether it was."""
    child = os.fork()
    if child == 0:
        done = 0

        def dying(real: Callable[..., Any]) -> Callable[..., Any]:
            def change(*arguments: Any, **named: Any) -> Any:
                nonlocal done
                if done == call:
                    if real is real_write:
                        real_write(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                    os.kill(os.getpid(), signal.SIGKILL)
                done += 1
                return real(*arguments, **named)

            return change

        real_write = os.write
        for name in CHANGES:
            setattr(os, name, dying(getattr(os, name)))
        try:
            run()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def files_of(directory: Path) -> dict[str, bytes]:
    """Return the content of every file under a directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
