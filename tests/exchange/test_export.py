"""Exports hold every token and document of the corpus, as an independent reader finds them, and tdstream."""

from __future__ import annotations

import errno
import logging
import os
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from helpers_exchange import (
    DOCUMENTS,
    EOS,
    HELD_OUT,
    cut,
    die_at,
    files_of,
    find_ends,
    join,
    make_corpus,
    read_datatrove,
    read_llmc,
    read_megatron,
    read_olmo,
)

import tdstream
from tdstream.cli.main import main
from tdstream.formats.description import FormatOptions
from tdstream.formats.ends import open_ends
from tdstream.formats.recognize import describe

SHARD = 50
SHARDS = cut(DOCUMENTS, SHARD)  # 108 tokens in 3 shards
AFTER_TWO = 13
"""Changes of the disk after which an export to llm.c has completed two shards."""
FORMATS = ("megatron", "datatrove", "olmo", "nanogpt", "llmc")


def tokens_of(path, **told):
    """Return all tokens as tdstream reads them, in rows of two."""
    built = tdstream.build(path, seq_len=1, stride=1, batch_size=1, **told)
    rows = [batch["input_ids"][0, 0].item() for batch in built]
    return [*rows, list(built)[-1]["labels"][0, -1].item()]


def ends_of(path, **told):
    """Return the ends of documents as tdstream finds them."""
    ends = open_ends(describe(path, FormatOptions(**told)))
    return ends.between(0, ends.num_documents).tolist()


def same_file(one, other):
    """Return whether two files are one."""
    return os.path.samefile(one, other)


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_megatron_has_a_prefix_for_each_shard(tmp_path, dtype, index):
    """The shards are linked; documents that cross are two."""
    corpus = make_corpus(tmp_path / "corpus", dtype=dtype, shard=SHARD, index=index)
    result = tdstream.export(corpus, tmp_path / "out", to="megatron")
    found = [read_megatron(tmp_path / "out" / f"chunk_{n:06d}") for n in range(3)]
    assert [kind for kind, _ in found] == [{"uint16": "uint16", "uint32": "int32"}[dtype]] * 3
    assert [documents for _, documents in found] == SHARDS
    assert all(
        same_file(corpus / f"chunk_{n:06d}.bin", tmp_path / "out" / f"chunk_{n:06d}.bin") for n in range(3)
    )
    assert (result.files, result.copied_bytes) == (6, 0)
    assert result.linked_bytes == len(join(DOCUMENTS)) * np.dtype(dtype).itemsize
    assert tokens_of(tmp_path / "out") == join(DOCUMENTS)
    assert ends_of(tmp_path / "out") == sorted({*find_ends(DOCUMENTS), 50, 100})


@pytest.mark.parametrize("shard", [SHARD, 1000])
def test_megatron_as_one_prefix(tmp_path, shard):
    """Documents are whole; a corpus of one shard is linked."""
    corpus = make_corpus(tmp_path / "corpus", shard=shard)
    result = tdstream.export(corpus, tmp_path / "out", to="megatron", one_prefix=True)
    assert read_megatron(tmp_path / "out" / "tokens") == ("uint16", DOCUMENTS)
    assert (result.linked_bytes > 0) is (shard == 1000)
    assert ends_of(tmp_path / "out" / "tokens") == find_ends(DOCUMENTS)


def test_megatron_refuses_ids_that_are_negative_there(tmp_path):
    """2^31 - 1 is the highest id of int32; what meta.json says of the vocabulary proves nothing."""
    fine = make_corpus(tmp_path / "fine", [[2**31 - 1, EOS]], dtype="uint32")
    tdstream.export(fine, tmp_path / "out", to="megatron")
    assert read_megatron(tmp_path / "out" / "chunk_000000")[1] == [[2**31 - 1, EOS]]
    corpus = make_corpus(tmp_path / "corpus", [[5, 2**31, EOS]], dtype="uint32")
    with pytest.raises(tdstream.CorpusError, match=r"holds the id 2,147,483,648 \(token 1 there\)"):
        tdstream.export(corpus, tmp_path / "other", to="megatron")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "fine", "out"]


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_datatrove(tmp_path, dtype):
    """The shard is linked, and its index too where no document crosses to the next shard."""
    documents = [[1, EOS], [2, 3, EOS], [4, 5, 6, 8, 9, EOS]]  # 5 tokens end with a document, 10 do not
    corpus = make_corpus(tmp_path / "corpus", documents, dtype=dtype, shard=5)
    tdstream.export(corpus, tmp_path / "out", to="datatrove")
    found = [read_datatrove(tmp_path / "out" / f"chunk_{n:06d}.ds") for n in range(3)]
    assert found == [(f"gpt2|{np.dtype(dtype).itemsize}", shard) for shard in cut(documents, 5)]
    for number, linked in enumerate((True, False, True)):
        name = f"chunk_{number:06d}"
        assert same_file(corpus / f"{name}.bin", tmp_path / "out" / f"{name}.ds")
        assert same_file(corpus / f"{name}.ends", tmp_path / "out" / f"{name}.ds.index") is linked
    assert tokens_of(tmp_path / "out") == join(documents)
    assert ends_of(tmp_path / "out") == [2, 5, 10, 11]


