"""Loaders leave the random states of Python, numpy and torch as they are."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import datasets
import numpy as np
import pytest
import torch
from helpers_stream import some_texts, word_ids
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream
from helpers_text import numbers_tokenizer

TEXTS = list(some_texts(120))


def texts():
    """Return the texts anew."""
    return iter(TEXTS)


def random_states():
    """Return the three global random states, comparable."""
    return (
        random.getstate(),
        [part.tolist() if isinstance(part, np.ndarray) else part for part in np.random.get_state()],
        torch.get_rng_state().tolist(),
    )


@contextmanager
def untouched(what: str) -> Iterator[None]:
    """Require that the random states are the same afterwards."""
    before = random_states()
    yield
    assert random_states() == before, what


def sources(counting):
    """Return, by name, a source, and the options that go with it."""
    live = {"shuffle_buffer": 8}
    mixture = {"a": (counting, 3), "b": (counting, 1)}
    return {
        "shards": (counting, {"shuffle": True}),
        "documents": (counting, {"cut": "pack"}),
        "mixture": (mixture, {"shuffle": True}),
        "list": (TEXTS, {"kind": "memory"}),
        "function": (texts, live),
        "iterable": (tuple(TEXTS), live),
        "dataset": (datasets.Dataset.from_dict({"text": TEXTS}), live),
        "stream": (datasets.Dataset.from_dict({"text": TEXTS}).to_iterable_dataset(num_shards=4), live),
    }


NAMES = ["shards", "documents", "mixture", "list", "function", "iterable", "dataset", "stream"]


@pytest.fixture
def source(request, counting, tokenizer_dir):
    """Return a source by name, and its options."""
    source, options = sources(counting)[request.param]
    known = {} if request.param in ("shards", "documents", "mixture") else {"tokenizer": str(tokenizer_dir)}
    return source, {"seq_len": 3, "batch_size": 2, **options, **known}


@pytest.mark.parametrize(
    ("source", "workers"),
    [*((name, 0) for name in NAMES), ("shards", 2), ("mixture", 2), ("function", 2), ("stream", 2)],
    indirect=["source"],
)
def test_no_call_moves_them(source, workers):
    """First pass, break, whole epoch, state, resume, set_epoch, skip, locate, progress."""
    given, options = source
    with untouched("loader"):
        loader = tdstream.loader(given, num_workers=workers, **options)
    with untouched("iter"):
        iterator = iter(loader)
    with untouched("next"):
        next(iterator)
    with untouched("state_dict"):
        state = json.loads(json.dumps(loader.state_dict()))
    with untouched("break"):
        del iterator
        list(islice(loader, 2))
    with untouched("an epoch"):
        for _ in loader:
            pass
    with untouched("load_state_dict"):
        loader.load_state_dict(state)
    with untouched("resume"):
        for _ in tdstream.progress(loader, disable=True):
            break
    with untouched("set_epoch"):
        loader.set_epoch(3)
        next(iter(loader))
    if hasattr(loader, "skip"):
        with untouched("skip, locate"):
            loader.skip(1)
            loader.locate(0)


@pytest.mark.parametrize("source", NAMES, indirect=True)
def test_build_does_not_move_them(source):
    """With a StatefulDataLoader that was given a generator of its own, as the page on resuming says."""
    given, options = source
    with untouched("build"):
        dataset = tdstream.build(given, **options)
    with untouched("a pass"):
        for _ in dataset:
            pass
    for workers in (0, 2) if given in (texts, TEXTS) else (0,):
        loader = StatefulDataLoader(
            dataset, batch_size=None, num_workers=workers, generator=torch.Generator()
        )
        with untouched("a StatefulDataLoader with a generator"):
            next(iter(loader))
            state = loader.state_dict()
            loader.load_state_dict(state)
            list(loader)
        if hasattr(dataset, "splitter"):
            with untouched("position_of"):
                tdstream.position_of(state)


def base_seeds():
    """Yield texts of one word, which tells the seed of the workers' pass."""
    info = torch.utils.data.get_worker_info()
    yield from (f"w{2 + (info.seed - info.id) % 2_900}" for _ in range(40))


