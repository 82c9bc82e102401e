"""A state that belongs to another run is refused with a sentence, and nothing of it is loaded."""

from __future__ import annotations

import dataclasses
import gc
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from resume_loaders import (
    Setup,
    loaded,
    make_dataset,
    make_loader,
    name_of,
    one_pass,
    saved_at,
    through_file,
    wrap,
)
from resume_truth import MODES, Data, truth

import tdstream

BATCH = MODES["batch"]
some_setups = pytest.mark.parametrize("setup", [Setup(), Setup(2)], ids=name_of)


@pytest.fixture(autouse=True)
def _no_long_goodbye(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Wait less for workers that could not start: the loader gives each five seconds to end by itself."""
    gc.collect()  # loaders of earlier tests may take the time they need
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.3)
    yield
    gc.collect()


def refusal(corpus: Path, data: Data, setup: Setup, state: dict[str, Any], **options: Any) -> str:
    """Return the sentence with which a loader refuses a state at its first loop."""
    loader = make_loader(corpus, data, setup, **options)
    loader.load_state_dict(state)
    with pytest.raises((tdstream.StateError, tdstream.GeometryError)) as caught:
        iter(loader)
    return str(caught.value)


@pytest.mark.parametrize(("saved", "now"), [(2, 3), (3, 2), (1, 2)])
def test_another_number_of_workers_is_refused(saved: int, now: int, corpus: Path) -> None:
    """The refusal must be a ValueError that names both numbers and says what to do."""
    state = saved_at(corpus, BATCH, Setup(saved), 4)
    message = refusal(corpus, BATCH, Setup(now), state)
    assert f"num_workers was {saved}, is {now}" in message
    assert "nothing was loaded" in message
    assert "Resume with" in message


@some_setups
@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        ({"seed": 43}, "permutation.seed was 42, is 43"),
        ({"shuffle": False}, "permutation.order was 'numpy', is 'sequential'"),
        ({"seq_len": 8}, "reader.seq_len was 4, is 8"),
        ({"stride": 4}, "reader.stride was 5, is 4"),
        ({"batch_size": 3}, "splitter.batch_size was 4, is 3"),
        ({"world": 2}, "splitter.dp_world_size was 1, is 2"),
        ({"tail": "wrap"}, "splitter.tail was 'drop', is 'wrap'"),
    ],
)
def test_another_setting_is_refused_by_name(
    change: dict[str, Any], phrase: str, setup: Setup, corpus: Path
) -> None:
    """What decides which samples come must be the same; the refusal names the field and both values."""
    state = saved_at(corpus, BATCH, setup, 2)
    assert phrase in refusal(corpus, dataclasses.replace(BATCH, **change), setup, state)


@some_setups
def test_another_order_is_refused_by_name(setup: Setup, corpus: Path) -> None:
    """The same seed in another order is another run."""
    state = saved_at(corpus, BATCH, setup, 2)
    message = refusal(corpus, BATCH, setup, state, order="feistel")
    assert "permutation.order was 'numpy', is 'feistel'" in message


@some_setups
def test_a_shard_of_another_size_is_refused_by_name(setup: Setup, tmp_path: Path, write_corpus: Any) -> None:
    """The refusal must name the first shard that differs, with both numbers of tokens."""
    before = write_corpus(tmp_path / "before", (1000, 1000))
    after = write_corpus(tmp_path / "after", (1000, 990))
    state = saved_at(before, BATCH, setup, 2)
    message = refusal(after, BATCH, setup, state)
    assert "chunk_000001.bin had 1,000 tokens, has 990" in message


@some_setups
def test_shards_of_other_content_are_refused(setup: Setup, tmp_path: Path, write_corpus: Any) -> None:
    """Where checksums are known, the same sizes with another content must be refused."""
    paths = [write_corpus(tmp_path / name, (1000, 1000)) for name in ("before", "after")]
    for number, path in enumerate(paths):
        meta = json.loads((path / "meta.json").read_text())
        sums = {chunk["file"]: f"xxh64:{index}{number}" for index, chunk in enumerate(meta["chunks"])}
        for chunk in meta["chunks"]:
            chunk["checksum"] = sums[chunk["file"]]
        meta["chunk_checksums"] = sums
        (path / "meta.json").write_text(json.dumps(meta))
    if not make_dataset(paths[0], BATCH).indexed[0].state_dict()["content"]:
        pytest.fail("the checksums of this test are not read; it would not test anything")
    message = refusal(paths[1], BATCH, setup, saved_at(paths[0], BATCH, setup, 2))
    assert "source.content was" in message


@some_setups
def test_another_storage_type_is_refused(setup: Setup, corpus: Path, tmp_path: Path) -> None:
    """The same bytes read as another type are another corpus."""
    other = tmp_path / "other"
    shutil.copytree(corpus, other)
    meta = json.loads((other / "meta.json").read_text())
    meta["dtype"] = "uint16"
    for chunk in meta["chunks"]:
        chunk["tokens"] *= 2
    meta["total_tokens"] *= 2
    (other / "meta.json").write_text(json.dumps(meta))
    assert "source" in refusal(other, BATCH, setup, saved_at(corpus, BATCH, setup, 2))


@some_setups
def test_a_corpus_that_moved_is_the_same_corpus(setup: Setup, corpus: Path, tmp_path: Path) -> None:
    """A state must load where only the directory is another."""
    moved = shutil.copytree(corpus, tmp_path / "elsewhere" / "moved")
    state = saved_at(corpus, BATCH, setup, 3)
    assert one_pass(loaded(moved, BATCH, setup, state), BATCH) == truth(BATCH, 0)[3:]


@some_setups
def test_without_strict_another_seed_only_warns(setup: Setup, corpus: Path, caplog: Any) -> None:
    """With strict=False the state's place must be taken in the new order."""
    state = saved_at(corpus, BATCH, setup, 3)
    other = dataclasses.replace(BATCH, seed=7)
    loader = make_loader(corpus, other, setup, strict=False)
    loader.load_state_dict(state)
    assert one_pass(loader, other) == truth(other, 0)[3:]
    if not setup.workers:  # a worker's log goes to its own standard error
        assert "permutation.seed was 42, is 7" in caplog.text


@pytest.mark.parametrize("mode", ["sample", "reference"])
def test_a_state_of_batches_is_no_state_of_samples(mode: str, corpus: Path) -> None:
    """A state must not be taken over by the other way of dealing out."""
    data = dataclasses.replace(MODES[mode], seq_len=BATCH.seq_len)
    message = refusal(corpus, data, Setup(), saved_at(corpus, BATCH, Setup(), 2))
    assert "splitter.batch_size was 4, is 0" in message


@some_setups
def test_a_refused_state_leaves_nothing_behind(setup: Setup, corpus: Path) -> None:
    """After a refusal the loader must take a state of its own, and know nothing of the other's epoch."""
    loader = make_loader(corpus, BATCH, setup)
    other = make_loader(corpus, dataclasses.replace(BATCH, seed=7), setup)
    other.dataset.set_epoch(6)
    next(iter(other))
    loader.load_state_dict(through_file(other.state_dict()))
    with pytest.raises(tdstream.StateError):
        iter(loader)
    assert loader.dataset.epoch == 0
    loader.load_state_dict(saved_at(corpus, BATCH, setup, 3))
    assert [one_pass(loader, BATCH), one_pass(loader, BATCH)] == [truth(BATCH, 0)[3:], truth(BATCH, 1)]


@pytest.mark.parametrize("workers", [0, 2])
def test_batching_batches_is_refused(workers: int, corpus: Path) -> None:
    """A loader's batch_size above 1 on top of ready batches must end in a sentence that says so."""
    loader = wrap(make_dataset(corpus, BATCH), dataclasses.replace(BATCH, mode="sample"), Setup(workers))
    with pytest.raises(ValueError, match="batch_size is 4, on top of the batches"):
        next(iter(loader))


@some_setups
def test_a_default_loader_hands_batches_on(setup: Setup, corpus: Path) -> None:
    """With the default collation a batch must stay a Batch of [B, T], and len() count batches."""
    loader = make_loader(corpus, BATCH, setup)
    batches = list(loader)
    assert len(batches) == len(loader) == 11
    assert all(type(batch) is tdstream.Batch for batch in batches)
    assert all(batch["input_ids"].shape == batch["labels"].shape == (4, 4) for batch in batches)