@pytest.mark.parametrize(
    ("count", "words"), [(5, "5.00 T"), (999, "999 T"), (1500, "1.50 kT"), (45_600, "45.6 kT")]
)
def test_datatrove_counts_tokens_in_words(tmp_path, count, words):
    """As `humanize.metric(count, unit="T")` does."""
    corpus = make_corpus(tmp_path / "corpus", [[*[1] * (count - 1), EOS]], shard=10**6)
    tdstream.export(corpus, tmp_path / "out", to="datatrove")
    assert (tmp_path / "out" / "chunk_000000.ds.metadata").read_text() == f"gpt2|2\n{count}\n{words}"


@pytest.mark.parametrize("index", [True, False])
def test_olmo(tmp_path, index):
    """The shards are linked, beside a table of documents."""
    corpus = make_corpus(tmp_path / "corpus", shard=SHARD, index=index)
    result = tdstream.export(corpus, tmp_path / "out", to="olmo")
    assert [read_olmo(tmp_path / "out" / f"chunk_{n:06d}.npy") for n in range(3)] == SHARDS
    assert result.copied_bytes == 0
    assert f"end-of-text id {EOS}" in result.notes[-1]
    assert tokens_of(tmp_path / "out") == join(DOCUMENTS)


@pytest.mark.parametrize("shard", [SHARD, 1000])
def test_nanogpt(tmp_path, shard):
    """One file of training and one of held-out tokens; those of one shard are links."""
    corpus = make_corpus(tmp_path / "corpus", shard=shard, held_out=HELD_OUT)
    tdstream.export(corpus, tmp_path / "out", to="nanogpt")
    assert np.fromfile(tmp_path / "out" / "train.bin", "<u2").tolist() == join(DOCUMENTS)
    assert np.fromfile(tmp_path / "out" / "val.bin", "<u2").tolist() == join(HELD_OUT)
    assert same_file(corpus / "chunk_000000.bin", tmp_path / "out" / "train.bin") is (shard == 1000)
    assert tokens_of(tmp_path / "out" / "train.bin", dtype="uint16") == join(DOCUMENTS)


def test_nanogpt_without_held_out_documents(tmp_path):
    """There is no val.bin, and that is said."""
    result = tdstream.export(make_corpus(tmp_path / "corpus"), tmp_path / "out", to="nanogpt")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["train.bin"]
    assert "no val.bin" in result.notes[0]


def test_nanogpt_refuses_wide_tokens(tmp_path):
    """Its reader knows no type but uint16."""
    with pytest.raises(tdstream.ConfigError, match="uint32; nanoGPT reads uint16 only"):
        tdstream.export(make_corpus(tmp_path / "corpus", dtype="uint32"), tmp_path / "out", to="nanogpt")


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
@pytest.mark.parametrize("tail", [(), (11, 12)])
def test_llmc_begins_documents_with_the_token(tmp_path, dtype, tail):
    """The last end-of-text token moves to the front: every document then begins with one, as in llm.c."""
    corpus = make_corpus(tmp_path / "corpus", shard=SHARD, dtype=dtype, tail=tail, held_out=HELD_OUT)
    result = tdstream.export(corpus, tmp_path / "out", to="llmc")
    documents = [[EOS, *document[:-1]] for document in DOCUMENTS] + [[EOS, *tail]] * bool(tail)
    names = sorted(path.name for path in (tmp_path / "out").glob("train_*.bin"))
    found = [read_llmc(tmp_path / "out" / name) for name in names]
    assert {kind for kind, _ in found} == {"<u2" if dtype == "uint16" else "<u4"}
    assert join([tokens for _, tokens in found]) == join(documents)
    assert [len(tokens) for _, tokens in found] == [50, 50, len(join(documents)) - 100]
    assert read_llmc(tmp_path / "out" / "val_000000.bin")[1] == join([[EOS, *one[:-1]] for one in HELD_OUT])
    assert ("one was added" in result.notes[0]) is bool(tail)
    pattern = str(tmp_path / "out" / "train_*.bin")
    assert tokens_of(pattern) == join(documents)
    assert ends_of(pattern, eos_token_id=EOS) == find_ends(documents)


