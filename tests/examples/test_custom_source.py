"""The example of a token source: every cut, workers, ranks, batch sizes, kill points; and its page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream
import tdstream.nodes
from helpers_corpus import write_corpus
from tdstream.testing import check_node, check_pipeline

ROOT = Path(__file__).parents[2]
OPTIONS = {"seq_len": 16, "shuffle": True, "seed": 7}


@pytest.fixture(scope="module")
def example():
    """Return the example as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "examples"))
        import custom_source

        yield custom_source


@pytest.fixture(scope="module")
def tables(example, tmp_path_factory):
    """Return two tables of 24 documents."""
    paths = [str(tmp_path_factory.mktemp("tables") / f"{seed}.db") for seed in (1, 2)]
    for seed, path in enumerate(paths, start=1):
        example.write_table(path, 24, seed)
    return paths


def rows_of(batches):
    """Return the rows of batches."""
    return [row for batch in batches for row in batch["input_ids"].tolist()]


def test_the_source_keeps_the_contract(example, tables):
    """And does not load the state of another table."""
    check_node(lambda: example.SQLiteTokens(tables[0]), make_other=lambda: example.SQLiteTokens(tables[1]))


def test_its_tokens_are_those_of_the_table(example, tables):
    """In the table's order, across documents."""
    source = example.SQLiteTokens(tables[0])
    whole = source.open().read(0, source.total_tokens)
    assert source.ends().between(0, 24).tolist() == (np.flatnonzero(whole == 0) + 1).tolist()
    pipe = tdstream.build(source, seq_len=16, batch_size=1)
    rows = [[*batch["input_ids"][0].tolist(), int(batch["labels"][0, -1])] for batch in pipe]
    assert rows == whole[: len(rows) * 17].reshape(-1, 17).tolist()
    assert len(whole) - len(rows) * 17 < 17


def test_it_resumes_everywhere(example, tables):
    """At every position, with 0 and 2 workers, in both loaders, and from two ranks on one."""
    check_pipeline(lambda: tdstream.build(example.SQLiteTokens(tables[0]), batch_size=4, **OPTIONS))


@pytest.mark.parametrize("options", [{"cut": "document"}, {"cut": "pack"}, {"documents": True}])
def test_it_knows_documents(example, tables, options):
    """All cuts that a corpus has."""
    check_pipeline(
        lambda: tdstream.build(example.SQLiteTokens(tables[0]), batch_size=4, **OPTIONS, **options),
        workers=(0,),
    )


def make_corpus(directory):
    """Write a corpus on disk of the same size."""
    return write_corpus(directory, np.arange(700, dtype="<u2"), (300, 400))


def test_it_is_a_source_of_a_mixture(example, tables, tmp_path):
    """Beside a corpus on disk, and beside another table."""
    corpus = make_corpus(tmp_path / "corpus")

    def mixture():
        sources = {"table": (example.SQLiteTokens(tables[0]), 1), "disk": (corpus, 1)}
        return tdstream.build(sources, batch_size=4, source_id=True, **OPTIONS)

    check_pipeline(mixture, workers=(0,))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_random_kill_points(example, tables, method):
    """With workers, without, on two ranks, in other batches: each row once, in order."""
    generator = np.random.default_rng(3)
    epoch = rows_of(tdstream.loader(example.SQLiteTokens(tables[0]), batch_size=1, **OPTIONS))
    served, state, runs = [], None, [(2, 1, 2), (0, 2, 2), (0, 1, 3), (0, 2, 1), (0, 1, 1)]
    for workers, ranks, batch_size in runs:
        loaders = [
            tdstream.loader(
                example.SQLiteTokens(tables[0]), batch_size=batch_size, num_workers=workers, dp_rank=rank,
                dp_world_size=ranks, multiprocessing_context=method if workers else None, **OPTIONS,
            )
            for rank in range(ranks)
        ]  # fmt: skip
        if state is not None:
            for loader in loaders:
                loader.load_state_dict(state)
        iterators = [iter(loader) for loader in loaders]
        for _ in range(int(generator.integers(1, 4))):
            served += [row for iterator in iterators for row in next(iterator)["input_ids"].tolist()]
        state = loaders[0].state_dict()
        assert all(loader.state_dict() == state for loader in loaders)
    last = tdstream.loader(example.SQLiteTokens(tables[0]), batch_size=1, **OPTIONS)
    last.load_state_dict(state)
    assert served + rows_of(last) == epoch


