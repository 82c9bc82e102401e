"""Adopted files are read in their order, with their documents, and refused when they are others."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from helpers_exchange import DOCUMENTS, EOS, find_ends, join, make_corpus

import tdstream
from tdstream.cli.main import main
from tdstream.nodes.shard_source import ShardSource, open_source

FIRST, SECOND = DOCUMENTS[:5], DOCUMENTS[5:]


def raw(path, documents=DOCUMENTS, dtype="<u2"):
    """Write tokens and nothing else."""
    np.array(join(documents), dtype).tofile(path)
    return path


def megatron(tmp_path, name, documents, dtype="uint16"):
    """Write a prefix of Megatron."""
    corpus = make_corpus(tmp_path / f"of_{name}", documents, shard=1000, dtype=dtype)
    tdstream.export(corpus, tmp_path / name, to="megatron", one_prefix=True)
    return tmp_path / name / "tokens"


def read(directory):
    """Return the tokens and document ends that tdstream reads."""
    source = open_source(directory)
    ends = source.ends()
    rows = source.open().rows(np.array([0]), source.total_tokens)
    return rows[0].tolist(), ends.between(0, ends.num_documents).tolist()


def test_facts_of_headerless_files_are_said_once(tmp_path):
    """A nanoGPT folder becomes a corpus that every reader of the format knows."""
    raw(tmp_path / "train.bin")
    raw(tmp_path / "val.bin", [[1, EOS]])
    place = tdstream.adopt(
        tmp_path / "train.bin", tmp_path, dtype="uint16", eos_token_id=EOS, tokenizer="gpt2"
    )
    meta = json.loads((place / "meta.json").read_text())
    assert meta["format_version"] == 1
    assert meta["chunks"] == [{"file": "train.bin", "tokens": len(join(DOCUMENTS))}]
    assert (meta["dtype"], meta["eos_token_id"], meta["tokenizer_name_or_path"]) == ("uint16", EOS, "gpt2")
    assert read(tmp_path) == (join(DOCUMENTS), find_ends(DOCUMENTS))
    assert ShardSource(tmp_path).total_tokens == len(join(DOCUMENTS))
    loader = tdstream.loader(tmp_path, seq_len=8, batch_size=1, documents=True)
    assert loader.eos_token_id == EOS
    assert {path.name for path in tmp_path.iterdir()} == {"train.bin", "val.bin", "meta.json"}


@pytest.mark.parametrize("swapped", [False, True])
def test_prefixes_become_one_corpus_in_the_given_order(tmp_path, swapped):
    """With the documents of both indices; other readers refuse, as the files lie elsewhere."""
    parts = [("b", FIRST), ("a", SECOND)]
    parts = parts[::-1] if swapped else parts
    prefixes = [megatron(tmp_path, *part) for part in parts]
    tdstream.adopt(prefixes, tmp_path / "both")
    documents = [document for _, part in parts for document in part]
    assert read(tmp_path / "both") == (join(documents), find_ends(documents))
    meta = json.loads((tmp_path / "both" / "meta.json").read_text())
    assert meta["format_version"] == 2
    assert "chunks" not in meta
    sizes = [len(join(part)) for _, part in parts]
    assert meta["pieces"] == [
        {"path": f"{prefix}.bin", "offset": 0, "tokens": size}
        for prefix, size in zip(prefixes, sizes, strict=True)
    ]
    with pytest.raises(tdstream.CorpusError, match="adopted files of other tools"):
        ShardSource(tmp_path / "both")


def test_headers_are_never_tokens(tmp_path):
    """Pieces with an offset are no chunks, also in the directory itself; paths below it are relative."""
    tdstream.export(make_corpus(tmp_path / "corpus"), tmp_path / "llmc", to="llmc")
    tdstream.adopt(tmp_path / "llmc", tmp_path / "llmc", eos_token_id=EOS)
    meta = json.loads((tmp_path / "llmc" / "meta.json").read_text())
    assert meta["pieces"][0] == {"path": "train_000000.bin", "offset": 1024, "tokens": 50}
    documents = [[EOS, *document[:-1]] for document in DOCUMENTS]
    assert read(tmp_path / "llmc") == (join(documents), find_ends(documents))
    (tmp_path / "llmc").rename(tmp_path / "moved")
    assert read(tmp_path / "moved") == (join(documents), find_ends(documents))


def test_documents_of_an_index_are_kept_where_chunks_are_listed(tmp_path):
    """Other readers see the shards of a Megatron directory, tdstream also its index."""
    corpus = make_corpus(tmp_path / "corpus", shard=1000)
    tdstream.export(corpus, tmp_path / "mega", to="megatron", one_prefix=True)
    tdstream.adopt(tmp_path / "mega", tmp_path / "mega")
    meta = json.loads((tmp_path / "mega" / "meta.json").read_text())
    assert meta["chunks"] == [{"file": "tokens.bin", "tokens": len(join(DOCUMENTS))}]
    assert read(tmp_path / "mega") == (join(DOCUMENTS), find_ends(DOCUMENTS))


def test_several_corpora_become_one(tmp_path):
    """Own corpora, each with its index."""
    corpora = [make_corpus(tmp_path / name, part) for name, part in (("x", FIRST), ("y", SECOND))]
    tdstream.adopt(corpora, tmp_path / "both")
    assert read(tmp_path / "both") == (join(DOCUMENTS), find_ends(DOCUMENTS))
    assert open_source(tmp_path / "both").eos_token_id == EOS


def test_a_run_resumes_on_adopted_files(tmp_path):
    """One prefix is the same stream; with checksums, so are files of the same content elsewhere."""
    prefix = megatron(tmp_path, "a", DOCUMENTS)
    options = {"seq_len": 4, "batch_size": 2, "shuffle": True}
    loader = tdstream.loader(prefix, **options)
    whole = [batch["input_ids"].tolist() for batch in loader]
    loader = tdstream.loader(prefix, **options)
    next(iter(loader))
    tdstream.adopt(prefix, tmp_path / "one")
    resumed = tdstream.loader(tmp_path / "one", **options)
    resumed.load_state_dict(loader.state_dict())
    assert [batch["input_ids"].tolist() for batch in resumed] == whole[1:]


def test_sources_that_have_changed_are_refused(tmp_path):
    """Another size, another index, or no file at all."""
    prefix = megatron(tmp_path, "a", DOCUMENTS)
    tdstream.adopt(prefix, tmp_path / "one")
    other = megatron(tmp_path, "other", [DOCUMENTS[0] + DOCUMENTS[1], *DOCUMENTS[2:]])  # the same tokens
    index = Path(f"{prefix}.idx").read_bytes()
    Path(f"{prefix}.idx").unlink()
    Path(f"{prefix}.idx").write_bytes(Path(f"{other}.idx").read_bytes())
    with pytest.raises(tdstream.CorpusError, match=r"no longer what .* adopted: it has another content"):
        tdstream.loader(tmp_path / "one", seq_len=4, batch_size=1)
    Path(f"{prefix}.idx").unlink()
    with pytest.raises(tdstream.CorpusError, match="cannot be read any more"):
        tdstream.loader(tmp_path / "one", seq_len=4, batch_size=1)
    Path(f"{prefix}.idx").write_bytes(index)
    assert read(tmp_path / "one") == (join(DOCUMENTS), find_ends(DOCUMENTS))


@pytest.mark.parametrize("inside", [True, False])
def test_checksums_are_content_and_are_verified(tmp_path, inside, capsys):
    """A flipped byte is found; states compare the checksums."""
    (tmp_path / "files").mkdir()
    file = raw(tmp_path / "files" / "train.bin")
    place = tmp_path / ("files" if inside else "elsewhere")
    words = ["adopt", str(file), "-o", str(place), "--dtype", "uint16", "--eos", str(EOS), "--checksums"]
    assert main(words) == 0
    meta = json.loads((place / "meta.json").read_text())
    value = f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
    assert meta["adopted"]["checksums"] == {"train.bin" if inside else str(file): value}
    assert meta.get("chunk_checksums") == ({"train.bin": value} if inside else None)
    assert main(["verify", str(place)]) == 0
    content = open_source(place).state_dict()["content"]
    assert content
    damaged = bytearray(file.read_bytes())
    damaged[6] ^= 1
    file.write_bytes(damaged)
    assert main(["verify", str(place)]) == 1
    assert "checksum" in capsys.readouterr().out


def test_what_cannot_be_one_corpus_is_refused(tmp_path):
    """Before anything is written."""
    one = megatron(tmp_path, "a", FIRST)
    wide = megatron(tmp_path, "b", SECOND, "uint32")
    bare = raw(tmp_path / "c.bin")
    adopt = tdstream.adopt
    for words, call in {
        "several types": lambda: adopt([one, wide], tmp_path / "out"),
        "named twice": lambda: adopt([one, one], tmp_path / "out"),
        "at least one source": lambda: adopt([], tmp_path / "out"),
        'Pass dtype="uint16"': lambda: adopt(bare, tmp_path / "out"),
        "contradicts": lambda: adopt(one, tmp_path / "out", dtype="uint32"),
        "holds meta.json": lambda: adopt(bare, tmp_path / "of_a", dtype="uint16"),
        "is a file": lambda: adopt(bare, tmp_path / "c.bin", dtype="uint16"),
    }.items():
        with pytest.raises(tdstream.TdstreamError, match=words):
            call()
    assert not (tmp_path / "out").exists()
    tdstream.adopt(one, tmp_path / "out")
    with pytest.raises(tdstream.ConfigError, match="is adopted itself"):
        tdstream.adopt(tmp_path / "out", tmp_path / "again")
    with pytest.raises(tdstream.ConfigError, match="Leave it out"):
        open_source(tmp_path / "out", told_dtype())


def told_dtype():
    """Return what a caller says of the type."""
    from tdstream.formats.description import FormatOptions

    return FormatOptions(dtype="uint16")


def test_adopted_files_are_exported_and_inspected(tmp_path, capsys):
    """Pieces of two prefixes are one llm.c corpus."""
    prefixes = [megatron(tmp_path, "a", FIRST), megatron(tmp_path, "b", SECOND)]
    tdstream.adopt(prefixes, tmp_path / "both", eos_token_id=EOS)
    tdstream.export(tmp_path / "both", tmp_path / "out", to="llmc")
    found = np.concatenate(
        [np.fromfile(file, "<u2", offset=1024) for file in sorted((tmp_path / "out").iterdir())]
    )
    assert found.tolist() == [EOS, *join(DOCUMENTS)[:-1]]
    assert main(["inspect", str(tmp_path / "both")]) == 0
    assert "its meta.json names the files" in capsys.readouterr().out