def test_llmc_shards_have_less_than_2_31_tokens(tmp_path, monkeypatch):
    """Longer pieces are cut: the header counts in int32."""
    monkeypatch.setattr("tdstream.exchange.targets.MOST_TOKENS", 20)
    corpus = make_corpus(tmp_path / "corpus", shard=SHARD)
    tdstream.export(corpus, tmp_path / "out", to="llmc")
    found = [read_llmc(path)[1] for path in sorted((tmp_path / "out").iterdir())]
    assert [len(tokens) for tokens in found] == [20, 20, 10, 20, 20, 10, 8]
    assert join(found) == [EOS, *join(DOCUMENTS)[:-1]]


def test_any_described_files_are_exported(tmp_path):
    """llm.c to Megatron, and back: the very shards."""
    corpus = make_corpus(tmp_path / "corpus", shard=SHARD)
    tdstream.export(corpus, tmp_path / "llmc", to="llmc")
    tdstream.export(tmp_path / "llmc", tmp_path / "mega", to="megatron", eos_token_id=EOS)
    shards = cut([[EOS, *document[:-1]] for document in DOCUMENTS], SHARD)
    assert [read_megatron(tmp_path / "mega" / f"train_{n:06d}")[1] for n in range(3)] == shards
    tdstream.export(
        str(tmp_path / "llmc" / "*.bin"), tmp_path / "again", to="llmc", eos_token_id=EOS, eos_first=True
    )
    assert files_of(tmp_path / "again") == files_of(tmp_path / "llmc")


def test_documents_that_no_token_ends_are_no_shards_of_llmc(tmp_path):
    """A boundary without a token would be lost there."""
    corpus = make_corpus(tmp_path / "corpus", shard=SHARD)
    tdstream.export(corpus, tmp_path / "mega", to="megatron")
    with pytest.raises(tdstream.ConfigError, match="Pass eos_token_id"):
        tdstream.export(tmp_path / "mega", tmp_path / "out", to="llmc")
    with pytest.raises(tdstream.CorpusError, match="documents that do not end with the token 7, with"):
        tdstream.export(tmp_path / "mega", tmp_path / "out", to="llmc", eos_token_id=EOS)
    tdstream.export(corpus, tmp_path / "one", to="megatron", one_prefix=True)
    tdstream.export(tmp_path / "one", tmp_path / "out", to="llmc", eos_token_id=EOS)
    assert read_llmc(tmp_path / "out" / "train_000000.bin")[1] == [EOS, *join(DOCUMENTS)[:-1]]


def test_shards_that_are_links_are_linked_to_their_files(tmp_path):
    """A corpus of symbolic links is exported as the files behind them."""
    real = make_corpus(tmp_path / "real", shard=1000)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for path in real.iterdir():
        (corpus / path.name).symlink_to(os.path.relpath(path, corpus))
    tdstream.export(corpus, tmp_path / "deep" / "out", to="megatron")
    made = tmp_path / "deep" / "out" / "chunk_000000.bin"
    assert not made.is_symlink()
    assert same_file(made, real / "chunk_000000.bin")


def test_without_hard_links_files_are_copied(tmp_path, monkeypatch, caplog):
    """And it is said."""
    corpus = make_corpus(tmp_path / "corpus", shard=SHARD)
    tdstream.export(corpus, tmp_path / "linked", to="datatrove")

    def refuse(*paths, **options):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    with caplog.at_level(logging.INFO, "tdstream"):
        result = tdstream.export(corpus, tmp_path / "copied", to="datatrove")
    assert files_of(tmp_path / "copied") == files_of(tmp_path / "linked")
    assert result.linked_bytes == 0
    assert "Hard links are not possible" in caplog.text


# What is refused, before anything is written.


def test_the_output_must_be_free(tmp_path):
    """Nothing is overwritten, and nothing is written into a corpus."""
    corpus = make_corpus(tmp_path / "corpus")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name, words in (
        ("out", r"is not empty \(it holds mine.txt\)"),
        ("file", "is a file"),
        ("file/out", "is a file"),
        ("corpus/out", "lies in the corpus"),
        ("corpus", "lies in the corpus"),
    ):
        with pytest.raises(tdstream.OutputError, match=words):
            tdstream.export(corpus, tmp_path / name, to="olmo")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "file", "out"]


