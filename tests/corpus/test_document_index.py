"""Where a corpus's documents end: from its index, else from a scan that is kept."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

from helpers_corpus import write_corpus
from helpers_documents import write_indexed
from tdstream.core.errors import ConfigError, CorpusError, CorpusNotFoundError, OutputError
from tdstream.corpus import document_index as eos_scan
from tdstream.corpus.document_index import corpus_ends, find_pad_id
from tdstream.nodes.shard_source import ShardSource

TOKENS = np.array([5, 0, 7, 7, 0, 0, 3, 0, 9, 9, 0, 4], "<u2")  # ends at 2, 5, 6, 8, 11; a rest of one token
SHARDS = (4, 0, 3, 5)
ENDS = [2, 5, 6, 8, 11, 12]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Return the user's cache directory of these tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def corpus(tmp_path):
    """Return a corpus without an index."""
    return write_corpus(tmp_path / "corpus", TOKENS, SHARDS)


@pytest.fixture
def scans(monkeypatch):
    """Return a list of the shards that are scanned from now on."""
    found, scan_shard = [], eos_scan._scan_shard

    def noted(shard, *rest):
        found.append(shard.name)
        scan_shard(shard, *rest)

    monkeypatch.setattr(eos_scan, "_scan_shard", noted)
    return found


def ends_of(directory):
    """Return all ends."""
    source = ShardSource(directory)
    found = corpus_ends(source.directory, source.files, source.offsets, source.dtype)
    return found.between(0, found.num_documents).tolist()


def made(directory):
    """Return the names of the files of ends in a directory and below."""
    return sorted(path.name.split(".")[0] for path in directory.rglob("*.eos"))


def test_documents_end_behind_end_of_text_tokens(corpus, scans, monkeypatch):
    """Wherever shards and pieces end; a second time nothing is read."""
    monkeypatch.setattr(eos_scan, "PIECE_BYTES", 4)
    assert ends_of(corpus) == ENDS
    assert scans == [f"chunk_{number:06d}.bin" for number in range(4)]
    assert ends_of(corpus) == ENDS
    assert len(scans) == 4
    assert made(corpus) == [f"chunk_{number:06d}" for number in range(4)]


@pytest.mark.parametrize("change", ["content", "time", "checksum"])
def test_a_shard_that_changed_is_read_again(corpus, scans, change):
    """That shard alone; what was known of it goes."""
    ends_of(corpus)
    scans.clear()
    shard, meta = corpus / "chunk_000002.bin", corpus / "meta.json"
    if change == "content":
        shard.write_bytes(np.array([0, 0, 0], "<u2").tobytes())
        os.utime(shard, ns=(1, 1))
    elif change == "time":
        os.utime(shard, ns=(1, 1))
    else:
        content = json.loads(meta.read_text())
        meta.write_text(json.dumps(content | {"chunk_checksums": {"chunk_000002.bin": "sha256:1"}}))
    assert ends_of(corpus) == ([2, 5, 6, 7, 8, 11, 12][:7] if change == "content" else ENDS)
    assert scans == ["chunk_000002.bin"]
    assert len(list((corpus / ".tdstream").glob("*.eos"))) == 4


def test_another_end_of_text_token_is_another_scan(corpus, scans):
    """The id is in meta.json."""
    ends_of(corpus)
    meta = json.loads((corpus / "meta.json").read_text())
    (corpus / "meta.json").write_text(json.dumps(meta | {"eos_token_id": 7}))
    assert ends_of(corpus) == [3, 4, 12]
    assert len(scans) == 8


def test_where_the_corpus_cannot_be_written_the_users_cache_is_used(corpus, cache, scans):
    """Again only once, and one directory for each corpus."""
    (corpus / ".tdstream").write_text("a file, so that no directory can be made")
    assert ends_of(corpus) == ends_of(corpus) == ENDS
    assert len(scans) == 4
    assert len(made(cache)) == 4


def test_no_place_at_all_is_said(corpus, cache):
    """With what to do."""
    (corpus / ".tdstream").write_text("")
    cache.write_text("")
    with pytest.raises(OutputError, match="Set XDG_CACHE_HOME"):
        ends_of(corpus)


def test_a_scan_that_ends_early_leaves_nothing_torn(corpus, monkeypatch):
    """A file has its name only when it is whole."""

    def broken(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(eos_scan, "as_tokens", broken)
        with pytest.raises(KeyboardInterrupt):
            ends_of(corpus)
    assert not [path for path in (corpus / ".tdstream").iterdir() if path.suffix != ".lock"]
    assert ends_of(corpus) == ENDS


def _scan_and_tell(directory, scanned, found):
    scan_shard = eos_scan._scan_shard

    def noted(shard, *rest):
        scanned.put(shard.name)
        scan_shard(shard, *rest)

    eos_scan._scan_shard = noted
    found.put(ends_of(directory))


def test_ranks_that_begin_together_scan_once(corpus):
    """One of them scans, the others wait and take what it found."""
    context = multiprocessing.get_context("fork")
    scanned, found = context.Queue(), context.Queue()
    ranks = [context.Process(target=_scan_and_tell, args=(corpus, scanned, found)) for _ in range(4)]
    for rank in ranks:
        rank.start()
    assert [found.get(timeout=60) for _ in ranks] == [ENDS] * 4
    for rank in ranks:
        rank.join()
    assert sorted(scanned.get(timeout=5) for _ in range(4)) == [f"chunk_{n:06d}.bin" for n in range(4)]
    assert scanned.empty()


def test_an_index_wins_over_end_of_text_tokens(tmp_path, scans):
    """So an end-of-text token inside a document's text is no border; nothing is read or written."""
    directory = write_indexed(tmp_path / "indexed", [3, 6], 9, [4, 4])
    tokens = np.zeros(4, "<u4")  # all of them end-of-text tokens
    (directory / "chunk_000000.bin").write_bytes(tokens.tobytes())
    assert ends_of(directory) == [3, 6, 9]
    assert scans == []
    assert not (directory / ".tdstream").exists()


