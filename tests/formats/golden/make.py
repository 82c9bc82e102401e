"""Write the golden files again, each with the real writer where it can be installed.

    make .venv-formats/.formats && .venv-formats/bin/python tests/formats/golden/make.py [DIRECTORY]

The default DIRECTORY is a new one, whose name is printed; copy from there what is to be kept.
constraints.txt has the versions of the writers. Written by hand, as the tools' sources say, are: llm.c and
modded-nanogpt (no package), nanoGPT (a script around numpy.memmap), lit-gpt's packed files (no longer in its
package), the .csv.gz of dolma (its package needs a Rust compiler), Megatron's old index, and the file by
which a cache of Levanter is known (the cache itself needs tensorstore).
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import pickle
import struct
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from foreign_stubs import stub_torchvision
from golden_truth import (
    BYTES,
    CHUNK,
    CHUNK_SEED,
    DATATROVE,
    DOLMA,
    DOLMA2,
    GPT2,
    LIT_CHUNK,
    LLAMA,
    LLMC_U16,
    MASKED,
    MASKED_SPLIT,
    MERGE_SEED,
    MERGE_TOKENS,
    MODDED,
    NARROW,
    NPY,
    ROW,
    SPLIT,
    WIDE,
    Documents,
    first,
    join,
    last,
)

END = "eos"  # the word of the token that marks documents
Layout = list[tuple[str, int]]


class RaisesWhenUnpickled:
    """An object whose pickle raises as soon as it is opened."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("raise SystemExit('a pickle was opened')",)


# Megatron: megatron-core's IndexedDatasetBuilder


def write_megatron(
    prefix: Path, documents: Documents, dtype: type, *, eos: int | None = None, **more: Any
) -> None:
    """Write a prefix as tools/preprocess_data.py does, or with sequences and modes of its own."""
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    prefix.parent.mkdir(parents=True, exist_ok=True)
    modes = more.get("modes")
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype, multimodal=modes is not None)
    for number, body in enumerate(documents):
        document = body if eos is None else [*body, eos]
        if modes is not None:
            builder.add_document(document, [len(document)], [modes(number)])
        elif number == len(documents) - 1 or more.get("drop_empty_sequences"):
            builder.add_document(document, [len(document)] if document else [])
        else:
            longest = more.get("longest", len(document) or 1)
            for start in range(0, max(1, len(document)), longest):
                builder.add_item(torch.tensor(document[start : start + longest], dtype=torch.int64))
            builder.end_document()
    builder.finalize(f"{prefix}.idx")


def make_megatron(root: Path) -> None:
    """Write the sets of Megatron."""
    write_megatron(root / "u16/corpus", NARROW, np.uint16)
    write_megatron(root / "u16_eod/corpus", NARROW, np.uint16, eos=GPT2)
    write_megatron(root / "u16_no_sequence/corpus", NARROW, np.uint16, drop_empty_sequences=True)
    write_megatron(root / "i32/corpus", WIDE, np.int32, longest=100)
    write_megatron(root / "i32_eod/corpus", WIDE, np.int32, eos=LLAMA)
    write_megatron(root / "u8/corpus", BYTES, np.uint8)
    write_megatron(root / "i8/corpus", BYTES, np.int8)
    write_megatron(root / "i16/corpus", NARROW, np.int16)
    write_megatron(root / "i64/corpus", WIDE, np.int64)
    write_megatron(root / "f32/corpus", NARROW, np.float32)
    write_megatron(root / "f64/corpus", NARROW, np.float64)
    write_megatron(root / "modes_zero/corpus", NARROW, np.uint16, modes=lambda number: 0)
    write_megatron(root / "modes/corpus", NARROW, np.uint16, modes=lambda number: int(number % 3 == 2))
    write_megatron(root / "two/a", NARROW[:SPLIT], np.uint16, eos=GPT2)
    write_megatron(root / "two/b", NARROW[SPLIT:], np.uint16, eos=GPT2)
    masked = [[t - (1 << 31) if k >= 2 else t for k, t in enumerate(document)] for document in WIDE]
    write_megatron(root / "sft/corpus", masked, np.int32)
    make_megatron_legacy(root / "legacy/corpus")
    make_megatron_datatrove(root / "datatrove")