def test_an_empty_directory_is_free(tmp_path):
    """Also through a symbolic link."""
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to("out")
    tdstream.export(make_corpus(tmp_path / "corpus", shard=SHARD), tmp_path / "link", to="olmo")
    assert len(list((tmp_path / "out").iterdir())) == 6


def test_options_are_checked(tmp_path):
    """Each in a sentence."""
    corpus = make_corpus(tmp_path / "corpus")
    for words, options in {
        "to must be one of megatron, datatrove": {"to": "parquet"},
        "one_prefix is for Megatron": {"to": "olmo", "one_prefix": True},
        "Leave it out": {"to": "olmo", "dtype": "uint16"},
    }.items():
        with pytest.raises(tdstream.ConfigError, match=words):
            tdstream.export(corpus, tmp_path / "out", **options)


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda corpus: os.truncate(corpus / "chunk_000001.bin", 98), "is truncated"),
        (lambda corpus: (corpus / "chunk_000001.bin").unlink(), "is missing"),
        (lambda corpus: os.truncate(corpus / "chunk_000001.ends", 8), "is truncated"),
        (lambda corpus: (corpus / "meta.json").rename(corpus / "old.json"), "pass|Pass|no"),
        (lambda corpus: os.truncate(corpus / "meta.json", 100), "is not JSON"),
    ],
    ids=["cut shard", "missing shard", "cut index", "no meta", "cut meta"],
)
def test_a_damaged_corpus_is_refused(tmp_path, to, damage, words):
    """Before anything is written."""
    corpus = make_corpus(tmp_path / "corpus", shard=SHARD)
    damage(corpus)
    with pytest.raises(tdstream.TdstreamError, match=words):
        tdstream.export(corpus, tmp_path / "out", to=to)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]


def test_an_unfinished_corpus_is_refused(tmp_path):
    """It may grow."""
    (tmp_path / "corpus" / ".preparing").mkdir(parents=True)
    with pytest.raises(tdstream.CorpusError, match="preparation that has not finished"):
        tdstream.export(tmp_path / "corpus", tmp_path / "out", to="olmo")


@pytest.mark.parametrize("to", ["megatron", "datatrove", "olmo"])
def test_a_damaged_index_is_refused(tmp_path, to):
    """Where the documents are promised."""
    corpus = make_corpus(tmp_path / "corpus", shard=SHARD)
    ends = np.fromfile(corpus / "chunk_000000.ends", "<i8")
    ends[::-1].tofile(corpus / "chunk_000000.ends")
    with pytest.raises(tdstream.CorpusError, match="do not ascend"):
        tdstream.export(corpus, tmp_path / "out", to=to)


# Kills, and disks that are full.


@pytest.mark.parametrize(
    ("to", "options"),
    [("megatron", {}), ("megatron", {"one_prefix": True}), ("datatrove", {}), ("olmo", {}), ("llmc", {})],
)
def test_a_kill_at_any_change_leaves_nothing_that_looks_complete(tmp_path, to, options):
    """SIGKILL before each change of the disk; then the same command completes it."""
    corpus = make_corpus(tmp_path / "corpus", shard=SHARD)
    tdstream.export(corpus, tmp_path / "whole", to=to, **options)
    wanted, call, killed = files_of(tmp_path / "whole"), 0, True
    while killed:
        output = tmp_path / f"out{call}"
        killed = die_at(call, lambda output=output: tdstream.export(corpus, output, to=to, **options))
        if output.exists():
            assert files_of(output) == wanted
        else:
            assert killed
            tdstream.export(corpus, output, to=to, **options)
            assert files_of(output) == wanted
            assert not (tmp_path / f".out{call}.exporting").exists()
        call += 1
    assert call > 8


def test_a_killed_export_keeps_its_complete_copies(tmp_path, caplog):
    """The next one makes the others only."""
    corpus = make_corpus(tmp_path / "corpus", shard=SHARD)
    assert die_at(AFTER_TWO, lambda: tdstream.export(corpus, tmp_path / "out", to="llmc"))
    kept = {path: path.stat().st_ino for path in (tmp_path / ".out.exporting" / "files").glob("*.bin")}
    assert len(kept) == 2
    with caplog.at_level(logging.INFO, "tdstream"):
        tdstream.export(corpus, tmp_path / "out", to="llmc")
    assert "2 files complete from an earlier run" in caplog.text
    assert {(tmp_path / "out" / path.name).stat().st_ino for path in kept} == set(kept.values())


