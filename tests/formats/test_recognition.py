"""What is not provably one plain corpus is refused in a sentence, never served as garbage."""

from __future__ import annotations

import json
import os
import pickle
import re
import struct
import time

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from format_files import (
    write_datatrove,
    write_litdata,
    write_litpacked,
    write_llmc,
    write_mds,
    write_megatron,
    write_olmo,
)

import tdstream
from tdstream.cli.main import main
from tdstream.formats.recognize import FORMATS, RAW

DOCUMENTS = [[10, 11, 12, 7], [20, 7], [30, 31, 32, 33, 34, 7]]
FLAT = [token for document in DOCUMENTS for token in document]
DTYPES = (None, "uint16", "uint32")


def refuse(path, match, **options):
    """Check that a path is refused, whatever dtype the caller believes it to have."""
    for dtype in DTYPES:
        with pytest.raises(tdstream.TdstreamError, match=match) as caught:
            tdstream.build(path, seq_len=2, **{"dtype": dtype, **options})
        assert "\n" not in str(caught.value)


def test_headers_are_never_tokens(tmp_path):
    """A folder of llm.c with dtype= was served with its headers; dtype= may only repeat what they say."""
    write_llmc(tmp_path / "a_000.bin", FLAT)
    served = tdstream.build(tmp_path, seq_len=2, dtype="uint16")
    assert next(iter(served))["input_ids"].tolist() == FLAT[:2]
    with pytest.raises(tdstream.ConfigError, match=r"dtype='uint32' contradicts .* says 'uint16'"):
        tdstream.build(tmp_path, seq_len=2, dtype="uint32")


def test_chunk_headers_of_litdata_are_never_tokens(tmp_path):
    """Nor is a Megatron corpus read at the wrong width."""
    folder = write_litdata(tmp_path / "folder", [DOCUMENTS])
    assert next(iter(tdstream.build(folder, seq_len=2, dtype="uint16")))["input_ids"].tolist() == FLAT[:2]
    (tmp_path / "megatron").mkdir()
    write_megatron(tmp_path / "megatron" / "p", DOCUMENTS, "int32")
    with pytest.raises(tdstream.ConfigError, match=r"dtype='uint16' contradicts .* says 'int32'"):
        tdstream.build(tmp_path / "megatron", seq_len=2, dtype="uint16")


@pytest.mark.parametrize(
    ("train", "val"),
    [
        ("train.bin", "val.bin"),
        ("fineweb_train_000001.bin", "fineweb_val_000000.bin"),
        ("edu_fineweb_train_000001.bin", "edu_fineweb_valid_000000.bin"),
        ("train-0.bin", "test-0.bin"),
        ("tok_training_0.bin", "tok_validation_0.bin"),
        ("Train.bin", "Dev.bin"),
        ("val.bin", "shard_000.bin"),
    ],
)
@pytest.mark.parametrize("header", [True, False])
def test_splits_in_one_folder_are_not_one_corpus(tmp_path, train, val, header):
    """With and without headers; a pattern of one split is served."""
    for name in (train, val):
        if header:
            write_llmc(tmp_path / name, FLAT)
        else:
            np.array(FLAT, "<u2").tofile(tmp_path / name)
    refuse(tmp_path, "several splits .*validation")
    one = tmp_path / train
    options = {} if header else {"dtype": "uint16"}
    assert next(iter(tdstream.build(one, seq_len=2, **options)))["input_ids"].tolist() == FLAT[:2]
    pattern = str(tmp_path / re.sub(r"\d+", "*", train))
    if train == "val.bin":
        return
    assert len(tdstream.build(pattern, seq_len=2, **options)) == len(FLAT) // 3


@pytest.mark.parametrize(
    "name", ["contest.bin", "trainer.bin", "latest.bin", "evaluated.bin", "validity.bin"]
)
def test_a_word_inside_a_word_is_no_split(tmp_path, name):
    """Only whole words name splits."""
    for file in (name, "train_0.bin"):
        np.array(FLAT, "<u2").tofile(tmp_path / file)
    assert len(tdstream.build(tmp_path, seq_len=2, dtype="uint16")) == 2 * len(FLAT) // 3