def make_megatron_legacy(prefix: Path) -> None:
    """Write the index of gpt-neox's IndexedDatasetBuilder, before 2021, by hand."""
    prefix.parent.mkdir(parents=True)
    np.array(join(NARROW), "<u2").tofile(f"{prefix}.bin")
    sizes = [len(document) for document in NARROW]
    ends = np.cumsum([0, *sizes])
    with open(f"{prefix}.idx", "wb") as file:
        file.write(b"TNTIDX\x00\x00" + struct.pack("<QQQ", 1, 8, 2))  # version, code of uint16, bytes
        file.write(struct.pack("<QQQ", len(sizes), len(sizes), len(sizes) + 1))
        for array in (np.arange(len(sizes) + 1), ends, sizes, np.arange(len(sizes) + 1)):
            file.write(np.asarray(array, "<i8").tobytes())


def make_megatron_datatrove(root: Path) -> None:
    """Write a prefix with datatrove."""
    from datatrove.pipeline.tokens.megatron_tokenizer import MegatronDocumentTokenizer

    with word_tokenizer(NARROW) as tokenizer:
        step = MegatronDocumentTokenizer(
            output_folder=str(root), tokenizer_name_or_path=tokenizer, save_filename="corpus", eos_token=END
        )
        step.run(texts(NARROW))
    for file in root.iterdir():
        file.rename(root / f"corpus{file.suffix}")


# llm.c and modded-nanogpt: dev/data/data_common.py, by hand


def write_llmc(root: Path, tokens: list[int], layout: Layout, magic: int, version: int, dtype: str) -> None:
    """Write shards as `write_datafile` does."""
    root.mkdir(parents=True, exist_ok=True)
    start = 0
    for name, count in layout:
        header = np.zeros(256, "<i4")
        header[:3] = magic, version, count
        part = np.array(tokens[start : start + count], dtype)
        (root / name).write_bytes(header.tobytes() + part.tobytes())
        start += count


def make_llmc(root: Path) -> None:
    """Write the sets of llm.c and modded-nanogpt."""
    narrow, wide = join(first(NARROW, GPT2)), join(first(WIDE, LLAMA))
    write_llmc(root / "llmc_u16", narrow, LLMC_U16, 20240520, 1, "<u2")
    write_llmc(root / "llmc_u32", wide, [("edu_fineweb_train_000001.bin", len(wide))], 20240801, 7, "<u4")
    write_llmc(root / "modded", narrow, MODDED, 20240520, 1, "<u2")
    write_llmc(root / "modded", narrow[::-1], [("fineweb_val_000000.bin", 100)], 20240520, 1, "<u2")
    header = np.zeros(256, "<i4")
    header[:4] = 20240522, 1, 1, 2 * 27  # version, examples, bytes of the longest
    example = [65535, 54, 0, 2, 4, 5, *range(1000, 1005)]  # start, bytes, number, label, completions, context
    for start in range(2000, 2040, 10):
        example += [3, *range(start, start + 3)]
    (root / "eval").mkdir()
    (root / "eval/hellaswag_val.bin").write_bytes(header.tobytes() + np.array(example, "<u2").tobytes())


# nanoGPT: data/openwebtext/prepare.py and data/shakespeare_char/prepare.py


