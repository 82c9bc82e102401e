"""A state of other data, other settings or another kind is refused in a sentence, and nothing is loaded."""

from __future__ import annotations

import copy
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from loader_cluster import as_bytes, make_loader, through_file
from loader_truth import SEED, SEQ_LEN, Geometry, ids_of, rest, write_counting_corpus
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream

SETUP = Geometry(1, 0, 8)


def state_of(corpus: Path, **options: Any) -> dict[str, Any]:
    """Return the state of a loader after five batches of epoch 1."""
    loader = make_loader(corpus, SETUP, **options)
    loader.set_epoch(1)
    iterator = iter(loader)
    for _ in range(5):
        next(iterator)
    return through_file(loader.state_dict())


def refused(loader: tdstream.Loader, state: Any, match: str) -> None:
    """Load a state that must be refused, into a running loader, which must not notice."""
    iterator = iter(loader)
    found = [ids_of(next(iterator)) for _ in range(2)]
    before = as_bytes(loader.state_dict())
    with pytest.raises(tdstream.StateError, match=match):
        loader.load_state_dict(state)
    assert as_bytes(loader.state_dict()) == before
    size = len(found[0])
    found += [ids_of(batch) for batch in iterator if len(batch["input_ids"]) == size]
    assert len(found) == len(loader)


@pytest.mark.parametrize(
    ("other", "match"),
    [
        ({"seed": 8}, r"permutation\.seed was 7, is 8"),
        ({"order": "feistel"}, r"permutation\.order was 'numpy', is 'feistel'"),
        ({"shuffle": False}, r"permutation\.order was 'numpy', is 'sequential'"),
    ],
)
def test_another_order_is_refused(other: dict[str, Any], match: str, counting: Path) -> None:
    """The sentence must name the field, what it was and what it is."""
    refused(make_loader(counting, SETUP, **other), state_of(counting), match)


@pytest.mark.parametrize(
    ("other", "match"),
    [
        ({"seq_len": 7, "stride": 4}, r"reader\.seq_len was 3, is 7"),
        ({"stride": 3}, r"reader\.stride was 4, is 3"),
    ],
)
def test_other_windows_are_refused(other: dict[str, Any], match: str, counting: Path) -> None:
    """Other samples have other numbers, so a place among them means nothing."""
    state = state_of(counting)
    loader = make_loader(counting, SETUP, **other)
    with pytest.raises(tdstream.StateError, match=match):
        loader.load_state_dict(state)
    assert (loader.epoch, loader.position, loader.step) == (0, 0, 0)


def test_all_differences_stand_in_one_sentence(counting: Path) -> None:
    """Who has changed two things must not need two attempts to learn it."""
    state = state_of(counting)
    loader = make_loader(counting, SETUP, seed=1, stride=2)
    with pytest.raises(
        tdstream.StateError, match=r"reader\.stride was 4, is 2; permutation\.seed was 7, is 1"
    ):
        loader.load_state_dict(state)


def test_another_corpus_is_refused(counting: Path, tmp_path: Path) -> None:
    """The sentence must name the first shard that differs, and its tokens."""
    own = write_counting_corpus(tmp_path / "corpus", (330, 1, 490, 289))
    refused(
        make_loader(own, SETUP),
        state_of(counting),
        r"shard chunk_000002\.bin had 502 tokens, has 490",
    )


def test_a_corpus_that_moved_is_the_same(counting: Path, tmp_path: Path) -> None:
    """A copy in another directory must take the state."""
    shutil.copytree(counting, tmp_path / "elsewhere")
    loader = make_loader(tmp_path / "elsewhere", SETUP)
    loader.load_state_dict(state_of(counting))
    assert [ids_of(batch) for batch in loader] == rest(8, 1)[5:]


def changed(state: dict[str, Any], *path: str, value: Any = None) -> dict[str, Any]:
    """Return a copy of a state with one entry changed, or without it."""
    copied = copy.deepcopy(state)
    part = copied
    for name in path[:-1]:
        part = part[name]
    if value is None:
        del part[path[-1]]
    else:
        part[path[-1]] = value
    return copied


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda state: changed(state, "tdstream", value=2), "has version 2, this tdstream reads up to 1"),
        (lambda state: changed(state, "tdstream"), "not a state of tdstream"),
        (lambda state: changed(state, "nodes"), "no 'nodes', so it was truncated or changed"),
        (lambda state: changed(state, "nodes", "reader"), "has no entry for reader"),
        (lambda state: changed(state, "nodes", "splitter"), "has no entry for splitter"),
        (lambda state: changed(state, "position"), "the state has no valid position: epoch=1, position=None"),
        (
            lambda state: changed(state, "epoch", value=-1),
            "the state has no valid position: epoch=-1, position=40",
        ),
        (lambda state: changed(state, "position", value="40"), "the state has no valid position"),
        (lambda state: changed(state, "position", value=10**6), r"1,000,000 of 277 samples"),
        (lambda state: changed(state, "nodes", "splitter", "step"), "cut or changed"),
        (lambda state: changed(state, "nodes", "splitter", "history", value=[[1]]), "cut or changed"),
        (lambda state: changed(state, "nodes", "splitter", "history", value=7), "cut or changed"),
        (lambda state: {}, "not a state of tdstream"),
        (lambda state: None, "not a state of tdstream"),
        (lambda state: [state], "not a state of tdstream"),
    ],
)
def test_a_damaged_or_newer_state_is_refused(
    change: Callable[[Any], Any], match: str, counting: Path
) -> None:
    """Whatever is no state of this version must be refused in a sentence, not in a bare KeyError."""
    refused(make_loader(counting, SETUP), change(state_of(counting)), match)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_state_of_a_plain_loader_is_refused(workers: int, counting: Path) -> None:
    """StatefulDataLoader's own state must be recognised, and the way to use it be named."""
    pipe = tdstream.build(
        counting, seq_len=SEQ_LEN, batch_size=8, shuffle=True, order="numpy", seed=SEED,
        dp_rank=0, dp_world_size=1,
    )  # fmt: skip
    plain = StatefulDataLoader(pipe, num_workers=workers)
    next(iter(plain))
    refused(make_loader(counting, SETUP), plain.state_dict(), r"Pass tdstream\.position_of\(state\) instead")


