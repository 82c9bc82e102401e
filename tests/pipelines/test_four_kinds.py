"""The same text as a corpus, a list, a cached corpus and a stream gives the same batches."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

import datasets
import pytest
from helpers_stream import (
    BATCH_SIZE,
    SEQ_LEN,
    document_rows,
    ids_of,
    joined_rows,
    marked_rows_of,
    rows_of,
    some_texts,
)
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream
from helpers_text import train_tokenizer
from tdstream.core.errors import OutputError, SourceError, StateError
from tdstream.preparation import cache as cached
from tdstream.text.tokenize import Tokenize
from tdstream.writing.locks import is_locked, take_lock

TEXTS = some_texts(400)
PADDED = [f"  {text}\n" for text in TEXTS]  # white space that cut="document" must not see


def rows(texts):
    """Return texts as a dataset."""
    return datasets.Dataset.from_dict({"text": list(texts)})


SOURCES = {
    "list": lambda texts: (list(texts), {}),
    "dataset": lambda texts: (rows(texts), {}),
    "records": lambda texts: ([{"text": text} for text in texts], {}),
    "cached list": lambda texts: (list(texts), {"cache_dir": "cache"}),
    "cached dataset": lambda texts: (rows(texts), {"cache_dir": "cache"}),
    "cached function": lambda texts: ((lambda: iter(texts)), {"cache_dir": "cache"}),
    "function": lambda texts: ((lambda: iter(texts)), {}),
    "iterable dataset": lambda texts: (rows(texts).to_iterable_dataset(num_shards=3), {}),
    "list as a stream": lambda texts: (list(texts), {"kind": "stream"}),
}


def build(name, texts, tokenizer, **options):
    """Return the dataset over a source of a kind."""
    source, more = SOURCES[name](texts)
    settings = {"seq_len": SEQ_LEN, "batch_size": BATCH_SIZE, "tokenizer": tokenizer} | more | options
    return tdstream.build(source, **settings)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Let each test have a cache of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def corpus(tokenizer_dir):
    """Return the texts as a corpus prepared beforehand."""
    tdstream.prepare(list(TEXTS), tokenizer_dir, "corpus")
    return Path("corpus")


@pytest.mark.parametrize("name", SOURCES)
def test_joined_documents(tokenizer_dir, corpus, name):
    """cut="stream": in order the batches are the corpus's; shuffled, an epoch has the same samples."""
    plain = tdstream.build(corpus, seq_len=SEQ_LEN, batch_size=BATCH_SIZE)
    expected = [ids_of(batch) for batch in plain]
    samples = [row[:-1] for row in joined_rows(TEXTS)]
    assert rows_of(plain) == samples[: BATCH_SIZE * len(expected)]
    assert [ids_of(batch) for batch in build(name, TEXTS, tokenizer_dir)] == expected
    shuffled = build(name, TEXTS, tokenizer_dir, shuffle=True, batch_size=1, shuffle_buffer=100)
    for epoch in range(2):
        shuffled.set_epoch(epoch)
        found = rows_of(shuffled)
        assert sorted(found) == sorted(samples) != found


@pytest.mark.parametrize("options", [{}, {"stride": 3, "min_tail_len": 3}])
@pytest.mark.parametrize("name", SOURCES)
def test_single_documents(tokenizer_dir, name, options):
    """cut="document": inputs, labels, masks and stops are those of the rule, for stripped texts."""
    expected = document_rows(PADDED, stride=options.get("stride"), min_tail=options.get("min_tail_len", 2))
    whole = len(expected) // BATCH_SIZE * BATCH_SIZE
    settings = {"cut": "document", **options}
    assert marked_rows_of(build(name, PADDED, tokenizer_dir, **settings)) == expected[:whole]
    shuffled = build(name, PADDED, tokenizer_dir, shuffle=True, batch_size=1, shuffle_buffer=100, **settings)
    found = marked_rows_of(shuffled)
    assert sorted(found) == sorted(expected) != found


def said(batches):
    """Return all that batches say, as lists."""
    return [
        {name: value.tolist() for name, value in batch.items() if name != "max_seqlen"} for batch in batches
    ]


@pytest.mark.parametrize("cut", ["stream", "document", "pack"])
def test_documents_are_the_same_from_memory_and_from_a_corpus(tokenizer_dir, cut):
    """With the ids and places of documents, padding included."""
    options = {"documents": True, "cut": cut, "batch_size": 3}
    found = said(build("list", TEXTS, tokenizer_dir, **options))
    assert found == said(build("cached list", TEXTS, tokenizer_dir, **options))
    assert {"document_ids", "position_ids", "cu_seqlens"} <= found[0].keys()
    assert ("attention_mask" in found[0]) == (cut != "stream")