def make_nanogpt(root: Path) -> None:
    """Write the sets of nanoGPT."""
    for path, documents in {
        "openwebtext/train.bin": last(NARROW[:8], GPT2),
        "openwebtext/val.bin": last(NARROW[8:], GPT2),
        "shakespeare_char/train.bin": BYTES,
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        tokens = join(documents)
        array = np.memmap(root / path, dtype=np.uint16, mode="w+", shape=(len(tokens),))
        array[:] = tokens
        array.flush()
    (root / "shakespeare_char/meta.pkl").write_bytes(pickle.dumps(RaisesWhenUnpickled()))


# numpy.save, as build-nanogpt's fineweb.py calls it


def make_npy(root: Path) -> None:
    """Write real .npy files."""
    tokens, start = join(first(NARROW, GPT2)), 0
    for name in ("u16", "rows", "object", "fortran", "big_endian", "float"):
        (root / name).mkdir(parents=True)
    for name, count in NPY:
        np.save(root / "u16" / name, np.array(tokens[start : start + count], np.uint16))
        start += count
    rows = np.array(tokens[:400], np.int32).reshape(8, 50)
    np.save(root / "rows/tokens.npy", rows)
    np.save(root / "fortran/tokens.npy", np.asfortranarray(rows))
    np.save(root / "float/tokens.npy", rows.ravel().astype(np.float32))
    np.save(root / "big_endian/tokens.npy", np.array(tokens, ">u2"))
    np.save(root / "object/tokens.npy", np.array([RaisesWhenUnpickled(), None], object), allow_pickle=True)


# datatrove: DocumentTokenizer, DocumentTokenizerMerger


@contextmanager
def word_tokenizer(documents: Documents) -> Iterator[str]:
    """Give the path, a relative one, of a tokenizer in which the word "1000" has the id 1000."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    words = {str(token): token for token in join(documents)}
    if max(words.values()) > 65535:  # ids of 4 bytes are written for a vocabulary that needs them
        words |= {str(filler): filler for filler in range(1_000_000, 1_065_536)}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        tokenizer = Tokenizer(WordLevel({END: DATATROVE, **words}, unk_token=END))
        tokenizer.pre_tokenizer = WhitespaceSplit()
        tokenizer.save("words.json")
        try:
            yield "words.json"
        finally:
            os.chdir(before)


def texts(documents: Documents, **ranges: list[tuple[int, int]]) -> list[Any]:
    """Return documents of datatrove, with ranges of characters that have no loss."""
    from datatrove.data import Document

    found = []
    for number, document in enumerate(documents):
        no_loss = ranges.get(f"document_{number}")
        metadata = {"no_loss_ranges": no_loss} if no_loss else {}
        found.append(Document(text=" ".join(map(str, document)), id=str(number), metadata=metadata))
    return found


def tokenize(root: Path, parts: list[list[Any]], documents: Documents, **options: Any) -> None:
    """Run DocumentTokenizer, one rank for each part."""
    from datatrove.pipeline.tokens import DocumentTokenizer

    with word_tokenizer(documents) as tokenizer:
        for rank, part in enumerate(parts):
            settings = {"eos_token": END, "shuffle_documents": False, **options}
            step = DocumentTokenizer(output_folder=str(root), tokenizer_name_or_path=tokenizer, **settings)
            step.run(part, rank=rank, world_size=len(parts))


def make_datatrove(root: Path) -> None:
    """Write the sets of datatrove."""
    from datatrove.pipeline.tokens import DocumentTokenizerMerger

    halves = [texts(NARROW[:SPLIT]), texts(NARROW[SPLIT:])]
    tokenize(root / "eos", halves, NARROW)
    tokenize(root / "bare", [texts(NARROW)], NARROW, eos_token=None)
    tokenize(root / "u32", [texts(WIDE)], WIDE)
    # Each word of NARROW has 4 characters and a space: token k is characters 5 k to 5 k + 3.
    ranges = {"document_3": [(10, 20)], "document_5": [(20, 34)]}
    tokenize(root / "loss", [texts(NARROW, **ranges)], NARROW, save_loss_metadata=True)
    tokenize(root / "chunks", [texts(NARROW)], NARROW, shuffle_chunk_size=CHUNK, seed=CHUNK_SEED)
    tokenize(root / "unindexed", [texts(NARROW)], NARROW, save_index=False)
    tokenize(root / "tokens_only", [texts(NARROW)], NARROW, save_index=False, save_final_metadata=False)
    DocumentTokenizerMerger(
        str(root / "eos"),
        str(root / "merged"),
        save_filename="merged",
        seed=MERGE_SEED,
        max_tokens_per_file=MERGE_TOKENS,
        progress=False,
    ).run()


# OLMo: olmo-core's array, dolma's table by hand


def make_olmo(root: Path) -> None:
    """Write the sets of OLMo."""
    for name, documents, dtype, eos, pattern in (
        ("u16", NARROW, np.uint16, DOLMA, "part-{}-00000"),
        ("u32", WIDE, np.uint32, DOLMA2, "part-{}-00000"),
        ("bare", NARROW, np.uint16, DOLMA, "part-{}-00000"),
        ("masked", MASKED, np.uint16, DOLMA, "token_ids_part_000{}"),
    ):
        split = MASKED_SPLIT if name == "masked" else SPLIT
        for number, part in enumerate((documents[:split], documents[split:])):
            stem = pattern.format(number)
            write_olmo(root / name / stem, last(part, eos), dtype, table=name != "bare")
            if name == "masked":
                mask = np.arange(sum(map(len, part)) + len(part)) % 2 == 0
                write_mask(root / name / f"labels_mask_part_000{number}.npy", mask)


def write_olmo(stem: Path, documents: Documents, dtype: type, *, table: bool) -> None:
    """Write tokens, and the table of documents as dolma's tokenizer writes it."""
    from olmo_core.data.utils import write_array_to_disk

    write_array_to_disk(np.array(join(documents), dtype), stem.with_suffix(".npy"))
    if not table:
        return
    # Without a name and a time, the bytes are the same each time.
    with (
        open(f"{stem}.csv.gz", "wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        tempfile.TemporaryFile("w+", newline="") as lines,
    ):
        writer, start = csv.writer(lines), 0
        for number, document in enumerate(documents):
            writer.writerow([start, start + len(document), f"doc-{number}", "documents.jsonl.gz", number + 1])
            start += len(document)
        lines.seek(0)
        packed.write(lines.read().encode())


def write_mask(path: Path, mask: np.ndarray) -> None:
    """Write a bool for each token."""
    from olmo_core.data.utils import write_array_to_disk

    write_array_to_disk(mask, path)


# lit-gpt and TinyLlama: PackedDatasetBuilder, by hand


def make_litpacked(root: Path) -> None:
    """Write packed files, the last one filled up with the separator."""
    for name, documents, dtype, code, bos in (
        ("u16", NARROW, "<u2", 8, 1),
        ("i32", WIDE, "<i4", 4, LLAMA),
    ):
        (root / name).mkdir(parents=True)
        tokens = join(first(documents, bos))
        for number, start in enumerate(range(0, len(tokens), LIT_CHUNK)):
            chunk = np.full(LIT_CHUNK, bos, dtype)
            part = tokens[start : start + LIT_CHUNK]
            chunk[: len(part)] = part
            header = b"LITPKDS" + struct.pack("<QBQ", 1, code, LIT_CHUNK)
            (root / name / f"train_{number:010d}.bin").write_bytes(header + chunk.tobytes())


# litData: BinaryWriter, which litdata.optimize runs


def make_litdata(root: Path) -> None:
    """Write the sets of litData."""
    import torch
    from litdata.streaming.item_loader import PyTreeLoader, TokensLoader
    from litdata.streaming.writer import BinaryWriter
    from litdata.utilities.encryption import FernetEncryption

    def arrays(dtype: type) -> Any:
        return lambda document: np.array(document, dtype)

    def tensors(dtype: Any) -> Any:
        return lambda document: torch.tensor(document, dtype=dtype)

    narrow, wide = last(NARROW, GPT2), last(WIDE, LLAMA)
    zstd = {"compression": "zstd", "compression_level": "chunk"}
    for name, documents, item, options in (
        ("u16", narrow, arrays(np.uint16), {}),
        ("u32", wide, arrays(np.uint32), {}),
        ("i32", WIDE, arrays(np.int32), {}),
        ("i64", wide, arrays(np.int64), {}),
        ("tensor_u16", narrow, tensors(torch.uint16), {}),
        ("tensor_i32", wide, tensors(torch.int32), {}),
        ("tensor_i64", wide, tensors(torch.int64), {}),
        ("zstd", narrow, arrays(np.uint16), zstd),
        ("encrypted", narrow, arrays(np.uint16), {"encryption": FernetEncryption("golden", level="chunk")}),
        (
            "pytree",
            narrow,
            lambda document: {"tokens": np.array(document, np.uint16)},
            {"loader": PyTreeLoader},
        ),
    ):
        (root / name).mkdir(parents=True)
        loader = options.pop("loader", TokensLoader)
        writer = BinaryWriter(str(root / name), chunk_size=150, item_loader=loader(), **options)
        for number, document in enumerate(documents):
            writer[number] = item(document)
        writer.done()
        writer.merge()
        index = root / name / "index.json"
        index.write_text(json.dumps(json.loads(index.read_text()) | {"updated_at": "0"}, sort_keys=True))


# MosaicML streaming: MDSWriter


def make_mds(root: Path) -> None:
    """Write the sets of MDS."""
    stub_torchvision()
    from streaming import MDSWriter

    narrow, wide = join(last(NARROW, GPT2)), join(last(WIDE, LLAMA))
    root.mkdir()

    def i32(row: list[int]) -> dict[str, Any]:
        return {"tokens": np.array(row, np.int32)}

    for name, stream, columns, item, options in (
        ("fixed_i32", wide, {"tokens": f"ndarray:int32:{ROW}"}, i32, {"size_limit": 1400}),
        (
            "fixed_u16",
            narrow,
            {"tokens": f"ndarray:uint16:{ROW}"},
            lambda r: {"tokens": np.array(r, np.uint16)},
            {},
        ),
        ("bytes", wide, {"tokens": "bytes"}, lambda r: {"tokens": np.array(r, np.int64).tobytes()}, {}),
        ("ndarray", wide, {"tokens": "ndarray:int32"}, i32, {}),
        ("pkl", wide, {"tokens": "pkl"}, i32, {}),
        ("zstd", wide, {"tokens": f"ndarray:int32:{ROW}"}, i32, {"compression": "zstd"}),
        (
            "two_columns",
            wide,
            {"tokens": f"ndarray:int32:{ROW}", "attention_mask": f"ndarray:uint8:{ROW}"},
            lambda r: {**i32(r), "attention_mask": np.ones(ROW, np.uint8)},
            {},
        ),
    ):
        with MDSWriter(out=str(root / name), columns=columns, hashes=["xxh64"], **options) as writer:
            for start in range(0, 6 * ROW, ROW):
                writer.write(item(stream[start : start + ROW]))


# datasets


def make_arrow(root: Path) -> None:
    """Write the sets of datasets."""
    import pyarrow as pa
    from datasets import Dataset, Features, LargeList, List, Value
    from datasets.arrow_writer import ArrowWriter

    narrow, wide = last(NARROW, GPT2), last(WIDE, LLAMA)
    blocks = [join(wide)[start : start + ROW] for start in range(0, 6 * ROW, ROW)]
    i32 = Value("int32")

    def save(name: str, rows: list[Any], feature: Any, column: str = "input_ids", **options: Any) -> None:
        features = None if feature is None else Features({column: feature})
        Dataset.from_dict({column: rows}, features=features).save_to_disk(root / name, **options)

    save("i32", wide, List(i32), num_shards=2)
    save("u16", narrow, List(Value("uint16")))
    save("i64", wide, List(Value("int64")))
    save("ints", WIDE, None)
    save("blocks", blocks, List(i32))
    save("fixed", blocks, List(i32, length=ROW))
    save("large", wide, LargeList(i32))
    save("text", [" ".join(map(str, document)) for document in NARROW], Value("string"), "text")
    save("strings", [list(map(str, document)) for document in NARROW], List(Value("string")))
    (root / "batches").mkdir()
    features = Features(
        {"text": Value("string"), "input_ids": List(i32), "attention_mask": List(Value("int8"))}
    )
    path = str(root / "batches/data.arrow")
    with ArrowWriter(path=path, features=features, writer_batch_size=4) as writer:
        for number, document in enumerate(wide):
            writer.write(
                {"text": f"document {number}", "input_ids": document, "attention_mask": [1] * len(document)}
            )
        writer.finalize()
    for state in root.glob("*/state.json"):  # the fingerprint is drawn by chance
        content = json.loads(state.read_text()) | {"_fingerprint": "0123456789abcdef"}
        state.write_text(json.dumps(content, indent=2, sort_keys=True))
    parquet = root.parent / "parquet"
    parquet.mkdir()
    table = pa.table({"input_ids": pa.array(wide, pa.list_(pa.int32()))})
    Dataset(table).to_parquet(str(parquet / "train-00000-of-00001.parquet"))


def make_levanter(root: Path) -> None:
    """Write the one file by which a cache of Levanter is known."""
    ledger = {
        "total_num_rows": 10,
        "shard_rows": {"shard_0": 10},
        "is_finished": True,
        "finished_shards": ["shard_0"],
        "field_counts": {"input_ids": 425},
        "metadata": {"preprocessor_metadata": {}},
    }
    root.mkdir()
    (root / "shard_ledger.json").write_text(json.dumps(ledger, indent=2))


def make_all(root: Path) -> None:
    """Write all sets into a directory."""
    warnings.simplefilter("ignore")
    make_megatron(root / "megatron")
    make_llmc(root / "llmc")
    make_nanogpt(root / "nanogpt")
    make_npy(root / "npy")
    make_datatrove(root / "datatrove")
    make_olmo(root / "olmo")
    make_litpacked(root / "litpacked")
    make_litdata(root / "litdata")
    make_mds(root / "mds")
    make_arrow(root / "arrow")
    make_levanter(root / "levanter")


if __name__ == "__main__":
    place = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="golden-formats-")).absolute()
    make_all(place)
    print(place)
