"""A pipeline that is made by hand from the public nodes is the one that `build` makes."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import tdstream
import tdstream.nodes
from helpers_documents import write_indexed
from tdstream.nodes import (
    Collate,
    DocumentCut,
    DocumentFields,
    DocumentMarks,
    DocumentWindows,
    EpochPermutation,
    MemmapReader,
    PackedDocuments,
    PackOptions,
    Pipeline,
    SampleRange,
    ShardSource,
    Splitter,
)

SEQ_LEN, BATCH_SIZE = 4, 3
ENDS, TOTAL = [5, 14, 17, 29, 36, 40, 60, 77, 78, 99], 110


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Return a corpus of eleven documents in two shards."""
    return write_indexed(tmp_path_factory.mktemp("hand") / "corpus", ENDS, TOTAL, [29])


def plain(source):
    """Return plain windows."""
    return MemmapReader(source, seq_len=SEQ_LEN)


def windows(source):
    """Return windows of documents, with the default stride and shortest tail."""
    return DocumentWindows(source, source.ends(), DocumentCut.of(SEQ_LEN, None, None), pad_id=source.pad_id)


def packed(source):
    """Return packed documents."""
    ends = source.ends()
    options = PackOptions(seq_len=SEQ_LEN, documents=(0, ends.num_documents))
    return PackedDocuments(source, ends, options, pad_id=source.pad_id)


def marked(source):
    """Return plain windows with the ends of documents."""
    return DocumentMarks(plain(source), source.ends())


def range_of(first, last):
    """Return a function that makes a reader of a range of samples."""
    return lambda source: SampleRange(plain(source), first, last)


FIELDS = DocumentFields()
CASES = {  # build's options, the reader by hand, the order by hand, the fields by hand
    "plain": ({}, plain, {"shuffle": True}, None),
    "stored order": ({"shuffle": False}, plain, {"shuffle": False}, None),
    "block": (
        {"shuffle": "block", "block_samples": 4}, plain, {"shuffle": "block", "block_samples": 4}, None,
    ),
    "document": ({"cut": "document"}, windows, {"shuffle": True}, None),
    "pack": ({"cut": "pack"}, packed, {"shuffle": True}, FIELDS),
    "documents": ({"documents": True}, marked, {"shuffle": True}, FIELDS),
    "samples": ({"samples": slice(2, 20)}, range_of(2, 20), {"shuffle": True}, None),
    "view": ({}, range_of(0, 17), {"shuffle": True}, None),
}  # fmt: skip


def pair(corpus, name):
    """Return the pipeline that `build` makes, and the one made by hand."""
    options, reader, order, fields = CASES[name]
    view = tdstream.split(corpus, [0.75])[0] if name == "view" else corpus
    built = tdstream.build(
        view, seq_len=SEQ_LEN, batch_size=BATCH_SIZE, **{"shuffle": True, "seed": 7, **options}
    )
    source = ShardSource(corpus)
    read = reader(source)
    ordered = EpochPermutation(read, seed=7, **order)
    collate = Collate(batched=True, documents=fields)
    return built, Pipeline((source, read, ordered), Splitter(ordered, batch_size=BATCH_SIZE), collate)


def mixed(corpus):
    """Return a mixture's pipeline, and its node in a pipeline made by hand."""
    sources = {"a": (corpus, 1), "b": (corpus, 2)}
    built, other = (
        tdstream.build(sources, seq_len=SEQ_LEN, batch_size=BATCH_SIZE, shuffle=True) for _ in range(2)
    )
    (node,) = other.indexed
    return built, Pipeline((node,), Splitter(node, batch_size=BATCH_SIZE), Collate(batched=True))


def said(item):
    """Return what an item holds, as lists."""
    return {name: getattr(value, "tolist", lambda value=value: value)() for name, value in item.items()}