def test_an_evaluation_file_of_llmc(tmp_path):
    """It has the layout of questions."""
    write_llmc(tmp_path / "hellaswag_val.bin", FLAT, magic=20240522)
    refuse(tmp_path / "hellaswag_val.bin", "evaluation file of llm.c")


@pytest.mark.parametrize("cut", [1, 7])
def test_cut_files_are_refused(tmp_path, cut):
    """In every format whose header or index tells how long they should be."""
    paths = {}
    for name in ("megatron", "llmc", "litpacked", "datatrove", "olmo", "npy"):
        (tmp_path / name).mkdir()
    paths[write_megatron(tmp_path / "megatron" / "p", DOCUMENTS)] = tmp_path / "megatron" / "p.bin"
    for path in (
        write_llmc(tmp_path / "llmc" / "a.bin", FLAT),
        write_litpacked(tmp_path / "litpacked" / "a.bin", FLAT),
        write_datatrove(tmp_path / "datatrove" / "a.ds", DOCUMENTS),
        write_olmo(tmp_path / "olmo" / "a.npy", DOCUMENTS),
    ):
        paths[path] = path
    np.save(tmp_path / "npy" / "a.npy", np.array(FLAT, np.uint16))
    paths[tmp_path / "npy"] = tmp_path / "npy" / "a.npy"
    folder = write_litdata(tmp_path / "litdata", [DOCUMENTS])
    paths[folder] = folder / "chunk-0-0.bin"
    folder = write_mds(tmp_path / "mds", [[FLAT[:4], FLAT[4:8]]])
    paths[folder] = folder / "shard.00000.mds"
    for path, file in paths.items():
        os.truncate(file, file.stat().st_size - cut)
        with pytest.raises(tdstream.TdstreamError, match=r"cut|\.csv\.gz|type of their tokens is unknown"):
            tdstream.build(path, seq_len=2)


def test_an_index_of_another_run(tmp_path):
    """Its sizes contradict the tokens, or its documents do not ascend."""
    write_megatron(tmp_path / "a", DOCUMENTS)
    write_megatron(tmp_path / "b", DOCUMENTS[:2])
    os.replace(tmp_path / "b.idx", tmp_path / "a.idx")
    refuse(tmp_path / "a", "different runs")
    path = write_datatrove(tmp_path / "c.ds", DOCUMENTS)
    np.array([4, 9, 6, 12], "<u8").tofile(f"{path}.index")
    with pytest.raises(tdstream.CorpusError, match="do not ascend"):
        tdstream.build(path, seq_len=2, documents=True)


def test_damaged_indices_of_megatron(tmp_path):
    """A cut index, another version, floats, documents of missing sequences."""
    prefix = write_megatron(tmp_path / "p", DOCUMENTS)
    index = tmp_path / "p.idx"
    whole = index.read_bytes()
    index.write_bytes(whole[:-3])
    refuse(prefix, "its header promises .* copy it again")
    index.write_bytes(whole[:9] + struct.pack("<Q", 2) + whole[17:])
    refuse(prefix, "version 2")
    index.write_bytes(whole[:17] + b"\x07" + whole[18:])
    refuse(prefix, "float32; token ids are whole numbers")
    index.write_bytes(whole[:-8] + struct.pack("<q", 99))
    with pytest.raises(tdstream.CorpusError, match="sequences that do not exist"):
        tdstream.build(prefix, seq_len=2, documents=True)
    index.write_bytes(b"TNTIDX\0\0" + whole[8:])
    refuse(prefix, "old lazy or cached dataset")
    os.unlink(index)
    index.write_bytes(whole)
    os.unlink(tmp_path / "p.bin")
    refuse(prefix, r"p\.bin is missing")


