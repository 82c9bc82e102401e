"""A corpus that changes under a running loader: appended to, it stays valid; replaced, it is refused."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tdstream
from helpers_corpus import write_corpus
from tdstream.cli.main import main
from tdstream.corpus.shard_reader import byte_pieces

TEXTS = [f"{number} words of text" for number in range(400)]


def prepare(tokenizer_dir, corpus, texts=TEXTS, **options):
    """Make a corpus of many shards of 100 tokens."""
    options = {"tokens_per_chunk": 100, "encoder": "hf", "resume": False, **options}
    return tdstream.prepare(texts, str(tokenizer_dir), corpus, **options)


def loader(corpus, workers, **options):
    """Return a loader that maps another shard with every batch or two."""
    return tdstream.loader(corpus, seq_len=9, batch_size=2, num_workers=workers, **options)


def read_all(one):
    """Return the inputs of the rest of an epoch."""
    return [batch["input_ids"].tolist() for batch in one]


@pytest.mark.parametrize("workers", [0, 2])
def test_overwrite_is_refused(tokenizer_dir, tmp_path, workers):
    """Shards that are mapped later would be another corpus's; those that are mapped stay what they were."""
    corpus = tmp_path / "corpus"
    prepare(tokenizer_dir, corpus)
    one = loader(corpus, workers)
    iterator = iter(one)
    next(iterator)
    prepare(tokenizer_dir, corpus, [f"{number} other text" for number in range(400)], overwrite=True)
    with pytest.raises(
        (tdstream.CorpusError, RuntimeError), match=r"replaced or changed since|bytes when the"
    ):
        for _ in iterator:
            pass


@pytest.mark.parametrize("workers", [0, 2])
def test_the_same_corpus_again_is_accepted(tokenizer_dir, tmp_path, workers):
    """Prepared again from the same text, its shards have the same checksums: nothing is mixed."""
    corpus = tmp_path / "corpus"
    prepare(tokenizer_dir, corpus)
    wanted = read_all(loader(corpus, 0))
    iterator = iter(loader(corpus, workers))
    found = [next(iterator)["input_ids"].tolist()]
    prepare(tokenizer_dir, corpus, overwrite=True)
    assert found + read_all(iterator) == wanted


@pytest.mark.parametrize("workers", [0, 2])
def test_append_in_mid_run(tokenizer_dir, tmp_path, workers):
    """The run continues with what it opened; its state, with workers alive, is of the corpus as it was."""
    corpus = tmp_path / "corpus"
    prepare(tokenizer_dir, corpus, TEXTS[:300])
    wanted = read_all(loader(corpus, 0, shuffle=True))
    one = loader(corpus, workers, shuffle=True)
    iterator = iter(one)
    found = [next(iterator)["input_ids"].tolist() for _ in range(3)]
    before = one.state_dict()
    prepare(tokenizer_dir, corpus, TEXTS[300:], append=True)
    assert one.state_dict() == before
    found += [next(iterator)["input_ids"].tolist() for _ in range(3)]
    state = one.state_dict()
    assert (state["position"], state["nodes"]["source"]) == (12, before["nodes"]["source"])
    assert found + read_all(iterator) == wanted
    assert len(loader(corpus, 0)) > len(one)
    with pytest.raises(tdstream.StateError, match="source"):
        loader(corpus, 0, shuffle=True).load_state_dict(state)


def test_files_without_checksums(tmp_path):
    """One that was written again cannot be told from another; one that was not is read."""
    corpus = write_corpus(tmp_path / "corpus", np.arange(400, dtype="<u2"), [100] * 4)
    one = loader(corpus, 0)
    iterator = iter(one)
    next(iterator)
    shard = corpus / "chunk_000003.bin"
    content = shard.read_bytes()
    os.utime(shard, ns=(1, 1))
    with pytest.raises(tdstream.CorpusError, match=r"chunk_000003\.bin was replaced or changed"):
        read_all(iterator)
    assert shard.read_bytes() == content


PROGRAM = """
import sys, tdstream
from tdstream.cli.main import main
for options in ({}, {"documents": True}, {"cut": "document", "min_tail_len": 1}, {"num_workers": 2}):
    loader = tdstream.loader(sys.argv[1], seq_len=2, batch_size=8, shuffle=True, **options)
    assert sum(len(batch["input_ids"]) for batch in loader) > 400, options
mixture = {str(n): (source, 1) for n, source in enumerate(sys.argv[1:])}
assert len(list(tdstream.loader(mixture, seq_len=2, batch_size=8, shuffle=True, documents=True))) > 100
sys.exit(main(["verify", "--samples", "0", sys.argv[1]]))
"""


def test_few_descriptors(tokenizer_dir, tmp_path):
    """With 100 open files allowed, 800 shards with an index each are read, shuffled, mixed and verified."""
    corpora = [tmp_path / "first", tmp_path / "second"]
    for corpus in corpora:
        prepare(tokenizer_dir, corpus, tokens_per_chunk=3)
        assert len(list(corpus.glob("*.bin"))) > 800
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, corpora)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)),
        env={**os.environ, "PYTHONPATH": str(Path(tdstream.__file__).parent.parent)},
    )
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    assert "no fault found" in done.stdout


@pytest.mark.parametrize(("number", "code"), [(errno.EMFILE, 0), (errno.EIO, 1)])
def test_verify_says_that_it_cannot_look(tokenizer_dir, tmp_path, monkeypatch, capsys, number, code):
    """A file that cannot be opened for want of descriptors is no fault; one that is unreadable is."""
    prepare(tokenizer_dir, tmp_path / "corpus", TEXTS[:60])

    def fail(path, *_):
        if path.name == "chunk_000001.bin":
            raise OSError(number, os.strerror(number))
        return byte_pieces(path)

    monkeypatch.setattr("tdstream.verification.contents.byte_pieces", fail)
    assert main(["verify", "--samples", "0", str(tmp_path / "corpus")]) == code
    out = capsys.readouterr().out
    label = "fault" if code else "unchecked"
    assert next(line for line in out.splitlines() if os.strerror(number) in line).split()[0] == label
