"""Conversions write every token and document of the source exactly once, whatever kills them."""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from golden_truth import GOLDEN, READABLE, SETS
from helpers_exchange import DOCUMENTS, EOS, die_at, files_of, find_ends, join, make_corpus

import tdstream
from tdstream.cli.main import main
from tdstream.nodes.shard_source import open_source

ROW_SETS = {
    "litdata_zstd": {},
    "mds_zstd": {"eos_first": False},
    "mds_ndarray": {"eos_first": False},
    "mds_bytes": {"eos_first": False, "dtype": "int64"},
    "mds_two_columns": {"eos_first": False},
    "arrow_parquet": {},
}
"""Golden sets that cannot be mapped, and what has to be told besides the token."""


def read(directory):
    """Return the tokens and document ends of a corpus."""
    source = open_source(directory)
    ends = source.ends()
    rows = source.open().rows(np.array([0]), source.total_tokens)
    return rows[0].tolist(), ends.between(0, ends.num_documents).tolist()


def write_parquet(path, documents=DOCUMENTS, kind=None, **options):
    """Write lists of ids, with a column of text beside them."""
    ids = pa.array(documents, kind or pa.list_(pa.int64()))
    table = pa.table({"text": pa.array(["x"] * len(documents)), "input_ids": ids})
    pq.write_table(table, path, row_group_size=3, **options)
    return path


@pytest.mark.parametrize("name", ROW_SETS)
@pytest.mark.parametrize("chunk", [37, 10**6])
def test_what_cannot_be_mapped(tmp_path, name, chunk):
    """What the real writers wrote is as golden_truth.py says."""
    one, told = SETS[name], dict(ROW_SETS[name])
    if "eos_first" in told:
        told["eos_token_id"] = one.eos_token_id
    result = tdstream.convert(one.place, tmp_path / "out", tokens_per_chunk=chunk, **told)
    tokens, ends = read(tmp_path / "out")
    assert tokens == one.tokens
    assert ends == sorted({end for end in one.ends if end} | {len(tokens)})
    assert result.meta.num_documents == len(
        [end for end in set(one.ends) if tokens[end - 1] == one.eos_token_id]
    )
    assert main(["verify", str(tmp_path / "out"), "--samples", "0"]) == 0


@pytest.mark.parametrize("one", [one for one in READABLE if one.ends is not None], ids=lambda one: one.name)
def test_what_can_be_mapped(tmp_path, one):
    """Tokens and documents are those of reading in place."""
    tdstream.convert(one.place, tmp_path / "out", tokens_per_chunk=100, **one.options())
    tokens, ends = read(tmp_path / "out")
    assert tokens == one.tokens
    assert ends == sorted({end for end in one.ends if end} | {len(tokens)})


def test_a_run_over_a_prefix_resumes_on_the_converted_corpus(tmp_path):
    """The same samples, exactly, though the shards are others; and no other corpus is taken for it."""
    tdstream.export(make_corpus(tmp_path / "c", dtype="uint32"), tmp_path / "mega", to="megatron")
    options = {"seq_len": 4, "batch_size": 2, "shuffle": True, "seed": 3}
    whole = [batch["input_ids"].tolist() for batch in tdstream.loader(tmp_path / "mega", **options)]
    loader = tdstream.loader(tmp_path / "mega", **options)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = json.loads(json.dumps(loader.state_dict()))
    tdstream.convert(tmp_path / "mega", tmp_path / "out", tokens_per_chunk=29)
    resumed = tdstream.loader(tmp_path / "out", **options)
    resumed.load_state_dict(state)
    assert [batch["input_ids"].tolist() for batch in resumed] == whole[3:]
    native = tdstream.loader(make_corpus(tmp_path / "n", shard=29, dtype="uint32"), **options)
    with pytest.raises(tdstream.StateError):
        native.load_state_dict(state)


def test_rows_of_parquet_are_documents(tmp_path):
    """Of any integer type; empty rows and rows without a value hold no token."""
    documents = [DOCUMENTS[0], [], None, *DOCUMENTS[1:], []]
    for name, kind in (("a", pa.list_(pa.uint16())), ("b", pa.large_list(pa.int32()))):
        file = write_parquet(tmp_path / f"{name}.parquet", documents, kind)
        result = tdstream.convert(file, tmp_path / name, eos_token_id=EOS, tokens_per_chunk=20)
        assert read(tmp_path / name) == (join(DOCUMENTS), find_ends(DOCUMENTS))
        assert result.meta.dtype == {"a": "uint16", "b": "uint32"}[name]
        assert result.meta.eos_token_id == EOS
        assert result.meta.num_documents == len(DOCUMENTS)