def test_a_multimodal_dataset_of_megatron(tmp_path):
    """Modes that are not all 0 mark what is no text."""
    refuse(
        write_megatron(tmp_path / "p", DOCUMENTS, modes=[0, 1, 0]), "multimodal dataset: 1 of its sequences"
    )


def test_two_types_in_one_directory(tmp_path):
    """They are sources of a mixture."""
    write_megatron(tmp_path / "a", DOCUMENTS)
    write_megatron(tmp_path / "b", DOCUMENTS, "int32")
    refuse(tmp_path, "several types: int32, uint16")
    mixture = {"a": (tmp_path / "a", 1), "b": (tmp_path / "b", 1)}
    served = [batch["input_ids"][0, 0].item() for batch in tdstream.build(mixture, seq_len=2, batch_size=1)]
    assert set(served) == set(FLAT[::3])


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_negative_ids_are_found(tmp_path, dtype, capsys):
    """Packed fine-tuning files keep a loss mask in the highest bit; verify names the file and the token."""
    documents = [[10, 11], [20, -(2**31) + 5, 7]]
    with pytest.raises(tdstream.CorpusError, match="holds the negative id -2,147,483,643"):
        tdstream.build(write_megatron(tmp_path / "q", documents, dtype), seq_len=1)
    documents = [[10] * 5000, *documents, [-(2**31) + 5] * 80]  # many reads long, as a mask is
    prefix = write_megatron(tmp_path / "p", documents, dtype)
    assert main(["verify", str(prefix)]) == 1
    assert "holds a negative id, as " in capsys.readouterr().out
    with pytest.raises(tdstream.CorpusError, match="negative id"):
        list(tdstream.build(prefix, seq_len=1, batch_size=1))
    with pytest.raises(tdstream.CorpusError, match="negative id"):
        list(tdstream.build(prefix, seq_len=4, batch_size=1, cut="document"))
    with pytest.raises(tdstream.CorpusError, match="negative id"):
        list(tdstream.build({"a": (prefix, 1)}, seq_len=1, batch_size=1))


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({"compression": "zstd"}, r"compressed \(zstd\).*tdstream convert"),
        ({"encryption": {"algorithm": "fernet"}}, "encrypted"),
        ({"item_loader": "PyTreeLoader", "data_format": ["str", "int"]}, "written for PyTreeLoader.*convert"),
        ({"item_loader": None}, "written for PyTreeLoader"),
        ({"data_format": ["no_header_numpy:10"]}, "whole numbers"),
    ],
)
def test_folders_of_litdata_that_are_no_stream(tmp_path, config, match):
    """Compressed, encrypted, with other items, of floats."""
    refuse(write_litdata(tmp_path / "folder", [DOCUMENTS], **config), match)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"column_encodings": ["bytes"]}, r"columns tokens \(bytes\).*convert"),
        ({"column_encodings": ["pkl"]}, r"tokens \(pkl\)"),
        ({"column_encodings": ["ndarray:int32"]}, r"tokens \(ndarray:int32\)"),
        ({"column_encodings": ["ndarray:float32:4"]}, "whole numbers"),
        ({"column_encodings": ["ndarray:int32:4", "str"], "column_names": ["tokens", "id"]}, r"id \(str\)"),
        (
            {"compression": "zstd", "zip_data": {"basename": "a.zstd", "bytes": 1}},
            r"compressed \(zstd\).*convert",
        ),
    ],
)
def test_folders_of_mds_that_are_no_stream(tmp_path, changes, match):
    """Nothing is unpickled."""
    refuse(write_mds(tmp_path / "folder", [[FLAT[:4]]], **changes), match)