@pytest.mark.parametrize("name", [*CASES, "mixture"])
def test_it_is_what_build_makes(corpus, name):
    """The same batches, the same bytes of state at each, and each resumes from the other's state."""
    built, made = mixed(corpus) if name == "mixture" else pair(corpus, name)
    assert repr(made) == repr(built)
    assert len(made) == len(built) >= 4
    first, second = iter(built), iter(made)
    items, states = [], []
    for item, other in zip(first, second, strict=True):
        assert said(item) == said(other)
        items.append(said(item))
        states.append(json.dumps(first.state_dict()))
        assert states[-1] == json.dumps(second.state_dict())
    for pipeline in (built, made):
        resumed = iter(pipeline)
        resumed.load_state_dict(json.loads(states[1]))
        assert list(map(said, resumed)) == items[2:]


@pytest.mark.parametrize("name", ["plain", "pack"])
def test_loaders_load_each_others_states(corpus, name):
    """A loader over the one resumes a loader over the other, with workers and without."""
    whole = [said(batch) for batch in tdstream.loader(pair(corpus, name)[0], batch_size=BATCH_SIZE)]
    for first in (0, 1):
        pipelines = pair(corpus, name)
        loader = tdstream.loader(pipelines[first], batch_size=BATCH_SIZE, num_workers=1)
        next(iter(loader))
        resumed = tdstream.loader(pipelines[1 - first], batch_size=BATCH_SIZE)
        resumed.load_state_dict(loader.state_dict())
        assert [said(batch) for batch in resumed] == whole[1:]


def test_a_loader_refuses_what_a_pipeline_would_ignore(corpus):
    """Another batch size, and options of build."""
    built, _ = pair(corpus, "plain")
    with pytest.raises(tdstream.ConfigError, match="the pipeline's batch_size is 3, not 4"):
        tdstream.loader(built, batch_size=4)
    with pytest.raises(tdstream.ConfigError, match="which seed, stride would not change"):
        tdstream.loader(built, batch_size=3, seed=1, stride=2)


def test_the_last_word_on_the_epoch_counts(corpus):
    """The pipeline's, then the loader's; another loader continues with the pipeline's next epoch."""
    _, made = pair(corpus, "plain")
    epochs = [list(map(said, made)) for _ in range(3)]
    made.set_epoch(2)
    loader = tdstream.loader(made, batch_size=BATCH_SIZE)
    loader.set_epoch(1)
    assert list(map(said, loader)) == epochs[1]
    made.set_epoch(0)
    assert list(map(said, loader)) == epochs[0]
    assert list(map(said, tdstream.loader(made, batch_size=BATCH_SIZE))) == epochs[1]


def test_the_splitter_finds_its_rank(corpus, monkeypatch):
    """As `build` does, where no topology is given."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    built, made = pair(corpus, "plain")
    assert [said(item) for item in made] == [said(item) for item in built]
    assert made.splitter.topology.dp_rank == 1


def test_the_public_names_are_sorted_and_found_where_they_are_said_to_be():
    """In __all__, in the table, and in the stub that type checkers read."""
    names = tdstream.nodes.__all__
    assert names == sorted(names)
    assert list(tdstream.nodes._HOMES) == names
    for name, home in tdstream.nodes._HOMES.items():
        assert getattr(tdstream.nodes, name) is getattr(importlib.import_module(home), name)
        assert getattr(tdstream.nodes, name).__doc__
    stub = Path(tdstream.nodes.__file__).with_suffix(".pyi").read_text()
    lines = {f"from {home} import {name} as {name}" for name, home in tdstream.nodes._HOMES.items()}
    assert {line for line in stub.splitlines() if line} == lines
    assert set(names) <= set(dir(tdstream.nodes))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tdstream.nodes.nothing  # noqa: B018


FOUND = """
import sys, tdstream
assert "torch" not in sys.modules
tdstream.nodes.TokenSource, tdstream.nodes.EpochPermutation
assert "torch" not in sys.modules
tdstream.nodes.Pipeline
tdstream.testing.check_node
"""


def test_public_modules_are_found_from_the_package():
    """`import tdstream` is enough, and loads nothing heavy."""
    subprocess.run([sys.executable, "-c", FOUND], check=True)