def test_a_column_is_named(tmp_path):
    """Else one sentence lists the columns."""
    table = pa.table({"ids": pa.array([[1, 2], [3]]), "text": ["a", "b"]})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(tdstream.ConfigError, match=r"no column of token ids; it has ids \(list"):
        tdstream.convert(tmp_path / "a.parquet", tmp_path / "out")
    with pytest.raises(tdstream.ConfigError, match="no token ids in 'text'"):
        tdstream.convert(tmp_path / "a.parquet", tmp_path / "out", column="text")
    tdstream.convert(tmp_path / "a.parquet", tmp_path / "out", column="ids")
    assert read(tmp_path / "out") == ([1, 2, 3], [2, 3])


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
@pytest.mark.parametrize("make", [pa.ipc.new_stream, pa.ipc.new_file])
def test_arrow_with_compression_and_nulls(tmp_path, compression, make):
    """As streams and as files."""
    schema = pa.schema([("input_ids", pa.list_(pa.int32()))])
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, make(sink, schema, options=options) as writer:
        for part in ([DOCUMENTS[0], None], DOCUMENTS[1:]):
            writer.write_batch(pa.record_batch([pa.array(part, schema.field(0).type)], schema=schema))
    tdstream.convert(tmp_path / "a.arrow", tmp_path / "out")
    assert read(tmp_path / "out") == (join(DOCUMENTS), find_ends(DOCUMENTS))


@pytest.mark.parametrize("first", [True, False])
def test_rows_of_one_length_are_blocks(tmp_path, first):
    """Their documents are told by a token, or there is no index, which is said."""
    documents = [[EOS, *one[:-1]] for one in DOCUMENTS] if first else DOCUMENTS
    flat = join(documents)
    rows = [flat[place : place + 4] for place in range(0, len(flat), 4)]
    file = write_parquet(tmp_path / "a.parquet", rows)
    result = tdstream.convert(file, tmp_path / "bare")
    assert "Pass eos_token_id" in result.note
    assert (result.meta.doc_index, result.meta.num_documents) == ({}, -1)
    tdstream.convert(file, tmp_path / "out", eos_token_id=EOS, eos_first=first, tokens_per_chunk=10)
    assert read(tmp_path / "out") == (flat, find_ends(documents))


# What is refused.


