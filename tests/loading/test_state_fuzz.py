"""Damaged and hand-made states, through every door: accepted and served, or refused in a sentence."""

from __future__ import annotations

import copy
import json
import math
import time
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from helpers_stream import some_texts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream
import tdstream.loading.loader
from tdstream.cli.main import main
from tdstream.core.errors import ConfigError, GeometryError, StateError, TdstreamError
from tdstream.loading.locate import locate_step, read_cursor

TEXTS = list(some_texts(60))
SECONDS = 5.0  # one is expected; this machine may be busy with other tests


def texts():
    """Return the texts anew."""
    return iter(TEXTS)


CYCLE: dict[str, Any] = {}
CYCLE["nodes"] = CYCLE
DEEP: Any = 1
for _ in range(3_000):
    DEEP = [DEEP]
VALUES = [
    None, True, False, 0, 1, 2, 3, 7, -1, 2**31, 2**62, 2**63, 2**64, 10**5_000, 0.0, 1.5, -0.5, 1e300,
    math.nan, math.inf, "", "1", "x", "feistel", "numpy", "wrap", "1x99999999999", "5x2 7x1", b"b", [], {},
    [[]], [0, 0], [1, 2, 3, 4], [[0, 0, 0, 0]], [[0, 0, 0, 0, 0]], [[0, 0, 0, 2**40]], [[0, 0, 0, 3, 2]],
    {"tdstream": 1}, (1, 2), {1, 2}, np.int64(3), np.float32(0.5), np.arange(3), torch.tensor(4),
    torch.arange(3), object(), CYCLE, DEEP,
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all entries of a state."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, one in inner for found in places(one, (*path, key)))]


def mutate(data: st.DataObject, state: Any) -> Any:
    """Return a state with up to three entries replaced, removed, added or exchanged."""
    state = copy.deepcopy(state)
    candidates = [path for path in places(state) if path]
    for _ in range(data.draw(st.integers(1, 3))):
        *rest, last = data.draw(st.sampled_from(candidates))
        kind = data.draw(st.sampled_from(["replace", "replace", "nudge", "remove", "add"]))
        new, small = data.draw(st.sampled_from(VALUES) | st.integers(-5, 400)), data.draw(st.integers(-3, 3))
        word = data.draw(st.sampled_from(["history", "tail", "step", "mixture", "stream", "x", 3]))
        holder = state
        try:
            for key in rest:
                holder = holder[key]
            old = holder[last]
        except (KeyError, IndexError, TypeError):  # an earlier change took it away
            continue
        if not isinstance(holder, (dict, list)) or any(holder is value for value in VALUES):
            continue
        if kind == "remove":
            del holder[last]
        elif kind == "add" and isinstance(holder, dict):
            holder[word] = new
        elif kind == "nudge" and isinstance(old, int):
            holder[last] = int(old) + small
        elif kind == "nudge" and isinstance(old, list) and old:
            holder[last] = old + old[: max(small, 0)]
        else:
            holder[last] = new
    return state


def advance(loader: Any, batches: int) -> Any:
    """Return a loader's state after so many batches."""
    for _ in islice(loader, batches):
        pass
    return json.loads(json.dumps(loader.state_dict()))


class Stateful:
    """A StatefulDataLoader over a pipeline, of whose state only the pipeline's own part is changed."""

    step = 0

    def __init__(self, pipeline: Any) -> None:
        self.pipeline, self.loader = pipeline, StatefulDataLoader(pipeline, batch_size=None)
        self.whole = self.loader.state_dict()

    def __iter__(self) -> Any:
        """Begin a pass, or the rest of one."""
        return iter(self.loader)

    def state_dict(self) -> Any:
        """Return the pipeline's part."""
        self.whole = self.loader.state_dict()
        return self.whole["fetcher_state"]["dataset_iter_state"]

    def load_state_dict(self, state: Any) -> None:
        """Load it at once: StatefulDataLoader does at the first batch."""
        fetcher = {**self.whole["fetcher_state"], "dataset_iter_state": state}
        self.loader.load_state_dict({**self.whole, "fetcher_state": fetcher})
        try:
            iterator = iter(self.loader)
        except Exception:
            self.loader = StatefulDataLoader(self.pipeline, batch_size=None)
            raise
        self.loader.load_state_dict({**self.whole, "fetcher_state": fetcher})
        del iterator


class Door:
    """A loader, states of it, and all rows that a valid state can give."""

    def __init__(self, make: Any, rows: set[tuple[int, ...]] | None, states: list[Any]) -> None:
        self.loader, self.rows, self.states = make(), rows, states
        self.begin = states[0]

    def try_state(self, state: Any) -> None:
        """Load a state and take batches; a refusal must leave the loader where it was."""
        self.loader.load_state_dict(self.begin)
        place = self.loader.state_dict()
        try:
            self.loader.load_state_dict(state)
        except (StateError, GeometryError):
            assert isinstance(self.loader, Stateful) or self.loader.state_dict() == place
            raise
        for batch in islice(self.loader, 3):
            if self.rows is not None:
                assert {tuple(row) for row in batch["input_ids"].tolist()} <= self.rows
        self.loader.state_dict()
        if hasattr(self.loader, "locate") and self.loader.step:
            self.loader.locate(self.loader.step - 1)
        if getattr(self.loader, "mixture_stats", None) and "mixture" in self.loader.state_dict()["nodes"]:
            self.loader.mixture_stats()


@pytest.fixture(scope="module")
def doors(counting, tokenizer_dir, tmp_path_factory):
    """Return a door for each kind of pipeline."""
    shape = {"seq_len": 3, "batch_size": 2}
    text = {"tokenizer": str(tokenizer_dir), "shuffle_buffer": 8}
    mixed = {"a": (counting, 3), "b": (counting, 1.5)}
    staged = tdstream.Mixture(
        {"a": counting, "b": counting, "c": counting},
        stages=[(0, {"a": 3, "b": 1}), (50, {"b": 1, "c": 2.5}), (700, {"a": 0.001, "c": 1})],
        stop="all",
    )
    makers = {
        "shards": lambda: tdstream.loader(counting, shuffle=True, **shape),
        "wrap": lambda: tdstream.loader(counting, shuffle=True, tail="wrap", **shape),
        "numpy": lambda: tdstream.loader(counting, shuffle=True, order="numpy", **shape),
        "memory": lambda: tdstream.loader(
            TEXTS, kind="memory", tokenizer=str(tokenizer_dir), cut="pack", **shape
        ),
        "documents": lambda: tdstream.loader(
            TEXTS, kind="memory", tokenizer=str(tokenizer_dir), cut="document", **shape
        ),
        "mixture": lambda: tdstream.loader(mixed, shuffle=True, **shape),
        "stages": lambda: tdstream.loader(staged, shuffle=True, **shape),
        "live": lambda: tdstream.loader(texts, **text, **shape),
        "stateful": lambda: Stateful(tdstream.build(counting, shuffle=True, **shape)),
        "stateful live": lambda: Stateful(tdstream.build(texts, **text, **shape)),
        "live documents": lambda: tdstream.loader(texts, cut="document", **text, **shape),
    }
    found = {}
    for name, make in makers.items():
        loader = make()
        states = [loader.state_dict(), advance(loader, 3), advance(loader, 10)]
        if isinstance(loader, tdstream.loading.loader.Loader):
            loader.skip(4)
            states += [advance(loader, 2)]
            loader.set_epoch(4)
            states += [loader.state_dict(), advance(loader, 2)]
        rows = None
        if isinstance(loader, tdstream.loading.loader.Loader):
            loader.set_epoch(0)
            rows = {tuple(row) for _ in range(2) for batch in loader for row in batch["input_ids"].tolist()}
        found[name] = Door(make, rows, states)
    return found


ALLOWED = (StateError, GeometryError)


def check_refusal(error: TdstreamError) -> None:
    """Require a message of one line and reasonable length."""
    assert "\n" not in str(error)
    assert 20 < len(str(error)) < 2_000


def through_doors(data: st.DataObject, doors: dict[str, Door], tmp_path: Any, corpus: Any) -> None:
    """Mutate a state and try it."""
    door = doors[data.draw(st.sampled_from(sorted(doors)))]
    state = mutate(data, data.draw(st.sampled_from(door.states)))
    began = time.monotonic()
    try:
        door.try_state(state)
    except ALLOWED as error:
        check_refusal(error)
    for name in ("position_of", "locate"):
        try:
            portable = tdstream.position_of({"model": {"x": [1, 2]}, "loader": state})
            if name == "locate":
                cursor, pipeline = read_cursor(portable)
                locate_step(cursor, pipeline, data.draw(st.sampled_from([0, 1, 5, 10**9, 2**61])))
        except (*ALLOWED, ConfigError) as error:
            check_refusal(error)
    try:
        text = json.dumps(state, default=str)
    except (ValueError, RecursionError, TypeError):
        text = ""
    if text and data.draw(st.booleans()):
        path = tmp_path / "state.json"
        path.write_text(text)
        assert main(["state", str(path)]) in (0, 1)
        for more in ([], ["--data", str(corpus)]):
            assert main(["locate", "--state", str(path), "--step", "3", *more]) in (0, 1, 2)
    assert time.monotonic() - began < SECONDS


FUZZ = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}


@settings(max_examples=150, derandomize=True, **FUZZ)
@given(data=st.data())
def test_some_mutated_states(doors, counting, tmp_path_factory, capsys, data):
    """A few hundred of them, the same in each run."""
    through_doors(data, doors, tmp_path_factory.getbasetemp(), counting)


@pytest.mark.exhaustive
@settings(max_examples=10_000, **FUZZ)
@given(data=st.data())
def test_ten_thousand_mutated_states(doors, counting, tmp_path_factory, capsys, data):
    """Others in each run."""
    through_doors(data, doors, tmp_path_factory.getbasetemp(), counting)