def test_lenient_loaders_warn_and_go_on(counting: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With strict=False another seed must be a warning, and the place count."""
    loader = make_loader(counting, SETUP, seed=8, strict=False)
    with caplog.at_level(logging.WARNING, logger="tdstream"):
        loader.load_state_dict(state_of(counting))
    assert "permutation.seed was 7, is 8" in caplog.text
    assert "Resuming anyway, because strict=False" in caplog.text
    assert (loader.epoch, loader.position) == (1, 40)
    assert len([*loader]) == len(rest(8, 1)) - 5


def test_lenient_loaders_still_refuse_what_is_no_state(counting: Path) -> None:
    """strict=False must not make a place out of nothing."""
    loader = make_loader(counting, SETUP, strict=False)
    refused(loader, {"epoch": 1}, "not a state of tdstream")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_keeps_its_order(workers: int, counting: Path) -> None:
    """in_order=False would make a count of batches meaningless, so it must be refused."""
    pipe = tdstream.build(counting, seq_len=SEQ_LEN, batch_size=8, dp_rank=0, dp_world_size=1)
    with pytest.raises(tdstream.ConfigError, match="in_order=False gives up the order"):
        tdstream.Loader(pipe, num_workers=workers, in_order=False)


def test_single_samples_have_no_portable_place(counting: Path) -> None:
    """A pipeline without batch_size must be refused, in a sentence that says why."""
    with pytest.raises(tdstream.ConfigError, match="single samples have no"):
        tdstream.Loader(tdstream.build(counting, seq_len=SEQ_LEN, dp_rank=0, dp_world_size=1))
    with pytest.raises((TypeError, tdstream.ConfigError), match="batch_size"):
        tdstream.loader(counting, seq_len=SEQ_LEN, batch_size=None)


def plain_types(value: Any) -> bool:
    """Say whether a value is made of JSON types only, none of them a subclass."""
    if type(value) is dict:
        return all(type(key) is str and plain_types(part) for key, part in value.items())
    if type(value) is list:
        return all(map(plain_types, value))
    return value is None or type(value) in (int, str, bool)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_is_plain_and_has_one_shape(workers: int, counting: Path) -> None:
    """JSON types only, the same keys at every place, unchanged by JSON and torch.save, at most 2 KB."""
    loader = make_loader(counting, Geometry(1, workers, 46))
    keys = set()
    for _ in range(3):
        for _ in loader:
            state = loader.state_dict()
            assert plain_types(state)
            assert json.loads(json.dumps(state)) == through_file(state) == state
            assert len(json.dumps(state)) <= 2048
            keys.add(str([*state, *state["nodes"], *state["nodes"]["splitter"]]))
    assert len(keys) == 1


def test_a_state_stays_small_whatever_has_happened(tmp_path: Path) -> None:
    """Many unlike shards, large numbers and a long history must not take it beyond 2 KB."""
    shards = tuple(100_000 + number % 97 for number in range(200))
    own = write_counting_corpus(tmp_path / "corpus", shards)
    state: dict[str, Any] | None = None
    for turn in range(40):
        loader = make_loader(own, Geometry(1, 0, 1 + turn % 7), seed=2**62, order="feistel")
        if state is not None:
            loader.load_state_dict(state)
        loader.set_epoch(10**6 + turn)
        next(iter(loader))
        loader.skip(700_000)
        state = loader.state_dict()
        assert len(json.dumps(state)) <= 2048
    assert make_loader(own, SETUP, seed=2**62, order="feistel").load_state_dict(state) is None


def test_a_state_goes_through_the_files_of_torch_and_json(counting: Path, tmp_path: Path) -> None:
    """Both files must bring back a state that loads."""
    state = state_of(counting)
    (tmp_path / "state.json").write_text(json.dumps(state))
    torch.save({"loader": state}, tmp_path / "state.pt")
    for back in (
        json.loads((tmp_path / "state.json").read_text()),
        torch.load(tmp_path / "state.pt", weights_only=True)["loader"],
    ):
        loader = make_loader(counting, SETUP)
        loader.load_state_dict(back)
        assert [ids_of(batch) for batch in loader] == rest(8, 1)[5:]