def test_padding_is_the_tokenizers_own(tokenizer_dir):
    """A tokenizer with a pad token: all kinds fill with it, and labels do not depend on it."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
    tokenizer.pad_token = "w5"  # noqa: S105 - a word
    for name in ("list", "cached list", "function"):
        batch = next(iter(build(name, ["w2 w3 w5"], tokenizer, cut="document", batch_size=1)))
        if name != "function":
            packed = next(iter(build(name, ["w2 w3 w5"], tokenizer, cut="pack", batch_size=1)))
            assert packed["input_ids"].tolist() == batch["input_ids"].tolist()
        assert batch["input_ids"].tolist() == [[2, 3, 5, 0, 5, 5, 5, 5]]
        assert batch["labels"].tolist() == [[3, 5, 0, -100, -100, -100, -100, -100]]


def test_white_space_at_both_ends_is_left_out(tmp_path):
    """cut="document", with a tokenizer that sees white space: by all ways the tokens of the stripped text."""
    from transformers import AutoTokenizer

    tokenizer = train_tokenizer(tmp_path / "bytes")
    expected = AutoTokenizer.from_pretrained(tokenizer)("def a", add_special_tokens=False)["input_ids"]
    for name in ("list", "cached list", "cached function", "function"):
        batch = next(
            iter(build(name, [" \n def a\n\n"], tokenizer, cut="document", batch_size=1, encoder="hf"))
        )
        assert batch["input_ids"][0, : len(expected) + 1].tolist() == [*expected, 0]


@pytest.fixture
def calls(monkeypatch):
    """Return how many texts each call of the tokenizer had."""
    counted, encode = [], Tokenize.encode
    monkeypatch.setattr(
        Tokenize, "encode", lambda self, texts: counted.append(len(texts)) or encode(self, texts)
    )
    return counted


def test_a_list_is_tokenized_once_by_build(tokenizer_dir, calls):
    """In one pass; lengths, truth, repr and epochs need none."""
    pipeline = build("list", TEXTS, tokenizer_dir)
    assert sum(calls) == len(TEXTS)
    assert len(calls) == 1
    assert pipeline
    assert repr(pipeline).startswith("TextTokens(400 documents, ")
    assert len(pipeline) == len(joined_rows(TEXTS)) // BATCH_SIZE
    first = rows_of(pipeline)
    assert rows_of(pipeline) == first
    assert len(calls) == 1


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_do_not_tokenize_again(tokenizer_dir, calls, monkeypatch, method):
    """The main process does it before they exist, and hands it on."""
    if method == "spawn":
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    pipeline = build("list", TEXTS, tokenizer_dir)
    loader = StatefulDataLoader(pipeline, num_workers=2, multiprocessing_context=method)
    batches = [ids_of(batch) for batch in loader]
    assert sum(calls) == len(TEXTS)
    assert batches == [ids_of(batch) for batch in pipeline]


def test_a_list_has_all_that_a_corpus_has(tokenizer_dir):
    """A portable state that goes on with other ranks and workers, an exact length, counts."""
    options = {"seq_len": SEQ_LEN, "tokenizer": tokenizer_dir, "shuffle": True}
    whole = [row for batch in tdstream.loader(list(TEXTS), batch_size=4, **options) for row in ids_of(batch)]
    run = tdstream.loader(list(TEXTS), batch_size=4, num_workers=2, **options)
    list(islice(run, 5))
    state = run.state_dict()
    ranks = []
    for rank in range(2):
        loader = tdstream.loader(list(TEXTS), batch_size=1, dp_rank=rank, dp_world_size=2, **options)
        loader.load_state_dict(state)
        ranks.append([row for batch in loader for row in ids_of(batch)])
    found = [row for pair in zip(*ranks, strict=True) for row in pair]
    assert found == whole[20 : 20 + len(found)]
    other = tdstream.loader([*TEXTS, "w2"], batch_size=4, **options)
    with pytest.raises(StateError, match=r"source\.content was"):
        other.load_state_dict(state)


def test_a_long_tokenization_shows_a_bar(tokenizer_dir, monkeypatch, capfd):
    """Nothing when it is quick; a bar, with the number of documents, when it takes more than its patience."""
    from tdstream.nodes import text_tokens

    build("list", TEXTS, tokenizer_dir)
    assert "Tokenizing" not in capfd.readouterr().err
    monkeypatch.setattr(text_tokens, "_PATIENCE", 0)
    build("list", TEXTS, tokenizer_dir)
    assert "/400" in capfd.readouterr().err
    build("list", TEXTS, tokenizer_dir, dp_rank=1, dp_world_size=2)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("format_", [("numpy", {"columns": ["text"]}), ("torch", {"device": "cpu"})])
@pytest.mark.parametrize("transformed", [False, True])
def test_a_dataset_in_memory_may_have_a_format_or_a_transform(tokenizer_dir, format_, transformed):
    """A format leaves texts as they are; a transform decides what they are."""
    dataset = datasets.Dataset.from_dict({"text": TEXTS, "number": range(len(TEXTS))}).with_format(
        format_[0], **format_[1]
    )
    texts = TEXTS
    if transformed:
        dataset = dataset.with_transform(lambda rows: {"text": [f"{text} w7" for text in rows["text"]]})
        texts = [f"{text} w7" for text in TEXTS]
    pipe = tdstream.build(dataset, tokenizer=tokenizer_dir, seq_len=SEQ_LEN, batch_size=1)
    assert rows_of(pipe) == [row[:-1] for row in joined_rows(texts)]


def test_bad_records_of_a_list(tokenizer_dir):
    """A record without text is named."""
    with pytest.raises(SourceError, match=r"Record 1 \(counted from 0\) of list has no text in 'text'"):
        tdstream.build([{"text": "w2"}, {"body": "w3"}], tokenizer=tokenizer_dir)


def test_a_corpus_is_prepared_once(tokenizer_dir, monkeypatch, caplog):
    """The next run finds it, with the same options; other texts, fields and cuts have one of their own."""
    prepared, prepare = [], cached.prepare_corpus
    monkeypatch.setattr(cached, "prepare_corpus", lambda *given: prepared.append(given[0]) or prepare(*given))
    with caplog.at_level(logging.INFO, "tdstream"):
        for name in ("cached list", "cached list", "cached dataset"):
            build(name, TEXTS, tokenizer_dir, shuffle=True, seq_len=4)
        assert len(prepared) == 2  # a list and a dataset are told apart
        build("cached list", TEXTS, tokenizer_dir, cut="document")
        build("cached list", TEXTS[1:], tokenizer_dir)
    assert len(prepared) == 4
    assert caplog.text.count("Preparing") == 4


def test_whoever_comes_second_waits(tokenizer_dir, monkeypatch, caplog):
    """While another process holds the lock nobody else prepares; when it is gone, one takes over."""
    monkeypatch.setattr(cached, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(cached, "_FIRST_WORD_SECONDS", 0.05)
    build("cached list", TEXTS, tokenizer_dir)
    done = next(path for path in Path("cache").iterdir() if not path.name.startswith("."))
    done.rename("elsewhere")
    lock = take_lock(Path("cache") / f".{done.name}", done)
    found = []
    waiting = threading.Thread(target=lambda: found.append(build("cached list", TEXTS, tokenizer_dir)))
    waiting.start()
    time.sleep(0.3)
    assert waiting.is_alive()
    assert not done.exists()
    lock.close()  # as the kernel does when its process dies
    waiting.join(20)
    said = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert said[0].startswith(
        f"Waiting for the process that prepares {done.absolute()} (process {os.getpid()} on "
    )
    assert len(said) == 1
    assert rows_of(found[0]) == rows_of(build("list", TEXTS, tokenizer_dir))


def test_who_has_prepared_or_failed_holds_no_lock(tokenizer_dir):
    """A preparation that a bad record has ended, in a process that lives on, leaves the way free."""
    bad = [True]

    def texts():
        yield from TEXTS[:50]
        yield None if bad[0] else "w2"

    for fails in (True, False):
        bad[0] = fails
        with pytest.raises(SourceError) if fails else nullcontext():
            tdstream.build(texts, tokenizer=tokenizer_dir, cache_dir="cache", seq_len=SEQ_LEN)
        locks = list(Path("cache").glob(".*"))
        assert len(locks) == 1
        assert not is_locked(locks[0])


@pytest.mark.parametrize("rank", [0, 1])
def test_a_cache_dir_that_cannot_be_written(tokenizer_dir, rank):
    """It is said in a sentence, by rank 0 and by those that wait for it."""
    Path("file").touch()
    ranks = {"dp_rank": rank, "dp_world_size": 2}
    for place in ("file", "file/below"):
        with pytest.raises(OutputError, match=r"cannot be a directory: .* is a file"):
            tdstream.build(TEXTS, tokenizer=tokenizer_dir, cache_dir=place, seq_len=SEQ_LEN, **ranks)


RANK = """
import sys, tdstream
texts = [f"w{2 + n % 99} w3 w4" for n in range(20_000)]
print(len(tdstream.build(texts, tokenizer=sys.argv[1], cache_dir="cache", seq_len=8)))
"""


NO_LOCKS = """
import errno, fcntl, os
def flock(*_):
    raise OSError(getattr(errno, os.environ["FLOCK"]), "no such locks here")
fcntl.flock = flock
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("fails", ["", "ENOLCK", "EACCES"])
def test_a_killed_preparation_is_taken_over(tokenizer_dir, monkeypatch, fails):
    """Rank 0 is killed while it prepares; rank 1, which waits, goes on and ends. With locks and without."""
    paths = os.pathsep.join(path for path in sys.path if path)
    if fails:
        monkeypatch.setenv("FLOCK", fails)
        Path("site").mkdir()
        Path("site/sitecustomize.py").write_text(NO_LOCKS)
        paths = f"site{os.pathsep}{paths}"
    processes = []
    for rank in range(2):
        environment = {**os.environ, "PYTHONPATH": paths, "RANK": str(rank), "WORLD_SIZE": "2"}
        command = [sys.executable, "-c", RANK, str(tokenizer_dir)]
        processes.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        )
    deadline = time.monotonic() + 60
    while not list(Path().glob("cache/.*/lock")) and time.monotonic() < deadline:
        time.sleep(0.01)
    processes[0].kill()
    processes[0].communicate()
    assert processes[0].returncode == -signal.SIGKILL  # it had not ended by itself
    output, _ = processes[1].communicate(timeout=90)
    assert int(output) == 20_000 * 4 // 9 // 2  # samples of one of two ranks
