"""Token files of every format give the tokens and documents that were written, through the whole pipeline."""

from __future__ import annotations

import datasets
import numpy as np
import pyarrow as pa
import pytest
from format_files import (
    find_ends,
    join,
    write_datatrove,
    write_litdata,
    write_litpacked,
    write_llmc,
    write_mds,
    write_megatron,
    write_olmo,
)

import tdstream
from tdstream.formats.description import FormatOptions
from tdstream.formats.ends import open_ends
from tdstream.formats.recognize import describe

EOS = 7
# A token tells its place; 7 ends each document.
LENGTHS = (5, 1, 12, 300, 2, 40, 7)
BODIES = [[1000 + 10 * sum(LENGTHS[:n]) + k for k in range(size - 1)] for n, size in enumerate(LENGTHS)]
LAST = [[*body, EOS] for body in BODIES]
FIRST = [[EOS, *body] for body in BODIES]
BARE = [body for body in BODIES if body]
SPLIT = 4  # documents in the first of two files


def _megatron(path, dtype="uint16", documents=LAST):
    return write_megatron(path / "corpus", documents, dtype), documents, {}


def _megatron_empty(path):
    documents = [[], LAST[0], [], [], *LAST[1:], []]
    return write_megatron(path / "corpus", documents), documents, {}


def _megatron_sequences(path):
    return write_megatron(path / "corpus", LAST, "int32", sequences=[1, 1, 3, 5, 2, 4, 1]), LAST, {}


def _megatron_directory(path):
    write_megatron(path / "a", LAST[:SPLIT])
    write_megatron(path / "b", LAST[SPLIT:])
    return path, LAST, {}


def _megatron_modes(path):
    return write_megatron(path / "corpus", LAST, modes=[0] * len(LAST)), LAST, {}


def _llmc(path, dtype="uint16"):
    flat = join(FIRST)
    write_llmc(path / "shard_000000.bin", flat[:130], dtype)
    write_llmc(path / "shard_000001.bin", flat[130:], dtype)
    return path, FIRST, {"eos_token_id": EOS}


def _llmc_cut_at_document(path):
    write_llmc(path / "shard_000000.bin", join(FIRST[:SPLIT]))
    write_llmc(path / "shard_000001.bin", join(FIRST[SPLIT:]))
    return str(path / "shard_*.bin"), FIRST, {"eos_token_id": EOS}


def _litpacked(path):
    write_litpacked(path / "a_0.bin", join(FIRST[:SPLIT]), "int32")
    write_litpacked(path / "a_1.bin", join(FIRST[SPLIT:]), "int32")
    return path, FIRST, {"eos_token_id": EOS}


def _nanogpt(path):
    np.array(join(LAST), "<u2").tofile(path / "train.bin")
    return path / "train.bin", LAST, {"dtype": "uint16", "eos_token_id": EOS}


def _datatrove(path, dtype="uint16", **files):
    write_datatrove(path / "00000.ds", LAST[:SPLIT], dtype, **files)
    write_datatrove(path / "00001.ds", LAST[SPLIT:], dtype, **files)
    return path, LAST, {}


def _datatrove_without_eos(path):
    documents = [BODIES[0], [], *BODIES[2:]]
    return write_datatrove(path / "00000.ds", documents), documents, {}


def _datatrove_without_index(path):
    _, documents, _ = _datatrove(path, "uint32", index=False)
    return path, documents, {"eos_token_id": EOS}


def _datatrove_bare(path):
    _, documents, _ = _datatrove(path, "uint32", index=False, metadata=False)
    return path, documents, {"eos_token_id": EOS, "dtype": "uint32"}


def _npy(path, first=True):
    documents = FIRST if first else LAST
    np.save(path / "a_000000.npy", np.array(join(documents[:SPLIT]), np.uint16))
    np.save(path / "a_000001.npy", np.array(join(documents[SPLIT:]), np.uint16))
    return path, documents, {"eos_token_id": EOS, "eos_first": first}


def _olmo(path, dtype="uint16"):
    write_olmo(path / "part-0-00000.npy", LAST[:SPLIT], dtype)
    write_olmo(path / "part-1-00000.npy", LAST[SPLIT:], dtype)
    return path, LAST, {}


def _olmo_bare(path):
    return write_olmo(path / "a.npy", LAST, table=False), LAST, {"dtype": "uint16", "eos_token_id": EOS}


def _litdata(path, dtype="uint16"):
    return write_litdata(path / "folder", [LAST[:SPLIT], LAST[SPLIT:]], dtype), LAST, {}