def test_what_is_refused_stays_refused(tmp_path):
    """Pickles are never opened, encryption is not undone, text is no ids."""
    for name, words in {
        "mds_pkl": "pickled ones are never opened",
        "mds_bytes": "Pass dtype",
        "litdata_encrypted": "encrypted",
        "litdata_pytree": "PyTreeLoader",
        "arrow_text": "no column of token ids|passed|text",
        "megatron_f32": "float32",
        "llmc_eval": "evaluation file",
        "nanogpt_folder": "several splits",
    }.items():
        with pytest.raises(tdstream.TdstreamError, match=words):
            tdstream.convert(SETS[name].place, tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("id_", [-1, 2**32])
def test_ids_that_no_shard_holds(tmp_path, id_):
    """With their place."""
    file = write_parquet(tmp_path / "a.parquet", [[1, 2, 3], [4, id_]])
    with pytest.raises(tdstream.CorpusError, match=rf"holds the id {id_:,} \(token 4\)"):
        tdstream.convert(file, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_levanter_needs_tensorstore(tmp_path, monkeypatch):
    """Where it is missing, it is named."""
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    with pytest.raises(tdstream.ConfigError, match="pip install tensorstore"):
        tdstream.convert(GOLDEN / "levanter", tmp_path / "out")


def test_levanter(tmp_path):
    """A cache as Levanter lays it out: the number of rows, then their ends, and the ids of all."""
    ts = pytest.importorskip("tensorstore")
    ends = find_ends(DOCUMENTS)
    for name, numbers in (("data", join(DOCUMENTS)), ("offsets", [len(DOCUMENTS), *ends])):
        spec = {
            "driver": "zarr3",
            "kvstore": {"driver": "file", "path": str(tmp_path / "cache" / "input_ids" / name)},
            "metadata": {"shape": [1000], "data_type": "int32" if name == "data" else "int64"},
        }
        store = ts.open(spec, create=True).result()
        store[: len(numbers)].write(np.array(numbers, store.dtype.numpy_dtype)).result()
    ledger = {"total_num_rows": len(DOCUMENTS), "is_finished": True}
    (tmp_path / "cache" / "shard_ledger.json").write_text(json.dumps(ledger))
    tdstream.convert(tmp_path / "cache", tmp_path / "out", eos_token_id=EOS)
    assert read(tmp_path / "out") == (join(DOCUMENTS), ends)


@pytest.mark.parametrize("kind", ["mds", "litdata", "parquet"])
def test_files_that_were_cut(tmp_path, kind):
    """Nothing of them is taken for whole."""
    if kind == "parquet":
        file = write_parquet(tmp_path / "a.parquet")
        source = file
    else:
        source = tmp_path / "source"
        source.mkdir()
        for name, content in files_of(SETS[f"{kind}_zstd"].place).items():
            (source / name).write_bytes(content)
        file = next(path for path in sorted(source.iterdir()) if path.name != "index.json")
    os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(tdstream.CorpusError):
        tdstream.convert(source, tmp_path / "out", eos_token_id=EOS, eos_first=False)
    assert not (tmp_path / "out").exists()


# Kills.


@pytest.mark.parametrize("kind", ["parquet", "megatron", "llmc"])
def test_a_kill_at_any_change_loses_and_doubles_nothing(tmp_path, kind):
    """SIGKILL before each change of the disk; with `resume`, the files are those of an uninterrupted run."""
    corpus = make_corpus(tmp_path / "corpus", shard=1000)
    if kind == "parquet":
        source, told = write_parquet(tmp_path / "a.parquet", kind=pa.list_(pa.uint16())), {}
    else:
        source, told = tmp_path / "source", {"eos_token_id": EOS} if kind == "llmc" else {}
        tdstream.export(corpus, source, to=kind)

    def run(output, **options):
        return tdstream.convert(source, output, tokens_per_chunk=40, **told, **options)

    def result(output):
        files = files_of(output)
        meta = json.loads(files.pop("meta.json"))
        del meta["created_at_unix"]
        return files, meta

    run(tmp_path / "whole")
    wanted, call, killed = result(tmp_path / "whole"), 0, True
    while killed:
        output = tmp_path / f"out{call}"
        killed = die_at(call, lambda output=output: run(output))
        if (output / "meta.json").exists() and not (output / ".preparing").exists():
            assert result(output) == wanted
        else:
            assert killed
            run(output, resume=True)
            assert result(output) == wanted
        call += 1
    assert call > 20
    assert run(tmp_path / "whole", resume=True).was_complete


def test_another_source_is_not_resumed(tmp_path):
    """What is unfinished or complete belongs to its files and options."""
    file = write_parquet(tmp_path / "a.parquet")
    assert die_at(25, lambda: tdstream.convert(file, tmp_path / "out", tokens_per_chunk=40))
    with pytest.raises(tdstream.OutputError, match="unfinished"):
        tdstream.convert(file, tmp_path / "out", tokens_per_chunk=40)
    with pytest.raises(tdstream.ConfigError, match="tokens_per_chunk was 40, is 50"):
        tdstream.convert(file, tmp_path / "out", tokens_per_chunk=50, resume=True)
    tdstream.convert(file, tmp_path / "out", tokens_per_chunk=40, resume=True)
    with pytest.raises(tdstream.OutputError, match="another source, or with other options"):
        tdstream.convert(file, tmp_path / "out", tokens_per_chunk=50, resume=True)
    with pytest.raises(tdstream.OutputError, match="not empty"):
        tdstream.convert(file, tmp_path / "out")
    tdstream.convert(file, tmp_path / "out", overwrite=True, eos_token_id=EOS)
    assert read(tmp_path / "out") == (join(DOCUMENTS), find_ends(DOCUMENTS))


def test_the_command(tmp_path, capsys):
    """It says what it has written."""
    file = write_parquet(tmp_path / "a.parquet")
    words = [
        "convert",
        str(file),
        str(tmp_path / "out"),
        "--eos",
        str(EOS),
        "--tokenizer",
        "gpt2",
        "--resume",
    ]
    assert main(words) == 0
    assert "10 documents, 108 tokens in 1 chunks of uint32" in capsys.readouterr().err
    assert main(words) == 0
    assert "Complete already" in capsys.readouterr().err
