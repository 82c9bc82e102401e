"""What the files in golden/ hold, worked out from the documents and the writers' rules, never read back.

The documents have LENGTHS tokens. Token j of the 425 of all documents is 1000 + j (NARROW), 200,000 + 1,000 j
(WIDE) or 1 + j % 120 (BYTES). Where the writer marks documents, the token that marks them is added to each,
the empty one too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

GOLDEN = Path(__file__).with_name("golden")
LENGTHS = (5, 1, 0, 12, 300, 7, 64, 2, 33, 1)
SPLIT = 5  # documents in the first of two files, where each file holds whole documents
Documents = list[list[int]]


def bodies(first: int, step: int = 1, modulus: int = 1 << 40) -> Documents:
    """Return the documents without any token that marks them."""
    ends = list(accumulate(LENGTHS, initial=0))
    return [[first + step * (j % modulus) for j in range(start, end)] for start, end in pairwise(ends)]


NARROW, WIDE, BYTES = bodies(1000), bodies(200_000, 1000), bodies(1, 1, 120)
GPT2, LLAMA, DATATROVE = 50256, 128000, 0  # ids of the tokens that mark documents


def last(documents: Documents, eos: int) -> Documents:
    """Return documents with the token behind each."""
    return [[*document, eos] for document in documents]


def first(documents: Documents, eos: int) -> Documents:
    """Return documents with the token before each."""
    return [[eos, *document] for document in documents]


def join(documents: Documents) -> list[int]:
    """Return all tokens in order."""
    return [token for document in documents for token in document]


def ends_of(documents: Documents) -> list[int]:
    """Return where each document ends in the stream; an empty one repeats the end before it."""
    return list(accumulate(len(document) for document in documents))


def ends_within(documents: Documents, num_tokens: int) -> list[int]:
    """Return the ends in a stream that was cut: the last document ends with it."""
    return [*(end for end in ends_of(documents) if end < num_tokens), num_tokens]


class GoldenPiece(NamedTuple):
    """Consecutive tokens in one file."""

    file: str
    """Relative to golden/."""
    offset: int
    """Bytes before the first token."""
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Golden:
    """One golden set."""

    name: str
    path: str
    """Directory, file, prefix or pattern that a user passes, relative to golden/."""
    format: str
    dtype: str
    """Type of the tokens in the files."""
    tokens: list[int]
    """The stream; empty for a set that has none worth reading."""
    ends: list[int] | None
    """Where the documents end, by an index or the rule of the token; None if nothing tells.

    Where a token tells, what follows its last document is one too, cut short: it ends with the stream.
    """
    ends_from: Literal["index", "token", None]
    """What tells the ends: an index beside the tokens, or only the token that marks documents."""
    eos_token_id: int | None = None
    eos_at: Literal["first", "last", None] = None
    pieces: tuple[GoldenPiece, ...] = ()
    """Where tokens lie in files, for what can be mapped."""
    told: tuple[str, ...] = ()
    """Options without which the files do not tell what they hold: "dtype", "eos_token_id"."""
    refused: str | None = None
    """Why it cannot be read in place; the tokens are those of a conversion."""
    writer: str
    notes: str = ""

    @property
    def place(self) -> Path:
        """Absolute path."""
        return GOLDEN / self.path

    def options(self) -> dict[str, Any]:
        """Return what a caller must say, and where the token stands."""
        told: dict[str, Any] = {name: getattr(self, name) for name in self.told}
        return told | ({"eos_first": self.eos_at == "first"} if "eos_token_id" in told else {})

    def files(self) -> list[Path]:
        """Return the files that hold tokens, in order."""
        return [GOLDEN / piece.file for piece in self.pieces]


def cut(file_tokens: Sequence[tuple[str, int, int]]) -> tuple[GoldenPiece, ...]:
    """Return pieces of (file, offset, tokens)."""
    return tuple(GoldenPiece(*piece) for piece in file_tokens)


MEGATRON = "megatron-core IndexedDatasetBuilder"


def megatron(
    name: str,
    documents: Documents,
    dtype: str,
    *,
    eos: int | None = None,
    notes: str = "",
    writer: str = MEGATRON,
) -> Golden:
    """Return a set of one prefix."""
    prefix = f"megatron/{name}/corpus"
    documents = documents if eos is None else last(documents, eos)
    return Golden(
        name=f"megatron_{name}",
        path=prefix,
        format="megatron",
        dtype=dtype,
        tokens=join(documents),
        ends=ends_of(documents),
        ends_from="index",
        eos_token_id=eos,
        eos_at=None if eos is None else "last",
        pieces=cut([(f"{prefix}.bin", 0, sum(map(len, documents)))]),
        writer=writer,
        notes=notes,
    )


def no_megatron(
    name: str, dtype: str, refused: str, documents: Documents = NARROW, *, writer: str = MEGATRON
) -> Golden:
    """Return a set of one prefix that must be refused."""
    return Golden(
        name=f"megatron_{name}",
        path=f"megatron/{name}/corpus",
        format="megatron",
        dtype=dtype,
        tokens=join(documents),
        ends=ends_of(documents),
        ends_from="index",
        refused=refused,
        writer=writer,
    )


def megatron_sets() -> list[Golden]:
    """Return the sets of Megatron."""
    marked = last(NARROW, GPT2)
    halves = [sum(map(len, half)) for half in (marked[:SPLIT], marked[SPLIT:])]
    return [
        megatron("u16", NARROW, "uint16", notes="the empty document is a sequence of 0 tokens"),
        megatron("u16_eod", NARROW, "uint16", eos=GPT2, notes="--append-eod"),
        megatron("u16_no_sequence", NARROW, "uint16", notes="the empty document has no sequence"),
        megatron("i32", WIDE, "int32", notes="the long document has 3 sequences, of 100 tokens each"),
        megatron("i32_eod", WIDE, "int32", eos=LLAMA, notes="--append-eod"),
        megatron("u8", BYTES, "uint8"),
        megatron("i8", BYTES, "int8"),
        megatron("i16", NARROW, "int16"),
        megatron("i64", WIDE, "int64"),
        megatron("modes_zero", NARROW, "uint16", notes="multimodal=True, all modes 0"),
        megatron(
            "datatrove",
            NARROW,
            "uint16",
            eos=DATATROVE,
            writer="datatrove MegatronDocumentTokenizer",
            notes="datatrove names it corpus_00000_tokens; renamed",
        ),
        Golden(
            name="megatron_two",
            path="megatron/two",
            format="megatron",
            dtype="uint16",
            tokens=join(marked),
            ends=ends_of(marked),
            ends_from="index",
            eos_token_id=GPT2,
            eos_at="last",
            pieces=cut([("megatron/two/a.bin", 0, halves[0]), ("megatron/two/b.bin", 0, halves[1])]),
            writer=MEGATRON,
            notes="a directory of two prefixes",
        ),
        no_megatron("f32", "float32", "float tokens"),
        no_megatron("f64", "float64", "float tokens"),
        no_megatron("modes", "uint16", "multimodal: every third sequence has mode 1"),
        no_megatron("legacy", "uint16", "an index of the old kind, TNTIDX", writer="by hand, after gpt-neox"),
        no_megatron("sft", "int32", "bit 31 is a loss mask: every document from its third token on", WIDE),
    ]


def llmc(
    name: str, files: Sequence[tuple[str, int]], documents: Documents, dtype: str, **more: str
) -> Golden:
    """Return a set of shards, of (name, tokens) each, which cut documents where they are full."""
    eos = {"uint16": GPT2, "uint32": LLAMA}[dtype]
    documents = first(documents, eos)
    return Golden(
        name=name,
        path=more.get("path", f"llmc/{name}"),
        format="llmc",
        dtype=dtype,
        tokens=join(documents),
        ends=ends_of(documents),
        ends_from="token",
        eos_token_id=eos,
        eos_at="first",
        pieces=cut([(f"llmc/{name}/{file}", 1024, tokens) for file, tokens in files]),
        told=("eos_token_id",),
        writer="by hand, after write_datafile of llm.c dev/data/data_common.py",
        notes=more.get("notes", ""),
    )


LLMC_U16 = [
    ("fineweb_train_000001.bin", 200),
    ("fineweb_train_000002.bin", 200),
    ("fineweb_train_000003.bin", 35),
]
MODDED = [("fineweb_train_000001.bin", 300), ("fineweb_train_000002.bin", 135)]


def llmc_sets() -> list[Golden]:
    """Return the sets of llm.c and modded-nanogpt."""
    by_hand = "by hand, after llm.c dev/data"
    train = llmc("modded", MODDED, NARROW, "uint16", path="llmc/modded/fineweb_train_*.bin")
    return [
        llmc("llmc_u16", LLMC_U16, NARROW, "uint16", notes="shards of 200 tokens cut documents"),
        llmc("llmc_u32", [("edu_fineweb_train_000001.bin", 435)], WIDE, "uint32"),
        train,
        Golden(
            name="modded_folder",
            path="llmc/modded",
            format="llmc",
            dtype="uint16",
            tokens=[],
            ends=None,
            ends_from=None,
            refused="train and val in one folder; fineweb_train_*.bin and fineweb_val_*.bin are two corpora",
            writer=train.writer,
        ),
        Golden(
            name="llmc_eval",
            path="llmc/eval/hellaswag_val.bin",
            format="llmc",
            dtype="uint16",
            tokens=[],
            ends=None,
            ends_from=None,
            refused="magic 20240522: an evaluation file, not a stream of tokens",
            writer=by_hand,
        ),
    ]


def raw(name: str, path: str, documents: Documents, *, eos: int | None, **more: str) -> Golden:
    """Return a file of nanoGPT."""
    documents = documents if eos is None else last(documents, eos)
    return Golden(
        name=name,
        path=path,
        format="raw",
        dtype="uint16",
        tokens=join(documents),
        ends=None if eos is None else ends_of(documents),
        ends_from=None if eos is None else "token",
        eos_token_id=eos,
        eos_at=None if eos is None else "last",
        pieces=cut([(path, 0, sum(map(len, documents)))]),
        told=("dtype",) if eos is None else ("dtype", "eos_token_id"),
        writer="numpy.memmap, after nanoGPT data/*/prepare.py",
        notes=more.get("notes", ""),
    )


def raw_sets() -> list[Golden]:
    """Return the sets of nanoGPT."""
    train = raw("nanogpt_train", "nanogpt/openwebtext/train.bin", NARROW[:8], eos=GPT2)
    return [
        train,
        raw("nanogpt_val", "nanogpt/openwebtext/val.bin", NARROW[8:], eos=GPT2),
        Golden(
            name="nanogpt_folder",
            path="nanogpt/openwebtext",
            format="raw",
            dtype="uint16",
            tokens=[],
            ends=None,
            ends_from=None,
            told=("dtype",),
            refused="train.bin and val.bin in one folder are two corpora",
            writer=train.writer,
        ),
        raw(
            "nanogpt_char",
            "nanogpt/shakespeare_char/train.bin",
            BYTES,
            eos=None,
            notes="meta.pkl beside it raises SystemExit when it is unpickled",
        ),
    ]


NPY = [("edufineweb_train_000001.npy", 200), ("edufineweb_train_000002.npy", 235)]


def npy_sets() -> list[Golden]:
    """Return real .npy files."""
    documents = first(NARROW, GPT2)
    shards = Golden(
        name="npy_u16",
        path="npy/u16",
        format="npy",
        dtype="uint16",
        tokens=join(documents),
        ends=ends_of(documents),
        ends_from="token",
        eos_token_id=GPT2,
        eos_at="first",
        pieces=cut([(f"npy/u16/{file}", 128, tokens) for file, tokens in NPY]),
        told=("eos_token_id",),
        writer="numpy.save, after build-nanogpt fineweb.py",
    )
    rows = join(documents)[:400]

    def refused(name: str, dtype: str, why: str, tokens: list[int]) -> Golden:
        return Golden(
            name=f"npy_{name}",
            path=f"npy/{name}/tokens.npy",
            format="npy",
            dtype=dtype,
            tokens=tokens,
            ends=None,
            ends_from=None,
            refused=why,
            writer="numpy.save",
        )

    return [
        shards,
        Golden(
            name="npy_rows",
            path="npy/rows/tokens.npy",
            format="npy",
            dtype="int32",
            tokens=rows,
            ends=ends_within(documents, 400),
            ends_from="token",
            eos_token_id=GPT2,
            eos_at="first",
            pieces=cut([("npy/rows/tokens.npy", 128, 400)]),
            told=("eos_token_id",),
            writer="numpy.save",
            notes="8 rows of 50, in C order: may be read as one stream, or refused",
        ),
        refused(
            "object", "object", "dtype object is a pickle; it raises SystemExit when it is unpickled", []
        ),
        refused("fortran", "int32", "Fortran order: the rows do not lie one after another", rows),
        refused("big_endian", "uint16", "big-endian tokens", join(documents)),
        refused("float", "float32", "float tokens", rows),
    ]


def datatrove(
    name: str, files: Sequence[tuple[str, Documents]], dtype: str, eos: int | None, **more: str
) -> Golden:
    """Return a folder of .ds files, of documents each."""
    documents = [document for _, documents in files for document in documents]
    return Golden(
        name=f"datatrove_{name}",
        path=f"datatrove/{name}",
        format="datatrove",
        dtype=dtype,
        tokens=join(documents),
        ends=ends_of(documents),
        ends_from="index",
        eos_token_id=eos,
        eos_at=None if eos is None else "last",
        pieces=cut([(f"datatrove/{name}/{file}", 0, sum(map(len, docs))) for file, docs in files]),
        writer=more.get("writer", "datatrove DocumentTokenizer"),
        notes=more.get("notes", ""),
    )


CHUNK, CHUNK_SEED = 50, 1  # shuffle_chunk_size, seed
MERGE_SEED, MERGE_TOKENS = 3, 200  # seed, max_tokens_per_file


def shuffled_chunks() -> Documents:
    """Return the documents between the ends that a chunk-shuffled file tells: chunks are cut there, too.

    435 tokens are 8 chunks of 50 tokens in the order of the seed; the last 35 are dropped.
    """
    stream, ends = join(last(NARROW, DATATROVE)), ends_of(last(NARROW, DATATROVE))
    parts: Documents = []
    for chunk in np.random.default_rng(CHUNK_SEED).permutation(len(stream) // CHUNK).tolist():
        start, stop = chunk * CHUNK, (chunk + 1) * CHUNK
        inside = [start, *(end for end in ends if start < end < stop), stop]
        parts += [stream[a:b] for a, b in pairwise(inside)]
    return parts


def merged() -> list[tuple[str, Documents]]:
    """Return the files of a merged set: documents of two files in turns that the seed chooses."""
    inputs = [iter(last(NARROW, DATATROVE)[:SPLIT]), iter(last(NARROW, DATATROVE)[SPLIT:])]
    files: list[Documents] = [[]]
    turns = np.repeat([0, 1], [SPLIT, len(NARROW) - SPLIT])
    for turn in np.random.default_rng(MERGE_SEED).permutation(turns).tolist():
        if sum(map(len, files[-1])) >= MERGE_TOKENS:
            files.append([])
        files[-1].append(next(inputs[turn]))
    return [(f"{number:03d}_merged.ds", documents) for number, documents in enumerate(files)]


def cropped() -> Documents:
    """Return documents of which one has a range without loss to its end: datatrove drops it, eos included."""
    documents = last(NARROW, DATATROVE)
    documents[5] = documents[5][:4]
    return documents


def datatrove_sets() -> list[Golden]:
    """Return the sets of datatrove."""
    marked = last(NARROW, DATATROVE)
    one = "00000_unshuffled.ds"
    return [
        datatrove(
            "eos", [(one, marked[:SPLIT]), ("00001_unshuffled.ds", marked[SPLIT:])], "uint16", DATATROVE
        ),
        datatrove("bare", [(one, NARROW)], "uint16", None, notes="the empty text repeats an end"),
        datatrove("u32", [(one, last(WIDE, DATATROVE))], "uint32", DATATROVE),
        datatrove(
            "loss",
            [(one, cropped())],
            "uint16",
            DATATROVE,
            notes="with .ds.loss: 0 for tokens 2, 3 of document 3; document 5 lost its last 3 and eos",
        ),
        datatrove(
            "chunks",
            [("00000_00000_chunk_shuffled.ds", shuffled_chunks())],
            "uint16",
            DATATROVE,
            notes="the index has the cuts of chunks, too; the last 35 tokens are dropped",
        ),
        datatrove(
            "merged",
            merged(),
            "uint16",
            DATATROVE,
            writer="datatrove DocumentTokenizerMerger",
            notes="merged.ds.metadata has no merged.ds",
        ),
        Golden(
            name="datatrove_unindexed",
            path="datatrove/unindexed",
            format="datatrove",
            dtype="uint16",
            tokens=join(marked),
            ends=ends_of(marked),
            ends_from="token",
            eos_token_id=DATATROVE,
            eos_at="last",
            pieces=cut([(f"datatrove/unindexed/{one}", 0, 435)]),
            told=("eos_token_id",),
            writer="datatrove DocumentTokenizer(save_index=False)",
            notes="the metadata tells the width",
        ),
        Golden(
            name="datatrove_tokens_only",
            path="datatrove/tokens_only",
            format="datatrove",
            dtype="uint16",
            tokens=join(marked),
            ends=ends_of(marked),
            ends_from="token",
            eos_token_id=DATATROVE,
            eos_at="last",
            pieces=cut([(f"datatrove/tokens_only/{one}", 0, 435)]),
            told=("dtype", "eos_token_id"),
            writer="datatrove DocumentTokenizer(save_index=False, save_final_metadata=False)",
        ),
    ]


DOLMA, DOLMA2 = 50279, 100257  # ids of the tokens that mark documents


MASKED, MASKED_SPLIT = NARROW[:7], 4  # files of 22 and 374 tokens, so that masks are tokens of 2 bytes, too


def olmo(
    name: str, documents: Documents, dtype: str, eos: int, pattern: str = "part-{}-00000.npy", **more
) -> Golden:
    """Return a folder of two raw .npy files."""
    split = more.pop("split", SPLIT)
    documents = last(documents, eos)
    files = [pattern.format(number) for number in (0, 1)]
    halves = [sum(map(len, half)) for half in (documents[:split], documents[split:])]
    facts = {
        "path": f"olmo/{name}",
        "ends_from": "index",
        "writer": "olmo-core write_array_to_disk; .csv.gz by hand, after dolma",
    }
    return Golden(
        **{
            "name": f"olmo_{name}",
            "format": "olmo",
            "dtype": dtype,
            "tokens": join(documents),
            "ends": ends_of(documents),
            "eos_token_id": eos,
            "eos_at": "last",
            "pieces": cut(
                [(f"olmo/{name}/{file}", 0, half) for file, half in zip(files, halves, strict=True)]
            ),
            **facts,
            **more,
        }
    )


def olmo_sets() -> list[Golden]:
    """Return the sets of OLMo and dolma."""
    masked = olmo(
        "masked",
        MASKED,
        "uint16",
        DOLMA,
        "token_ids_part_000{}.npy",
        split=MASKED_SPLIT,
        path="olmo/masked/token_ids_part_*.npy",
        notes="labels_mask_part_*.npy beside them hold a bool for each token",
    )
    return [
        olmo("u16", NARROW, "uint16", DOLMA),
        olmo("u32", WIDE, "uint32", DOLMA2),
        olmo(
            "bare",
            NARROW,
            "uint16",
            DOLMA,
            ends_from="token",
            told=("dtype", "eos_token_id"),
            notes="no .csv.gz",
        ),
        masked,
        Golden(
            name="olmo_masked_folder",
            path="olmo/masked",
            format="olmo",
            dtype="uint16",
            tokens=[],
            ends=None,
            ends_from=None,
            eos_token_id=DOLMA,
            eos_at="last",
            told=("dtype", "eos_token_id"),
            refused="labels_mask_part_*.npy are not tokens, whatever dtype is told",
            writer=masked.writer,
        ),
    ]


LIT_CHUNK = 250  # chunk_size of packed files


def litpacked(name: str, documents: Documents, dtype: str, bos: int) -> Golden:
    """Return a folder of packed files, the last of which is filled up with the separator."""
    documents = first(documents, bos)
    used = sum(map(len, documents))
    count = -(-used // LIT_CHUNK)
    fill = [[bos] for _ in range(count * LIT_CHUNK - used)]
    return Golden(
        name=f"litpacked_{name}",
        path=f"litpacked/{name}",
        format="litpacked",
        dtype=dtype,
        tokens=join([*documents, *fill]),
        ends=ends_of([*documents, *fill]),
        ends_from="token",
        eos_token_id=bos,
        eos_at="first",
        pieces=cut([(f"litpacked/{name}/train_{n:010d}.bin", 24, LIT_CHUNK) for n in range(count)]),
        told=("eos_token_id",),
        writer="by hand, after PackedDatasetBuilder of lit-gpt",
        notes="the last 65 tokens are fill",
    )


def litdata(name: str, dtype: str, documents: Documents, eos: int | None = None, **more: str) -> Golden:
    """Return a folder of three chunks: chunk_size=150 tokens takes 4, 1 and 5 of the documents.

    After an empty document BinaryWriter begins no new chunk, however long it gets.
    """
    documents = documents if eos is None else last(documents, eos)
    itemsize = 0 if dtype == "str" else np.dtype(dtype).itemsize
    pieces = []
    cuts = [(0, 4), (4, 5), (5, 10)] if all(documents) else [(0, 10)]
    for number, (start, stop) in enumerate(cuts):
        tokens = sum(map(len, documents[start:stop]))
        pieces.append((f"litdata/{name}/chunk-0-{number}.bin", 4 * (stop - start + 2), tokens))
    refused = more.get("refused")
    return Golden(
        name=f"litdata_{name}",
        path=f"litdata/{name}",
        format="litdata",
        dtype=dtype,
        tokens=join(documents),
        ends=ends_of(documents),
        ends_from="index",
        eos_token_id=eos,
        eos_at=None if eos is None else "last",
        pieces=cut(pieces) if itemsize and refused is None else (),
        refused=refused,
        writer=f"litdata BinaryWriter, {more.get('loader', 'TokensLoader')}",
        notes=more.get("notes", ""),
    )


def litdata_sets() -> list[Golden]:
    """Return the sets of litGPT, TinyLlama and litData."""
    return [
        litpacked("u16", NARROW, "uint16", 1),
        litpacked("i32", WIDE, "int32", LLAMA),
        litdata("u16", "uint16", NARROW, GPT2, notes="no_header_numpy:5"),
        litdata("u32", "uint32", WIDE, LLAMA, notes="no_header_numpy:6"),
        litdata(
            "i32", "int32", WIDE, notes="no_header_numpy:2; one chunk; the empty document repeats an offset"
        ),
        litdata("i64", "int64", WIDE, LLAMA, notes="no_header_numpy:3"),
        litdata("tensor_u16", "uint16", NARROW, GPT2, notes="no_header_tensor:20"),
        litdata("tensor_i32", "int32", WIDE, LLAMA, notes="no_header_tensor:16"),
        litdata("tensor_i64", "int64", WIDE, LLAMA, notes="no_header_tensor:18"),
        litdata("zstd", "uint16", NARROW, GPT2, refused="compressed with zstd"),
        litdata("encrypted", "uint16", NARROW, GPT2, refused="encrypted"),
        litdata("pytree", "uint16", NARROW, GPT2, refused="not of TokensLoader", loader="PyTreeLoader"),
    ]


ROW = 64  # tokens in a fixed row: 6 rows of the stream of 435 tokens, the tail is lost
MDS_FIXED_I32 = [("shard.00000.mds", 210, 4), ("shard.00001.mds", 202, 2)]  # (file, offset, rows)
MDS_FIXED_U16 = [("shard.00000.mds", 223, 6)]


def mds(name: str, dtype: str, rows: Sequence[tuple[str, int, int]], refused: str | None = None) -> Golden:
    """Return a folder of shards with fixed rows of the stream."""
    documents = last(NARROW if dtype == "uint16" else WIDE, GPT2 if dtype == "uint16" else LLAMA)
    stream = join(documents)[: 6 * ROW]
    return Golden(
        name=f"mds_{name}",
        path=f"mds/{name}",
        format="mds",
        dtype=dtype,
        tokens=stream,
        ends=ends_within(documents, len(stream)),
        ends_from="token",
        eos_token_id=GPT2 if dtype == "uint16" else LLAMA,
        eos_at="last",
        pieces=cut([(f"mds/{name}/{file}", offset, count * ROW) for file, offset, count in rows]),
        told=("eos_token_id",),
        refused=refused,
        writer="mosaicml-streaming MDSWriter",
        notes="rows of 64 tokens; the last document is cut",
    )


def mds_sets() -> list[Golden]:
    """Return the sets of MosaicML streaming."""
    return [
        mds("fixed_i32", "int32", MDS_FIXED_I32),
        mds("fixed_u16", "uint16", MDS_FIXED_U16),
        mds("bytes", "int64", [], "a size stands before each row"),
        mds("ndarray", "int32", [], "a size and a shape stand before each row"),
        mds("pkl", "int32", [], "rows are pickles"),
        mds("zstd", "int32", [], "compressed with zstd"),
        mds("two_columns", "int32", [], "rows have two columns, tokens and an attention mask"),
    ]


ONE_FILE = "data-00000-of-00001.arrow"
ARROW_OFFSETS: dict[str, list[tuple[str, int, int]]] = {
    "i32": [("data-00000-of-00002.arrow", 568, 323), ("data-00001-of-00002.arrow", 568, 112)],
    "u16": [(ONE_FILE, 584, 435)],
    "i64": [(ONE_FILE, 592, 435)],
    "ints": [(ONE_FILE, 592, 425)],
    "blocks": [(ONE_FILE, 576, 384)],
    "fixed": [(ONE_FILE, 544, 384)],
    "large": [(ONE_FILE, 632, 435)],
    "batches": [("data.arrow", 1072, 22), ("data.arrow", 1648, 377), ("data.arrow", 3976, 36)],
}
"""Of each set: (file, byte, tokens) of the values of each record batch; found by searching for the bytes."""


def arrow(name: str, dtype: str, documents: Documents, eos: int | None, **more) -> Golden:
    """Return a folder with a column input_ids."""
    return Golden(
        **{
            "name": f"arrow_{name}",
            "path": f"arrow/{name}",
            "format": "arrow",
            "dtype": dtype,
            "tokens": join(documents),
            "ends": ends_of(documents),
            "ends_from": "index",
            "eos_token_id": eos,
            "eos_at": None if eos is None else "last",
            "pieces": cut([(f"arrow/{name}/{file}", *where) for file, *where in ARROW_OFFSETS.get(name, [])]),
            "writer": "datasets save_to_disk",
            **more,
        }
    )


def arrow_sets() -> list[Golden]:
    """Return the sets of datasets, and what looks like them."""
    narrow, wide = last(NARROW, GPT2), last(WIDE, LLAMA)
    rows = join(wide)[: 6 * ROW]
    blocks = [rows[start : start + ROW] for start in range(0, len(rows), ROW)]
    by_token = {"ends": ends_within(wide, len(rows)), "ends_from": "token"}
    told = {**by_token, "told": ("eos_token_id",)}
    nothing = {"tokens": [], "ends": None, "ends_from": None}
    return [
        arrow("i32", "int32", wide, LLAMA, notes="two files of 5 rows"),
        arrow("u16", "uint16", narrow, GPT2),
        arrow("i64", "int64", wide, LLAMA),
        arrow(
            "ints", "int32", WIDE, None, notes="from Python ints, which datasets makes int32; an empty row"
        ),
        arrow("blocks", "int32", blocks, LLAMA, **told, notes="list<int32>, all rows of 64: packed blocks"),
        arrow("fixed", "int32", blocks, LLAMA, **told, notes="fixed_size_list<int32>[64]"),
        arrow("large", "int32", wide, LLAMA, notes="large_list<int32>: offsets are int64"),
        arrow(
            "batches",
            "int32",
            wide,
            LLAMA,
            writer="datasets ArrowWriter(writer_batch_size=4)",
            notes="batches of 4, 4 and 2 rows; columns text and attention_mask beside; no state.json",
        ),
        arrow("text", "str", [], None, **nothing, refused="a column of text, no column of ids"),
        arrow("strings", "str", [], None, **nothing, refused="input_ids is a list of strings"),
        arrow(
            "parquet",
            "int32",
            wide,
            LLAMA,
            path="parquet",
            format="parquet",
            writer="datasets to_parquet",
            refused="Parquet is encoded",
        ),
        arrow(
            "levanter",
            "int32",
            [],
            None,
            **nothing,
            path="levanter",
            format="levanter",
            writer="by hand: only shard_ledger.json",
            refused="a cache of Levanter is compressed",
        ),
    ]


SETS: dict[str, Golden] = {
    one.name: one
    for sets in (
        megatron_sets, llmc_sets, raw_sets, npy_sets, datatrove_sets, olmo_sets, litdata_sets, mds_sets,
        arrow_sets,
    )
    for one in sets()
}  # fmt: skip
READABLE = [one for one in SETS.values() if one.refused is None]
REFUSED = [one for one in SETS.values() if one.refused is not None]