def test_files_of_numpy_that_are_no_stream(tmp_path):
    """Objects are pickled, and columns are no rows; a table of rows is one stream."""

    class Bomb:
        def __reduce__(self):
            return os.abort, ()

    for name, array, match in (
        ("objects", np.array([None], dtype=object), "pickled and are not read"),
        ("floats", np.zeros(3), "whole numbers"),
        ("columns", np.asfortranarray(np.zeros((3, 2), np.uint16)), "Fortran order"),
    ):
        np.save(tmp_path / f"{name}.npy", array, allow_pickle=True)
        refuse(tmp_path / f"{name}.npy", match)
    table = np.arange(12, dtype=np.uint16).reshape(3, 4)
    np.save(tmp_path / "rows.npy", table)
    assert next(iter(tdstream.build(tmp_path / "rows.npy", seq_len=5)))["input_ids"].tolist() == [
        0,
        1,
        2,
        3,
        4,
    ]
    (tmp_path / "nanogpt").mkdir()
    np.array(FLAT, "<u2").tofile(tmp_path / "nanogpt" / "train.bin")
    (tmp_path / "nanogpt" / "meta.pkl").write_bytes(pickle.dumps(Bomb()))
    assert len(tdstream.build(tmp_path / "nanogpt", seq_len=2, dtype="uint16")) == 4


def test_masks_are_no_tokens(tmp_path):
    """A folder with masks of labels beside tokens names no corpus; a pattern of the tokens does."""
    for name in ("token_ids_part_0000.npy", "labels_mask_part_0000.npy"):
        np.array(FLAT, "<u2").tofile(tmp_path / name)
    refuse(tmp_path, r"masks beside tokens .*token_ids_part_0000\.npy")
    with pytest.raises(tdstream.CorpusError, match="masks beside tokens"):
        tdstream.build(tmp_path, seq_len=2, dtype="uint16")
    assert len(tdstream.build(str(tmp_path / "token_ids_*.npy"), seq_len=2, dtype="uint16")) == 4


def test_arrow_that_is_no_stream(tmp_path):
    """Text, nulls, compressed buffers, several splits, parquet."""
    texts = datasets.Dataset.from_dict({"text": ["a", "b"]})
    texts.save_to_disk(tmp_path / "texts")
    refuse(tmp_path / "texts", "not a corpus")
    ids = datasets.Dataset.from_dict({"input_ids": DOCUMENTS})
    datasets.DatasetDict({"train": ids, "test": ids}).save_to_disk(tmp_path / "splits")
    refuse(tmp_path / "splits", "holds the splits train, test")
    assert len(tdstream.build(tmp_path / "splits" / "train", seq_len=2)) == 4
    datasets.Dataset.from_dict({"input_ids": [[1, 2], None, [3]]}).save_to_disk(tmp_path / "nulls")
    refuse(tmp_path / "nulls", "null")
    column = pa.array([list(range(5000))], pa.list_(pa.int32()))
    table = pa.table({"input_ids": column})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with (
        pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema, options=options) as out,
    ):
        out.write_table(table)
    refuse(tmp_path / "a.arrow", "compressed.*tdstream convert")
    (tmp_path / "parquet").mkdir()
    pa.parquet.write_table(table, tmp_path / "parquet" / "a.parquet")
    refuse(tmp_path / "parquet", "tdstream convert")


def test_blocks_of_one_length_have_no_documents(tmp_path):
    """Rows of equal length are blocks; only a token can mark documents in them."""
    blocks = datasets.Dataset.from_dict({"input_ids": [[1, 2, 7, 3], [4, 7, 5, 6]]})
    blocks.save_to_disk(tmp_path / "blocks")
    with pytest.raises(tdstream.ConfigError, match=r"blocks of one length, .* Pass eos_token_id="):
        tdstream.build(tmp_path / "blocks", seq_len=2, documents=True)
    told = {"eos_token_id": 7, "eos_first": False}
    loader = tdstream.loader(tmp_path / "blocks", seq_len=6, batch_size=1, documents=True, **told)
    assert next(iter(loader))["document_ids"].tolist() == [[0, 0, 0, 1, 1, 1]]


