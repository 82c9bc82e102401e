"""tail="keep": every sample of an epoch counts once, in equally many batches of equal shapes on all ranks."""

from __future__ import annotations

import json
from itertools import accumulate

import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream
from helpers_documents import write_indexed

T = 3


def make_ranks(source, world, batch_size, workers=0, **options):
    """Return the loaders of all ranks."""
    options = {"seq_len": T, "tail": "keep", "shuffle": True, **options}
    return [
        tdstream.loader(
            source, batch_size=batch_size, num_workers=workers, dp_rank=rank, dp_world_size=world, **options
        )
        for rank in range(world)
    ]


def read_counted(batch):
    """Return the first token of each row that has a label, whose value is its place in the corpus."""
    return batch["input_ids"][(batch["labels"] != -100).any(1)][:, 0].tolist()


def list_counted(ranks):
    """Return the rows that count, step by step; check that all ranks have equally many, of equal shapes."""
    found = []
    for batches in zip(*ranks, strict=True):
        assert len({tuple(batch["labels"].shape) for batch in batches}) == 1
        found.append([row for batch in batches for row in read_counted(batch)])
        assert sum(len(batch["labels"]) for batch in batches) - len(found[-1]) < len(batches)
    return found


@pytest.mark.parametrize("samples", [1, 2, 5, 8, 13, 24])
@pytest.mark.parametrize(("world", "batch_size"), [(1, 1), (1, 4), (2, 4), (3, 2), (4, 3)])
def test_every_sample_counts_once(make_corpus, samples, world, batch_size):
    """Whole batches are those of tail="drop"; the last one has the rest."""
    corpus = make_corpus(samples * (T + 1))
    ranks = make_ranks(corpus, world, batch_size)
    found = list_counted(ranks)
    assert sorted(row for rows in found for row in rows) == [n * (T + 1) for n in range(samples)]
    assert len(found) == len(ranks[0]) == -(-samples // (world * batch_size))
    whole = samples // (world * batch_size)
    dropping = make_ranks(corpus, world, batch_size, tail="drop", strict=False)
    assert found[:whole] == list_counted(dropping)
    assert {(rank.position, rank.tokens_done) for rank in ranks} == {(samples, samples * T)}


@pytest.mark.parametrize("workers", [0, 2])
def test_thirteen_windows_in_batches_of_eight(make_corpus, workers):
    """The last batch of one rank is smaller; of two ranks one has a row that does not count."""
    corpus = make_corpus(13 * (T + 1))
    (one,) = make_ranks(corpus, 1, 8, workers)
    assert [len(batch["labels"]) for batch in one] == [8, 5]
    ranks = make_ranks(corpus, 2, 4, workers)
    lasts = [list(rank)[-1] for rank in ranks]
    assert [len(batch["labels"]) for batch in lasts] == [3, 3]
    assert [len(read_counted(batch)) for batch in lasts] == [3, 2]
    assert (lasts[1]["labels"][-1] == -100).all()


@pytest.mark.parametrize("cut", [1, 2, 3])
@pytest.mark.parametrize(("world", "batch_size"), [(1, 3), (3, 1), (2, 2)])
def test_elastic_resume(make_corpus, cut, world, batch_size):
    """What a state leaves counts once under any geometry, and the next epoch is whole."""
    corpus = make_corpus(15 * (T + 1))
    ranks = make_ranks(corpus, 2, 2)
    iterators = [iter(rank) for rank in ranks]
    seen = [row for _ in range(cut) for iterator in iterators for row in read_counted(next(iterator))]
    states = [json.loads(json.dumps(rank.state_dict())) for rank in ranks]
    assert states[0] == states[1]
    resumed = make_ranks(corpus, world, batch_size)
    for rank in resumed:
        rank.load_state_dict(states[0])
    rest = [row for rows in list_counted(resumed) for row in rows]
    assert sorted(seen + rest) == [n * (T + 1) for n in range(15)]
    assert resumed[0].position == 15
    assert len([row for rows in list_counted(resumed) for row in rows]) == 15


def test_a_finished_epoch_stays_finished(make_corpus):
    """The state after the last, smaller batch continues with the next epoch, on other ranks as well."""
    corpus = make_corpus(13 * (T + 1))
    ranks = make_ranks(corpus, 2, 4)
    list_counted(ranks)
    state = ranks[0].state_dict()
    assert (state["epoch"], state["position"]) == (0, 13)
    (other,) = make_ranks(corpus, 1, 3)
    other.load_state_dict(state)
    assert sum(len(rows) for rows in list_counted([other])) == 13
    assert other.epoch == 1


def test_locate_names_the_rows_that_count(make_corpus):
    """Of each step and rank, in past and future epochs; fillers are no samples of a step."""
    corpus = make_corpus(13 * (T + 1))
    ranks = make_ranks(corpus, 3, 3)
    served = []
    for _ in range(2):
        for batches in zip(*ranks, strict=True):
            served.append([read_counted(batch) for batch in batches])
    for step, rows_of_ranks in enumerate(served):
        for rank, rows in enumerate(rows_of_ranks):
            located = ranks[0].locate(step, rank).samples
            assert [sample.first_token for sample in located] == rows
        whole = ranks[1].locate(step).samples
        assert [(s.rank, s.first_token) for s in whole] == [
            (rank, row) for rank, rows in enumerate(rows_of_ranks) for row in rows
        ]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bare_stateful_dataloader(make_corpus, workers):
    """It resumes in the last batch but one, and position_of leads a loader to the same place."""
    corpus = make_corpus(13 * (T + 1))
    options = {"seq_len": T, "batch_size": 4, "tail": "keep", "shuffle": True}
    make = lambda: StatefulDataLoader(  # noqa: E731
        tdstream.build(corpus, **options), batch_size=None, num_workers=workers
    )
    whole = [read_counted(batch) for batch in make()]
    assert list(map(len, whole)) == [4, 4, 4, 1]
    loader = make()
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = loader.state_dict()
    resumed = make()
    resumed.load_state_dict(state)
    assert [read_counted(batch) for batch in resumed] == whole[3:]
    portable = tdstream.loader(corpus, **options)
    portable.load_state_dict(tdstream.position_of(state))
    assert [read_counted(batch) for batch in portable] == whole[3:]


@pytest.mark.parametrize("cut", ["document", "pack", "stream"])
def test_documents(tmp_path, cut):
    """A row that does not count has no labels and ends no document; the others are those of one rank."""
    sizes = [3, 5, 2, 7, 4, 3, 6, 3, 8]
    corpus = write_indexed(tmp_path / "corpus", list(accumulate(sizes)), sum(sizes))
    options = {"cut": cut, "documents": cut != "document"}
    options |= {"min_tail_len": 2} if cut == "document" else {}  # so that every row has a label
    (one,) = make_ranks(corpus, 1, 1, **options)
    wanted = [(batch["input_ids"].tolist(), batch["labels"].tolist()) for batch in one]
    ranks = make_ranks(corpus, 2, 4, **options)
    rows, fillers = [], 0
    for batches in zip(*ranks, strict=True):
        assert len({tuple(batch["labels"].shape) for batch in batches}) == 1
        for batch in batches:
            counts = (batch["labels"] != -100).any(1)
            fillers += int((~counts).sum())
            assert "is_natural_stop" not in batch or not batch["is_natural_stop"][~counts].any()
            kept = zip(batch["input_ids"][counts].tolist(), batch["labels"][counts].tolist(), strict=True)
            rows += [([inputs], [labels]) for inputs, labels in kept]
    assert sorted(rows) == sorted(wanted)
    assert fillers == len(wanted) % 2


def test_a_mixture(make_corpus):
    """Each source's samples count once, also in mixture_stats."""
    first, second = make_corpus(9 * (T + 1)), make_corpus(8 * (T + 1), name="second")
    mixture = {"a": (first, 1), "b": (second, 1)}
    ranks = make_ranks(mixture, 2, 3, source_id=True)
    sources, found = {0: 0, 1: 0}, 0
    for batches in zip(*ranks, strict=True):
        for batch in batches:
            counts = (batch["labels"] != -100).any(1)
            found += int(counts.sum())
            for number in batch["source_id"][counts].tolist():
                sources[number] += 1
    (one,) = make_ranks(mixture, 1, 1)
    assert found == ranks[0].position == len(one)
    assert len(one) % 6
    stats = ranks[0].mixture_stats()
    assert {name: part["samples"] for name, part in stats.items()} == {"a": sources[0], "b": sources[1]}


def test_skip_past_the_smaller_batch(make_corpus):
    """Skipping counts it as one batch."""
    (loader,) = make_ranks(make_corpus(13 * (T + 1)), 1, 4)
    whole = [read_counted(batch) for _ in range(2) for batch in loader]
    (skipping,) = make_ranks(make_corpus(13 * (T + 1)), 1, 4)
    skipping.skip(4)
    assert (skipping.epoch, skipping.position) == (1, 0)
    assert [read_counted(batch) for batch in skipping] == whole[4:]


def test_a_live_stream_refuses_it():
    """And names the ways out."""
    with pytest.raises(tdstream.ConfigError, match="cache_dir"):
        tdstream.build(lambda: iter(["a"]), tokenizer="gpt2", seq_len=4, batch_size=2, tail="keep")
