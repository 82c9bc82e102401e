"""What other libraries build over a loader's dataset, or over `build`, is exact or refused."""

from __future__ import annotations

import copy
import gc
import logging
import sys
import types

import pytest
import torch.distributed
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream
from tdstream.distributed.topology import Topology

OPTIONS = {"seq_len": 3, "batch_size": 2}


@pytest.fixture(params=["corpus", "stream"])
def make_loader(request, make_corpus, tokenizer_dir):
    """Return a function that makes a loader over a corpus of 10 samples, or over a live stream."""
    if request.param == "corpus":
        return lambda: tdstream.loader(make_corpus(40), shuffle=True, **OPTIONS)
    texts = [f"{number} words of text" for number in range(40)]
    return lambda: tdstream.loader(lambda: iter(texts), tokenizer=str(tokenizer_dir), **OPTIONS)


class Skip(DataLoader):
    """Skip batches as accelerate's SkipDataLoader does: read what lies below, and throw some away."""

    def __init__(self, dataset, skip_batches, **options):
        super().__init__(dataset, batch_size=None, **options)
        self.skip_batches = skip_batches

    def __iter__(self):
        """Yield the batches after the first ones."""
        for number, batch in enumerate(super().__iter__()):
            if number >= self.skip_batches:
                yield batch


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_skipping_over_the_dataset_is_refused(make_corpus, workers, method):
    """As accelerate's skip_first_batches and the Trainer's resume do, which begin epoch 0 again."""
    loader = tdstream.loader(make_corpus(40), shuffle=True, num_workers=workers, **OPTIONS)
    next(iter(loader))
    options = {"num_workers": workers, "multiprocessing_context": method} if workers else {}
    with pytest.raises(tdstream.ConfigError, match=r"belongs to a tdstream\.loader.*load_state_dict.*skip"):
        list(Skip(loader.dataset, 1, **options))
    assert len(list(loader)) == 5


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
def test_another_loader_over_the_dataset_is_refused(make_loader, kind):
    """Whatever it is; the loader itself goes on, and its dataset is free when it is gone."""
    loader = make_loader()
    with pytest.raises(tdstream.ConfigError, match=r"belongs to a tdstream\.loader"):
        next(iter(kind(loader.dataset, batch_size=None)))
    dataset, wanted = loader.dataset, [batch["input_ids"].tolist() for batch in loader]
    loader.set_epoch(0)
    assert [batch["input_ids"].tolist() for batch in loader] == wanted
    copied = copy.deepcopy(dataset)
    copied.set_epoch(0)
    assert [batch["input_ids"].tolist() for batch in copied] == wanted
    del loader
    gc.collect()
    dataset.set_epoch(0)
    assert [batch["input_ids"].tolist() for batch in dataset] == wanted


def test_the_dataset_tells_its_samples(make_corpus):
    """Over all ranks, from which trainers compute examples and samples per second."""
    loader = tdstream.loader(make_corpus(40), dp_rank=1, dp_world_size=2, **OPTIONS)
    assert (len(loader), len(loader.dataset)) == (2, 10)
    assert len(tdstream.build(make_corpus(40), dp_rank=1, dp_world_size=2, **OPTIONS)) == 2


@pytest.fixture
def accelerate(monkeypatch):
    """Pretend that accelerate runs two processes, of which this is the first."""

    class PartialState:
        _shared_state = {"num_processes": 2}  # noqa: RUF012 - as accelerate has it

    module = types.ModuleType("accelerate.state")
    module.PartialState = PartialState
    monkeypatch.setitem(sys.modules, "accelerate.state", module)
    monkeypatch.setattr("tdstream.distributed.topology.group_topology", lambda: Topology(0, 2, found=True))
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_accelerate_would_deal_out_twice(make_corpus, accelerate, workers, batch_size):
    """Over `build` with ranks that were found, accelerate's dispatcher and shards serve a part of a part."""
    pipe = tdstream.build(make_corpus(40), seq_len=3, batch_size=batch_size)
    with pytest.raises(tdstream.ConfigError, match=r"deals out once more.*dp_rank=0 and dp_world_size=1"):
        next(iter(StatefulDataLoader(pipe, batch_size=None, num_workers=workers)))


@pytest.mark.parametrize("ranks", [(0, 1), (0, 2)])
def test_ranks_that_are_given_are_meant(make_corpus, accelerate, ranks):
    """All rows, for accelerate to deal out; or a rank's own, in a loader that accelerate does not prepare."""
    given = {"dp_rank": ranks[0], "dp_world_size": ranks[1]}
    assert len(list(tdstream.build(make_corpus(40), **given, **OPTIONS))) == 4 // ranks[1] + (ranks[1] == 1)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_is_taken_as_it_is(make_corpus, accelerate, workers):
    """Accelerate does not deal out again what says that it is prepared."""
    assert len(list(tdstream.loader(make_corpus(40), num_workers=workers, **OPTIONS))) == 2


def test_leaving_a_loaded_place_is_said(make_corpus, caplog):
    """A trainer that counts from 0 again would drop the state without a word."""
    corpus = make_corpus(40)
    loader = tdstream.loader(corpus, **OPTIONS)
    loader.set_epoch(3)
    next(iter(loader))
    iterator = iter(loader)
    next(iterator)
    resumed = tdstream.loader(corpus, **OPTIONS)
    resumed.load_state_dict(loader.state_dict())
    with caplog.at_level(logging.WARNING):
        resumed.set_epoch(3)
        assert not caplog.records
        resumed.set_epoch(0)
    assert "set_epoch(0) leaves the place that was loaded, epoch 3, position 2" in caplog.text