def test_nothing_is_guessed(tmp_path):
    """Two formats that both say yes are asked about; a name that says no is refused with what was seen."""
    write_datatrove(tmp_path / "a.ds", DOCUMENTS)
    write_olmo(tmp_path / "b.npy", DOCUMENTS)
    refuse(tmp_path, r"several formats: .*format='datatrove' or 'olmo'")
    assert len(tdstream.build(tmp_path, seq_len=2, format="datatrove")) == 4
    refuse(tmp_path, "not of the format 'llmc'; found: a.ds", format="llmc")
    refuse(tmp_path, "is not raw: ", format="raw")
    refuse(tmp_path, r"format must be one of megatron, llmc", format="parquet")
    refuse(tmp_path / "missing", "is not a directory, a file, or a prefix")
    refuse(str(tmp_path / "*.bin"), "matches no token file")


def test_a_corpus_says_everything_itself(make_corpus):
    """Options for other tools' files are refused for one."""
    with pytest.raises(tdstream.ConfigError, match=r"meta\.json, which says what eos_token_id would"):
        tdstream.build(make_corpus(20), seq_len=2, eos_token_id=0)


@pytest.mark.parametrize("format_name", [*FORMATS, "raw"])
def test_every_format_reads_little(format_name, tmp_path):
    """A recognizer says no to an empty directory, and to a file of another kind."""
    one = FORMATS.get(format_name, RAW)
    (tmp_path / "a.jsonl").write_text('{"text": "a"}')
    assert one.recognize(tmp_path) is None
    assert one.recognize(tmp_path / "a.jsonl") is None
    assert one.what if format_name != "raw" else True


def test_nothing_is_written_beside_other_peoples_files(tmp_path, monkeypatch):
    """Neither by reading nor by finding documents."""
    monkeypatch.setattr("tdstream.formats.ends.MANY_TOKENS", 1)
    monkeypatch.setattr("tdstream.formats.ends.MANY_DOCUMENTS", 1)
    (tmp_path / "a").mkdir()
    write_megatron(tmp_path / "a" / "p", DOCUMENTS)
    (tmp_path / "b").mkdir()
    write_llmc(tmp_path / "b" / "a.bin", FLAT)
    before = sorted(tmp_path.rglob("*"))
    for path, options in ((tmp_path / "a" / "p", {}), (tmp_path / "b", {"eos_token_id": 7})):
        for cut in ("stream", "document", "pack"):
            made = tdstream.build(
                path, seq_len=3, cut=cut, documents=cut == "stream", min_tail_len=None, **options
            )
            assert list(made)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_large_sparse_corpus_opens_at_once(tmp_path):
    """A prefix of 10^11 tokens, with offsets above 2^31 and 2^32 tokens, is read at its far end."""
    tokens, documents = 10**11, 50
    length = tokens // documents
    counts = np.full(documents, 2**31 - 1, "<i4")
    # A sequence holds at most 2^31 - 1 tokens; the pointers say where each begins.
    pointers = np.arange(documents, dtype="<i8") * length * 2
    with open(tmp_path / "p.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, documents, documents + 1))
        file.write(counts.tobytes() + pointers.tobytes() + np.arange(documents + 1, dtype="<i8").tobytes())
    size = int(pointers[-1]) + (2**31 - 1) * 2
    with open(tmp_path / "p.bin", "wb") as file:
        file.truncate(size)
        file.seek(size - 12)
        file.write(np.arange(1, 7, dtype="<u2").tobytes())
    begun = time.perf_counter()
    pipe = tdstream.build(tmp_path / "p", seq_len=5, batch_size=1, shuffle=True)
    assert time.perf_counter() - begun < 5  # a second on a quiet machine
    last = pipe.indexed[1]
    total = size // 2
    assert last.read(np.array([len(last) - 1])).shape == (1, 6)
    stream = pipe.indexed[0].open()
    assert stream.slices([total - 6], [6])[0].tolist() == [1, 2, 3, 4, 5, 6]
    assert json.loads(json.dumps(pipe.identities()))["source"]["total_tokens"] == total