def _mds(path, dtype="int32"):
    flat = join(LAST)
    rows = [flat[first : first + 4] for first in range(0, len(flat) // 4 * 4, 4)]
    folder = write_mds(path / "folder", [rows[:20], rows[20:]], f"ndarray:{dtype}:4")
    kept, documents = len(rows) * 4, []
    for document in LAST:
        documents.append(document[:kept])
        kept -= len(documents[-1])
    return folder, documents, {"eos_token_id": EOS, "eos_first": False}


def _arrow(path, dtype="int32"):
    features = datasets.Features(
        {"input_ids": datasets.List(datasets.Value(dtype)), "id": datasets.Value("int32")}
    )
    records = {"input_ids": LAST, "id": list(range(len(LAST)))}
    datasets.Dataset.from_dict(records, features).save_to_disk(path / "saved", num_shards=2)
    return path / "saved", LAST, {}


def _arrow_batches(path):
    """Several record batches, one of them empty, in a bare file."""
    schema = pa.schema([("input_ids", pa.list_(pa.uint16()))])
    with pa.OSFile(str(path / "a.arrow"), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for documents in (LAST[:2], [], LAST[2:5], LAST[5:]):
            writer.write_batch(pa.record_batch([pa.array(documents, pa.list_(pa.uint16()))], schema=schema))
    return path / "a.arrow", LAST, {}


def variant(make, *arguments, **options):
    """Return a maker with other arguments, and its name."""
    words = [make.__name__[1:], *map(str, arguments), *(f"{key}={value}" for key, value in options.items())]
    return pytest.param(lambda path: make(path, *arguments, **options), id="-".join(words))


MAKERS = [
    *(variant(_megatron, dtype) for dtype in ("uint16", "int16", "int32", "int64")),
    variant(_megatron, "int32", BARE),
    *map(variant, (_megatron_empty, _megatron_sequences, _megatron_directory, _megatron_modes)),
    *(variant(_llmc, dtype) for dtype in ("uint16", "uint32")),
    *map(variant, (_llmc_cut_at_document, _litpacked, _nanogpt)),
    *(variant(_datatrove, dtype) for dtype in ("uint16", "uint32")),
    *map(variant, (_datatrove_without_eos, _datatrove_without_index, _datatrove_bare)),
    *(variant(_npy, first) for first in (True, False)),
    *(variant(_olmo, dtype) for dtype in ("uint16", "uint32")),
    variant(_olmo_bare),
    *(variant(_litdata, dtype) for dtype in ("uint16", "int32", "int64")),
    *(variant(_mds, dtype) for dtype in ("int32", "uint16", "int64")),
    *(variant(_arrow, dtype) for dtype in ("int32", "uint16", "int64")),
    variant(_arrow_batches),
]


@pytest.fixture(params=MAKERS)
def made(request, tmp_path):
    """Return (path, documents, options) of files of a format."""
    (tmp_path / "files").mkdir()
    return request.param(tmp_path / "files")


def test_every_token_is_served_once(made):
    """In order, across files, whatever byte a piece begins at; the last incomplete row aside."""
    path, documents, options = made
    flat = join(documents)
    rows = [
        row
        for batch in tdstream.build(path, seq_len=6, batch_size=1, **options)
        for row in batch["input_ids"]
    ]
    assert [row.tolist() for row in rows] == [flat[n : n + 6] for n in range(0, len(flat) - 6, 7)]


def test_documents_are_the_writers(made):
    """Their ends, without those of empty ones; and what is asked of files that do not tell."""
    path, documents, options = made
    ends = open_ends(describe(path, FormatOptions(**options)))
    wanted = find_ends(documents)
    assert ends.between(0, ends.num_documents).tolist() == wanted


@pytest.mark.parametrize("workers", [0, 2])
def test_resume_is_exact(made, workers):
    """Killed after two batches of two ranks, and resumed on one: no sample twice, none lost."""
    path, _, options = made
    options = {"seq_len": 6, "shuffle": True, "seed": 3, **options}

    def make(rank, ranks, batch_size, num_workers=0):
        return tdstream.loader(
            path, batch_size=batch_size, num_workers=num_workers, dp_rank=rank, dp_world_size=ranks, **options
        )

    whole = [row for batch in make(0, 1, 1) for row in batch["input_ids"].tolist()]
    ranks = [make(rank, 2, 3) for rank in range(2)]
    iterators = [iter(rank) for rank in ranks]
    seen = [row for _ in range(2) for iterator in iterators for row in next(iterator)["input_ids"].tolist()]
    resumed = make(0, 1, 2, workers)
    resumed.load_state_dict(ranks[0].state_dict())
    rest = [row for batch in resumed for row in batch["input_ids"].tolist()]
    assert (seen + rest)[: len(whole) // 2 * 2] == whole[: len(whole) // 2 * 2]


def test_rows_of_documents(made):
    """cut="document" never crosses an end, and holds every document that has text."""
    path, documents, options = made
    loader = tdstream.loader(path, seq_len=400, batch_size=1, cut="document", min_tail_len=0, **options)
    found = [batch["input_ids"][0][batch["attention_mask"][0].bool()].tolist() for batch in loader]
    assert [row for row in found if len(row) > 1] == [row for row in documents if len(row) > 1]