def test_another_index_without_checksums_is_told_apart(tmp_path):
    """What was made from the one, such as a plan of packed rows, is not taken for the other's."""
    directory, keys = write_indexed(tmp_path / "corpus", [3, 8, 10], 12), []
    source, file = ShardSource(directory), directory / "chunk_000000.ends"
    for ends in ([3, 8, 10], [4, 8, 10]):
        np.array(ends, "<i8").tofile(file)
        os.utime(file, ns=(0, ends[0] * 10**9))
        keys.append(corpus_ends(source.directory, source.files, source.offsets, source.dtype).key)
    assert len(set(keys)) == 2


def test_a_damaged_index_is_named(tmp_path):
    """One that is missing, and one that was cut."""
    directory = write_indexed(tmp_path / "indexed", [3, 6], 9, [4])
    (directory / "chunk_000001.ends").write_bytes(bytes(4))
    with pytest.raises(CorpusError, match=r"chunk_000001\.ends .*has 4 bytes.*promises 8 \(1 ends"):
        ends_of(directory)
    (directory / "chunk_000001.ends").unlink()
    with pytest.raises(CorpusNotFoundError, match=r"chunk_000001\.ends is missing"):
        ends_of(directory)


def test_an_index_that_changes_later_is_named(tmp_path):
    """Files are opened when they are needed."""
    directory = write_indexed(tmp_path / "indexed", [1, 3, 6], 9, [4])
    source = ShardSource(directory)
    found = corpus_ends(source.directory, source.files, source.offsets, source.dtype)
    (directory / "chunk_000000.ends").write_bytes(bytes(8))
    with pytest.raises(CorpusError, match="had 2 ends of documents when the corpus was opened, has 1 now"):
        found.between(0, 1)
    (directory / "chunk_000000.ends").unlink()
    with pytest.raises(CorpusError, match="cannot be read any more"):
        found.between(0, 1)


def test_a_corpus_that_names_no_end_of_text_token_is_refused(tmp_path):
    """With the key that is missing."""
    directory = write_corpus(tmp_path / "corpus", TOKENS, SHARDS)
    meta = json.loads((directory / "meta.json").read_text())
    del meta["eos_token_id"]
    (directory / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(ConfigError, match="names no eos_token_id"):
        ends_of(directory)
    assert find_pad_id(directory) == 0


def test_padding_is_the_end_of_text_token(corpus):
    """Of which meta.json tells the id."""
    meta = json.loads((corpus / "meta.json").read_text())
    (corpus / "meta.json").write_text(json.dumps(meta | {"eos_token_id": 7}))
    assert find_pad_id(corpus) == 7
    assert find_pad_id(Path("/nowhere")) == 0