@pytest.mark.parametrize("change", ["corpus", "format"])
def test_another_export_starts_from_scratch(tmp_path, change):
    """What a killed export left is of an older corpus, or of another tool."""
    corpus = make_corpus(tmp_path / "corpus", shard=SHARD)
    assert die_at(AFTER_TWO, lambda: tdstream.export(corpus, tmp_path / "out", to="llmc"))
    if change == "corpus":
        tokens = np.fromfile(corpus / "chunk_000000.bin", "<u2")
        tokens[0] = 999
        tokens.tofile(corpus / "chunk_000000.bin")
        tdstream.export(corpus, tmp_path / "out", to="llmc")
        assert read_llmc(tmp_path / "out" / "train_000000.bin")[1][:2] == [EOS, 999]
    else:
        tdstream.export(corpus, tmp_path / "out", to="nanogpt")
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["train.bin"]


def test_two_exports_do_not_share_an_output(tmp_path, monkeypatch):
    """The second one is refused while the first runs."""
    corpus = make_corpus(tmp_path / "corpus", shard=SHARD)

    def export_again(*paths, **options):
        with pytest.raises(tdstream.OutputError, match="Another"):
            tdstream.export(corpus, tmp_path / "out", to="olmo")
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", export_again)
    tdstream.export(corpus, tmp_path / "out", to="olmo")
    assert len(list((tmp_path / "out").iterdir())) == 6


def test_a_disk_that_fills_up(tmp_path, monkeypatch):
    """One sentence; complete copies are kept for the next start, and nothing has the name of the output."""
    corpus, written, write = make_corpus(tmp_path / "corpus", shard=SHARD), 0, os.write

    def fill(descriptor, content):
        nonlocal written
        written += len(content)
        if written > 2500:  # after two shards of 1,124 bytes
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, content)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fill)
        with pytest.raises(
            tdstream.OutputError, match=r"No space left .* 2 complete copies of files are kept"
        ):
            tdstream.export(corpus, tmp_path / "out", to="llmc")
        written = 2400
        with pytest.raises(tdstream.OutputError, match="No space left"):
            tdstream.export(corpus, tmp_path / "other", to="nanogpt")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob("*other*"))
    tdstream.export(corpus, tmp_path / "out", to="llmc")
    assert len(list((tmp_path / "out").iterdir())) == 3


def test_too_little_space_is_known_before(tmp_path, monkeypatch):
    """Links need no space."""
    Disk = namedtuple("Disk", "f_bavail f_frsize")
    corpus = make_corpus(tmp_path / "corpus", shard=SHARD)
    monkeypatch.setattr(os, "statvfs", lambda path: Disk(1, 100))
    with pytest.raises(tdstream.OutputError, match="No space left"):
        tdstream.export(corpus, tmp_path / "out", to="nanogpt")
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]
    tdstream.export(corpus, tmp_path / "out", to="olmo")  # links need none


# The command.


def test_the_command_says_what_it_will_do(tmp_path, capsys):
    """Then what it did, with a bar between where bytes are copied."""
    corpus = make_corpus(tmp_path / "corpus", shard=SHARD)
    assert main(["export", str(corpus), str(tmp_path / "out"), "--to", "megatron"]) == 0
    first, *rest = capsys.readouterr().err.splitlines()
    assert first.endswith("/out: 3 hard links to 216 bytes, which take no space; 3 small files to write.")
    assert rest[0] == "1 document crosses from one shard to the next; it is two documents there."
    assert rest[-1].startswith("6 files for megatron, 216 bytes linked, 0 bytes copied: ")
    assert main(["export", str(corpus), str(tmp_path / "out"), "--to", "megatron"]) == 1
    assert "is not empty" in capsys.readouterr().err
    assert main(["export", str(corpus), str(tmp_path / "llmc"), "--to", "llmc"]) == 0
    assert "Exporting: 100%" in capsys.readouterr().err


def test_a_long_document_is_refused(tmp_path, monkeypatch):
    """Megatron counts the tokens of a sequence in int32."""
    monkeypatch.setattr("tdstream.exchange.targets.MOST_TOKENS", 39)
    corpus = make_corpus(tmp_path / "corpus", shard=SHARD)
    with pytest.raises(tdstream.CorpusError, match="a document of 40 tokens"):
        tdstream.export(corpus, tmp_path / "out", to="megatron", one_prefix=True)
    assert [Path(path).name for path in tmp_path.iterdir()] == ["corpus"]