def test_worker_seeds_are_those_that_torch_would_draw(tmp_path):
    """They follow torch.manual_seed, differ from pass to pass, and repeat with the trainer's seed."""
    tokenizer = str(numbers_tokenizer(tmp_path / "words", word_ids()))

    def seen(passes):
        loader = tdstream.loader(
            base_seeds, tokenizer=tokenizer, seq_len=1, stride=2, batch_size=1, num_workers=1
        )
        return [next(iter(loader))["input_ids"].item() for _ in range(passes)]

    torch.manual_seed(7)
    drawn = [2 + int(torch.empty((), dtype=torch.int64).random_()) % 2_900 for _ in range(3)]
    torch.manual_seed(7)
    assert seen(3) == drawn
    assert seen(1) == drawn[:1]  # another loader, at the same random state


def test_another_default_device(counting, tokenizer_dir):
    """The seed is drawn on the CPU wherever torch puts tensors by default."""
    with torch.device("meta"):
        loader = tdstream.loader(texts, tokenizer=str(tokenizer_dir), seq_len=3, batch_size=2)
        next(iter(loader))
        loader = tdstream.loader(counting, seq_len=3, batch_size=2, num_workers=1)
        next(iter(loader))


class Trainer:
    """A model with dropout, whose checkpoint holds its weights, the random state and the loader's state."""

    def __init__(self, make_loader) -> None:
        torch.manual_seed(1)
        self.weights = torch.ones(3, dtype=torch.float64)
        self.loader, self.losses = make_loader(), list[float]()
        self.saved: tuple[object, ...] = ()

    def step(self, batch) -> None:
        """Take a step."""
        inputs = batch["input_ids"].double().mean(dim=0)
        kept = torch.nn.functional.dropout(inputs * self.weights, p=0.5)
        self.weights = self.weights * 0.9 + kept / kept.abs().sum().clamp(min=1)
        self.losses.append(float(kept.sum()) + random.random() + float(np.random.random()))

    def run(self, steps: int, save_at: int | None = None) -> None:
        """Run until so many steps were taken, over as many epochs as it takes; keep a checkpoint."""
        while len(self.losses) < steps:
            for batch in self.loader:
                self.step(batch)
                if len(self.losses) == save_at:
                    self.saved = self.checkpoint()
                if len(self.losses) == steps:
                    break

    def checkpoint(self):
        """Return a checkpoint."""
        states = (random.getstate(), np.random.get_state(), torch.get_rng_state())
        return self.weights, states, json.loads(json.dumps(self.loader.state_dict()))

    def restore(self, checkpoint) -> None:
        """Go to a checkpoint."""
        self.weights, (python, of_numpy, of_torch), state = checkpoint
        self.loader.load_state_dict(state)
        random.setstate(python)
        np.random.set_state(of_numpy)
        torch.set_rng_state(of_torch)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["live", "corpus"])
def test_a_trainer_with_dropout_resumes_exactly(counting, tokenizer_dir, kind, workers):
    """The uninterrupted run, and one that was stopped after 5 steps, are equal to the last bit."""
    options = {"seq_len": 3, "batch_size": 2, "num_workers": workers}

    def make():
        if kind == "corpus":
            return tdstream.loader(counting, shuffle=True, **options)
        return tdstream.loader(texts, tokenizer=str(tokenizer_dir), shuffle_buffer=8, **options)

    random.seed(0)
    np.random.seed(0)
    whole = Trainer(make)
    whole.run(200, save_at=5)
    resumed = Trainer(make)
    resumed.restore(whole.saved)
    resumed.run(195)
    assert resumed.losses == whole.losses[5:]
    assert torch.equal(resumed.weights, whole.weights)
