"""Loaders, pipelines and passes that are copied or pickled: a new one at the same place, or a sentence."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tdstream
from tdstream.core.errors import ConfigError

Copy = Callable[[Any], Any]
HOW = [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]
TEXTS = [{"text": f"text {number} " * 9} for number in range(40)]


def iterate() -> Iterator[dict[str, str]]:
    """Yield texts, as a function of a module."""
    yield from TEXTS


@pytest.fixture(params=HOW, ids=["copy", "deepcopy", "pickle"])
def make_copy(request: pytest.FixtureRequest) -> Copy:
    """Return a way to copy."""
    return request.param  # type: ignore[no-any-return]


def rows(batches: Any) -> list[list[list[int]]]:
    """Return the tokens of batches."""
    return [batch["input_ids"].tolist() for batch in batches]


def make(kind: str, make_corpus: Callable[..., Path], tokenizer: Path, workers: int = 0) -> Any:
    """Return a loader over a kind of source."""
    options: dict[str, Any] = {"seq_len": 16, "batch_size": 2, "num_workers": workers, "shuffle": True}
    if kind == "mixture":
        parts = {name: (make_corpus(700, name=name), weight) for name, weight in (("a", 2), ("b", 1))}
        return tdstream.loader(tdstream.Mixture(parts, stop="all"), **options)
    if kind == "corpus":
        return tdstream.loader(make_corpus(700, 701), **options)
    source = iterate if kind == "stream" else TEXTS
    return tdstream.loader(source, tokenizer=str(tokenizer), **options)


@pytest.mark.parametrize(("kind", "workers"), [
    ("corpus", 0), ("corpus", 2), ("mixture", 0), ("memory", 0), ("stream", 0), ("stream", 1),
])  # fmt: skip
def test_a_loader(
    make_corpus: Callable[..., Path], tokenizer_dir: Path, make_copy: Copy, kind: str, workers: int
) -> None:
    """The copy goes on where the loader is; neither moves the other."""
    whole = rows(make(kind, make_corpus, tokenizer_dir))
    second = make(kind, make_corpus, tokenizer_dir)
    second.set_epoch(1)
    later = rows(second)
    loader = make(kind, make_corpus, tokenizer_dir, workers)
    batches = iter(loader)
    given = rows(next(batches) for _ in range(5))
    other = make_copy(loader)
    assert other.state_dict() == loader.state_dict()
    assert rows(other) == whole[5:]
    assert rows(other) == later
    other.sampler.set_epoch(7)
    assert (loader.epoch, loader.batches_done, loader.step) == (0, 5, 5)
    assert given + rows(batches) == whole
    assert (other.step, loader.step) == (len(whole) + len(later), len(whole))


def test_settings_stay(make_corpus: Callable[..., Path], make_copy: Copy) -> None:
    """Those of the workers, too; a state that was loaded, and an epoch that was chosen."""
    loader = tdstream.loader(make_corpus(700), seq_len=16, batch_size=2, num_workers=1, prefetch_factor=3,
                             persistent_workers=True, multiprocessing_context="fork", timeout=50)  # fmt: skip
    loader.set_epoch(3)
    other = make_copy(loader)
    assert other.epoch == 3
    assert (other.num_workers, other.prefetch_factor, other.timeout) == (1, 3, 50)
    assert other.persistent_workers
    assert other.multiprocessing_context.get_start_method() == "fork"


def test_in_another_process_and_directory(
    make_corpus: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pickle holds no path that means something else elsewhere."""
    make_corpus(700, name="a")
    monkeypatch.chdir(tmp_path)
    loader = tdstream.loader(tdstream.split("a", [0.5, 0.5])[1], seq_len=16, batch_size=2)
    batches = iter(loader)
    next(batches)
    (tmp_path / "loader.pickle").write_bytes(pickle.dumps(loader))
    script = (
        f"import pickle; loader = pickle.loads(open({str(tmp_path / 'loader.pickle')!r}, 'rb').read());"
        "print([batch['input_ids'].tolist() for batch in loader])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.check_output([sys.executable, "-c", script], env=environment, text=True, cwd="/")
    assert told.strip() == str(rows(batches))


def test_a_pass_of_a_pipeline(make_corpus: Callable[..., Path], make_copy: Copy) -> None:
    """Its copy goes on alone."""
    pipeline = tdstream.build(make_corpus(700), seq_len=16, batch_size=2, shuffle=True)
    whole = rows(iter(pipeline))
    pipeline.set_epoch(0)
    one = iter(pipeline)
    next(one)
    other = make_copy(one)
    assert rows(other) == whole[1:]
    assert rows(one) == whole[1:]


def test_what_cannot_be_copied(make_corpus: Callable[..., Path], make_copy: Copy) -> None:
    """An iterator of a loader, and a bar: one sentence."""
    loader = tdstream.loader(make_corpus(700), seq_len=16, batch_size=2)
    batches = iter(loader)
    next(batches)
    with pytest.raises(ConfigError, match=r"a pass that is running.* pickle the loader"):
        make_copy(batches)
    with pytest.raises(ConfigError, match="a progress bar writes to this process's output"):
        make_copy(tdstream.progress(loader))
    assert make_copy(tdstream.DataMeter()).report() == tdstream.DataMeter().report()


def test_what_a_pickle_cannot_hold(tokenizer_dir: Path) -> None:
    """A function of a function; a deep copy shares it."""
    loader = tdstream.loader(lambda: iter(TEXTS), tokenizer=str(tokenizer_dir), seq_len=16, batch_size=2)
    with pytest.raises(ConfigError, match=r"the loader cannot be pickled.*top level of a module"):
        pickle.dumps(loader)
    assert rows(copy.deepcopy(loader)) == rows(loader)