def test_states_of_another_table_are_refused(example, tables):
    """By the portable loader and by StatefulDataLoader, with the field that differs."""
    loader = tdstream.loader(example.SQLiteTokens(tables[0]), batch_size=4, **OPTIONS)
    next(iter(loader))
    other = tdstream.loader(example.SQLiteTokens(tables[1]), batch_size=4, **OPTIONS)
    with pytest.raises(tdstream.StateError, match=r"source\.content was '\w+', is '\w+'"):
        other.load_state_dict(loader.state_dict())
    stateful = StatefulDataLoader(tdstream.build(example.SQLiteTokens(tables[0]), batch_size=4, **OPTIONS))
    next(iter(stateful))
    resumed = StatefulDataLoader(tdstream.build(example.SQLiteTokens(tables[1]), batch_size=4, **OPTIONS))
    resumed.load_state_dict(stateful.state_dict())
    with pytest.raises(tdstream.StateError, match=r"source\.content"):
        next(iter(resumed))


def test_a_loader_locates_its_samples(example, tables):
    """First tokens; there are no shards to name."""
    loader = tdstream.loader(example.SQLiteTokens(tables[0]), batch_size=2, **OPTIONS)
    batch = next(iter(loader))
    source = example.SQLiteTokens(tables[0])
    for row, sample in zip(batch["input_ids"].tolist(), loader.locate(0).samples, strict=True):
        assert source.open().read(sample.first_token, sample.first_token + 16).tolist() == row
        assert sample.pieces == ()


class Incomplete:
    """A source without an identity."""

    name, what, dtype, total_tokens = "source", "it", np.dtype("uint16"), 100

    def open(self):
        """Return nothing of use."""


class Misnamed(Incomplete, tdstream.nodes.IdentityState):
    """A source whose part in states would not be found."""

    name = "tokens"

    def state_dict(self):
        """Return an identity."""
        return {}


class Undivided(Misnamed):
    """A source without documents."""

    name = "source"


def test_wrong_sources_are_refused():
    """With what is missing."""
    with pytest.raises(tdstream.ConfigError, match="TokenSource it lacks state_dict, load_state_dict, diff"):
        tdstream.build(Incomplete())
    with pytest.raises(tdstream.ConfigError, match="must be \"source\", its key in states, got 'tokens'"):
        tdstream.build(Misnamed())
    with pytest.raises(tdstream.ConfigError, match=r"it has no ends\(\) and pad_id. Add them to Undivided"):
        tdstream.build(Undivided(), seq_len=8, cut="pack")


def test_options_of_other_sources_are_left_aside(example, tables, caplog):
    """As for every kind: with a line in the log."""
    tdstream.build(example.SQLiteTokens(tables[0]), seq_len=8, dtype="uint32")
    assert "dtype=" in caplog.text


def test_the_example_runs(tmp_path):
    """As its first lines say."""
    command = [sys.executable, str(ROOT / "examples" / "custom_source.py"), str(tmp_path / "tokens.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.fullmatch(
        r"20 rows with two workers, \d+ after the resume: each row once, in order\n", done.stdout
    )


PAGE = (ROOT / "docs" / "custom-sources.md").read_text(encoding="utf-8")


def test_the_source_on_the_page_is_short():
    """At most thirty lines of code, imports included."""
    block = PAGE.split("```python\n")[1].split("```")[0]
    assert "class SQLiteTokens" in block
    assert len([line for line in block.splitlines() if line.strip()]) <= 30


def test_the_page_names_all_public_nodes():
    """Every name of tdstream.nodes and tdstream.testing has its place in the tables."""
    names = [*tdstream.nodes.__all__, *tdstream.testing.__all__]
    assert [name for name in names if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"dtype": np.dtype("float64")}, "dtype of a token source must be np.dtype of uint16 or uint32"),
        ({"dtype": "uint16"}, "dtype of a token source must be"),
        (
            {"total_tokens": "100"},
            "total_tokens of a token source must be an integer of at least 0, got '100'",
        ),
        ({"state_dict": lambda: None}, "must return a dict of JSON types"),
        ({"state_dict": lambda: {"n": np.int64(3)}}, "must return a dict of JSON types"),
    ],
)
def test_a_source_of_wrong_types_is_refused_before_it_is_read(wrong, sentence, example, tables):
    """A wrong type would otherwise show as wrong tokens, or at the first checkpoint."""
    source = example.SQLiteTokens(tables[0])
    for name, value in wrong.items():
        setattr(source, name, value)
    with pytest.raises(tdstream.ConfigError, match=sentence):
        tdstream.build(source, seq_len=4)
