"""Mixtures: how they are described, what batches hold, and what is refused."""

from __future__ import annotations

import json
import math
import pickle
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream
from helpers_corpus import write_corpus
from tdstream.cli.main import main
from tdstream.loading.locate import read_cursor
from tdstream.schedule.mixture_schedule import whole_weights
from tdstream.schedule.order import feistel_order

OPTIONS: dict[str, Any] = {"seq_len": 3, "shuffle": True, "seed": 3}


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Path]:
    """Return two corpora, of 100 samples in uint32 and 40 in uint16; tokens count from 0 and from 40,000."""
    return {
        "web": write_corpus(tmp_path / "web", np.arange(400, dtype="<u4"), [150, 250]),
        "code": write_corpus(tmp_path / "code", np.arange(40_000, 40_160, dtype="<u2"), [160]),
    }


def mixed(sources: dict[str, Path], web: float = 3, code: float = 1) -> dict[str, tuple[Path, float]]:
    """Return the short form of a mixture."""
    return {"web": (sources["web"], web), "code": (sources["code"], code)}


def samples(batch: Any) -> list[tuple[str, int]]:
    """Return (source, its sample) of each row, having looked at all tokens."""
    inputs = batch["input_ids"]
    assert inputs.dtype == torch.int64
    assert torch.equal(inputs, inputs[:, :1] + torch.arange(3))
    assert torch.equal(batch["labels"], inputs + 1)
    firsts = inputs[:, 0].tolist()
    return [("web", first // 4) if first < 40_000 else ("code", (first - 40_000) // 4) for first in firsts]


def test_a_batch_holds_samples_of_its_sources(sources):
    """Rows are whole samples, uint16 and uint32 alike, and source_id numbers sources as they were given."""
    loader = tdstream.loader(mixed(sources), batch_size=8, source_id=True, **OPTIONS)
    batch = next(iter(loader))
    assert batch["source_id"].dtype == torch.int32
    assert batch["source_id"].shape == (8,)
    assert [("web", "code")[number] for number in batch["source_id"]] == [name for name, _ in samples(batch)]
    assert Counter(name for name, _ in samples(batch)) == {"web": 6, "code": 2}


@pytest.mark.parametrize("batch_size", [8, 40])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_source_keeps_its_own_order(sources, batch_size, workers):
    """Each source gives what it gives alone, and an epoch ends with the first that is used up."""
    loader = tdstream.loader(mixed(sources), batch_size=batch_size, num_workers=workers, **OPTIONS)
    found = [sample for batch in loader for sample in samples(batch)]
    assert len(found) == 133 // batch_size * batch_size  # the hundredth of web stands at place 133
    for name, size in (("web", 100), ("code", 40)):
        own = [sample for source, sample in found if source == name]
        assert own == feistel_order(size, 3, 0)(np.arange(size)).tolist()[: len(own)]


def test_source_ids_follow_the_order_of_the_sources_now(sources):
    """A state does not keep the numbers: named in another order, sources have other numbers."""
    first = tdstream.loader(mixed(sources), batch_size=8, source_id=True, **OPTIONS)
    next(iter(first))
    turned = dict(reversed(mixed(sources).items()))
    loader = tdstream.loader(turned, batch_size=8, source_id=True, **OPTIONS)
    loader.load_state_dict(first.state_dict())
    batch = next(iter(loader))
    assert [("code", "web")[number] for number in batch["source_id"]] == [name for name, _ in samples(batch)]


def test_without_source_id_a_batch_says_nothing_of_it(sources):
    """Batches have the keys of every pipeline, unless more is asked for."""
    batch = next(iter(tdstream.loader(mixed(sources), batch_size=8, **OPTIONS)))
    assert sorted(batch) == ["input_ids", "labels"]


def test_single_samples_say_their_source(sources):
    """Without batch_size the caller's loader stacks samples, and their sources."""
    pipe = tdstream.build(mixed(sources), source_id=True, **OPTIONS)
    batch = next(iter(torch.utils.data.DataLoader(pipe, batch_size=4)))
    assert batch["source_id"].shape == (4,)
    assert len(samples(batch)) == 4
    assert len(pipe) == 133


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bare_stateful_dataloader_resumes(sources, workers):
    """StatefulDataLoader's own state goes on exactly, and becomes a portable one."""

    def fresh() -> Any:
        pipe = tdstream.build(mixed(sources), batch_size=4, source_id=True, **OPTIONS)
        return StatefulDataLoader(pipe, num_workers=workers)

    whole = [samples(batch) for batch in fresh()]
    loader = fresh()
    batches = iter(loader)
    assert [samples(next(batches)) for _ in range(5)] == whole[:5]
    state = loader.state_dict()
    again = fresh()
    again.load_state_dict(state)
    assert [samples(batch) for batch in again] == whole[5:]
    portable = tdstream.loader(mixed(sources), batch_size=4, **OPTIONS)
    portable.load_state_dict(tdstream.position_of(state))
    assert [samples(batch) for batch in portable] == whole[5:]


def test_a_bare_stateful_dataloader_refuses_a_change(sources):
    """One stream does not know the place of the run at which its mixture would change."""
    loader = StatefulDataLoader(tdstream.build(mixed(sources), batch_size=4, **OPTIONS))
    next(iter(loader))
    state = loader.state_dict()
    changed = StatefulDataLoader(tdstream.build(mixed(sources, 1, 1), batch_size=4, **OPTIONS))
    changed.load_state_dict(state)
    with pytest.raises(tdstream.StateError, match=r"the weights from sample 0 on differ.*position_of"):
        next(iter(changed))


def test_a_part_of_a_corpus_comes_and_goes(sources):
    """A running mixture may take on a part of a corpus, and leave it; what it had is remembered."""
    part = tdstream.split(sources["code"], [0.5, 0.5])[1]
    whole, both = {"web": (sources["web"], 1)}, {"web": (sources["web"], 1), "code": (part, 1)}
    state, log = None, []
    for source in (whole, both, whole):
        loader = tdstream.loader(source, batch_size=4, **OPTIONS)
        if state is not None:
            loader.load_state_dict(state)
        log += [sample for _, batch in zip(range(5), loader, strict=False) for sample in samples(batch)]
        state = loader.state_dict()
    assert Counter(name for name, _ in log) == {"web": 50, "code": 10}
    assert [sample for name, sample in log if name == "web"] == feistel_order(100, 3, 0)(
        np.arange(50)
    ).tolist()
    code = feistel_order(20, 3, 0)(np.arange(10)) + 20
    assert [sample for name, sample in log if name == "code"] == code.tolist()
    located = [one for step in (2, 7, 12) for one in loader.locate(step).samples]
    assert [one.source for one in located] == [name for step in (2, 7, 12) for name, _ in log[4 * step :][:4]]
    assert not any(one.pieces for one in located)  # the state does not tell where a part begins


def test_parts_of_corpora_are_read_as_one(sources):
    """Parts begin where they begin, whether their tokens are found in one call for all sources or not."""
    held = tdstream.split(sources["web"], [0.3, 0.7], by="samples")[1]
    small = write_corpus(sources["web"].parent / "same", np.arange(40_000, 40_160, dtype="<u4"), [3, 157])
    for other in (sources["code"], small):  # of another storage type, and of the same
        mixture = {"web": (held, 1), "code": (other, 1)}
        loader = tdstream.loader(mixture, batch_size=4, **OPTIONS)
        log = [sample for batch in loader for sample in samples(batch)]
        web = [sample for name, sample in log if name == "web"]
        code = [sample for name, sample in log if name == "code"]
        assert web == (feistel_order(70, 3, 0)(np.arange(70)) + 30).tolist()[: len(web)]
        assert code == feistel_order(40, 3, 0)(np.arange(40)).tolist()[: len(code)]
        assert len(log) == 76


def test_a_source_leaves_before_an_epochs_rest(sources):
    """A rest too small for who saved the state, but not for who made its steps, is served by new weights."""
    first = tdstream.loader(mixed(sources), batch_size=1, **OPTIONS)
    log = [sample for _, batch in zip(range(126), first, strict=False) for sample in samples(batch)]
    idle = tdstream.loader(mixed(sources), batch_size=9, **OPTIONS)  # 7 samples are left
    idle.load_state_dict(first.state_dict())
    last = tdstream.loader({"web": (sources["web"], 1)}, batch_size=2, **OPTIONS)
    last.load_state_dict(idle.state_dict())
    rest = [sample for batch in last for sample in samples(batch)]
    web = [sample for name, sample in log + rest if name == "web"]
    assert last.epoch == 0
    assert len(rest) >= 4
    assert all(name == "web" for name, _ in rest)
    assert web == feistel_order(100, 3, 0)(np.arange(len(web))).tolist()


def test_a_state_of_other_sizes_goes_on_if_that_is_wanted(sources):
    """With strict=False the sizes count that sources have here: nothing behind their ends is read."""
    loader = tdstream.loader(mixed(sources), batch_size=4, **OPTIONS)
    next(iter(loader))
    shorter = {"web": (sources["code"], 1), "code": (sources["web"], 1)}
    other = tdstream.loader(shorter, batch_size=4, strict=False, **OPTIONS)
    other.load_state_dict(loader.state_dict())
    assert len({sample for batch in other for sample in samples(batch)}) >= 40


def test_locate_tells_what_each_step_had(sources):
    """Of past and future steps, before and behind a change, the source and its own sample are known."""
    loader = tdstream.loader(mixed(sources), batch_size=4, **OPTIONS)
    batches = iter(loader)
    found = [samples(next(batches)) for _ in range(5)]
    changed = tdstream.loader(mixed(sources, 1, 1), batch_size=4, **OPTIONS)
    changed.load_state_dict(loader.state_dict())
    found += [samples(batch) for batch in changed]
    for step, batch in enumerate(found):
        located = changed.locate(step).samples
        assert [(sample.source, sample.index) for sample in located] == batch
        assert all(sum(piece.tokens for piece in sample.pieces) == 4 for sample in located)
    fresh = tdstream.loader(mixed(sources), batch_size=4, **OPTIONS)
    assert [(one.source, one.index) for one in fresh.locate(3).samples] == found[3]


def test_the_commands_say_where_a_mixture_stands(sources, tmp_path, capsys):
    """`state` and `locate` tell sources and weights from the checkpoint alone."""
    loader = tdstream.loader(mixed(sources), batch_size=4, **OPTIONS)
    batches = iter(loader)
    found = [samples(next(batches)) for _ in range(5)]
    torch.save({"loader": loader.state_dict()}, tmp_path / "checkpoint.pt")
    assert main(["state", str(tmp_path / "checkpoint.pt")]) == 0
    told = capsys.readouterr().out
    assert "web       15 of 100 samples of its epoch 0" in told
    assert "now: code 1, web 3" in told or "now: web 3, code 1" in told
    assert main(["locate", "--state", str(tmp_path / "checkpoint.pt"), "--step", "4", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["samples"]
    assert [(row["source"], row["index"]) for row in told] == found[4]
    data = ["--data", str(sources["web"])]
    assert main(["locate", "--state", str(tmp_path / "checkpoint.pt"), "--step", "4", *data]) != 0
    assert "the state is of a mixture" in capsys.readouterr().err


def test_the_statistics_are_the_log(sources):
    """Over epochs, a skip and a resume, the counts are those of what was handed out."""
    loader = tdstream.loader(mixed(sources), batch_size=7, **OPTIONS)
    seen = [sample for _ in range(3) for batch in loader for sample in samples(batch)]
    loader.skip(2)
    batches = iter(loader)
    seen += [sample for _ in range(3) for sample in samples(next(batches))]
    again = tdstream.loader(mixed(sources), batch_size=5, **OPTIONS)
    again.load_state_dict(loader.state_dict())
    seen += [sample for batch in again for sample in samples(batch)]
    counts = Counter(name for name, _ in seen)
    stats = again.mixture_stats()
    assert {name: part["samples"] for name, part in stats.items()} == counts
    assert {name: part["tokens"] for name, part in stats.items()} == {n: 3 * c for n, c in counts.items()}
    assert stats["web"]["epochs"] == 3
    with pytest.raises(tdstream.ConfigError, match="one source"):
        tdstream.loader(sources["web"], batch_size=2, **OPTIONS).mixture_stats()


@pytest.mark.parametrize("tail", ["drop", "wrap"])
def test_a_wrapped_tail_is_counted(sources, tail):
    """Rows that fill an epoch's last batch count as well."""
    loader = tdstream.loader(mixed(sources), batch_size=8, tail=tail, **OPTIONS)
    counts = Counter(name for batch in loader for name, _ in samples(batch))
    assert {name: part["samples"] for name, part in loader.mixture_stats().items()} == counts


@pytest.mark.parametrize(("ranks", "workers"), [(1, 0), (2, 0), (1, 2)])
def test_a_wrapped_tail_has_no_source_that_left(sources, ranks, workers):
    """An epoch in whose course a source left is filled from there on, where all samples are of the others."""
    options: dict[str, Any] = {"tail": "wrap", "num_workers": workers, **OPTIONS}
    before = tdstream.loader(mixed(sources), batch_size=8, tail="wrap", **OPTIONS)
    log = [sample for _, batch in zip(range(5), before, strict=False) for sample in samples(batch)]
    assert Counter(name for name, _ in log) == {"web": 30, "code": 10}
    web = {"web": (sources["web"], 1)}
    loaders = [
        tdstream.loader(web, batch_size=8 // ranks, dp_rank=rank, dp_world_size=ranks, **options)
        for rank in range(ranks)
    ]
    for loader in loaders:
        loader.load_state_dict(before.state_dict())
    for batches in zip(*loaders, strict=True):
        log += [sample for batch in batches for sample in samples(batch)]
    order = feistel_order(100, 3, 0)(np.arange(100)).tolist()
    assert [number for name, number in log if name == "web"] == [*order, *order[30:32]]  # 70 left: 9 batches
    counts = Counter(name for name, _ in log)
    stats = loaders[0].mixture_stats()
    assert {name: part["samples"] for name, part in stats.items()} == counts
    for step in (0, 4, 5, 13):
        located = [(one.source, one.index) for one in loaders[0].locate(step).samples]
        assert located == log[8 * step : 8 * step + 8]
    batches = [[sample for batch in pair for sample in samples(batch)] for pair in zip(*loaders, strict=True)]
    again = feistel_order(100, 3, 1)(np.arange(100)).tolist()  # the next epoch is filled from its beginning
    assert [number for batch in batches for _, number in batch] == [*again, *again[:4]]


def test_by_size_all_sources_end_together(sources):
    """With weights by tokens an epoch takes every source once; with a temperature small ones have more."""
    plain = tdstream.Mixture(sources, weights="tokens", stop="drop")
    assert tdstream.build(plain, **OPTIONS).splitter.upstream.num_samples(0) == 140
    assert dict(plain.stages({"web": 100, "code": 40})[0][1]) == {"web": 100, "code": 40}
    warm = tdstream.Mixture(sources, temperature=2).stages({"web": 100, "code": 25})[0][1]
    assert warm == {"web": 1, "code": 0.5}


def test_weights_become_exact_shares():
    """Decimals and rounded thirds are the fractions that were meant."""
    assert whole_weights({"a": 0.7, "b": 0.3}, ["a", "b"]).tolist() == [7, 3]
    assert whole_weights({"a": 0.333333, "b": 0.666667}, ["b", "a", "c"]).tolist() == [2, 1, 0]
    tiny = whole_weights({"a": 1e-12, "b": 1}, ["a", "b"])
    assert tiny[0] >= 1
    assert tiny.sum() < 2**36


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": {"web": 1, "code": -1}}, "the weight of code must be a number above 0, got -1"),
        ({"weights": {"web": 1, "code": 0}}, "above 0, got 0.*leave it out"),
        ({"weights": {"web": 1, "code": float("nan")}}, "above 0, got nan"),
        ({"weights": {"web": 1, "code": float("inf")}}, "above 0, got inf"),
        ({"weights": {"web": 1, "code": 10**400}}, "above 0, got 1000"),
        ({"weights": {"web": 1, "code": True}}, "above 0, got True"),
        ({"weights": {"web": 1, "cod": 1}}, "weights name cod, which are not sources"),
        ({"weights": {"web": 1}}, "code has no weight"),
        ({"weights": "size"}, 'a dict or "tokens"'),
        ({"weights": "tokens", "temperature": 0}, "temperature must be a number above 0, got 0"),
        ({"temperature": float("nan")}, "above 0, got nan"),
        ({"weights": {"web": 1, "code": 1}, "temperature": 2}, "leave weights out"),
        ({}, "no weights are given"),
        ({"weights": "tokens", "stages": [(0, {"web": 1})]}, "given by size and in stages"),
        ({"stages": [(5, {"web": 1})]}, r"must rise from 0, got \[5\]"),
        ({"stages": [(0, {"web": 1}), (0, {"web": 2})]}, r"must rise from 0"),
        ({"stages": [(0, {"news": 1})]}, "weights name news"),
        ({"stages": [(0, {})]}, "weights are a dict"),
        ({"stages": [7]}, "pairs of a number of samples and weights"),
        ({"weights": "tokens", "stop": "last"}, '"first", "all" or "drop"'),
        ({"weights": "tokens", "max_epochs": {"news": 2}}, "max_epochs names news"),
        ({"weights": "tokens", "max_epochs": 0}, "max_epochs of web must be an integer of at least 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_mixture_is_refused(sources, options, message):
    """Each mistake has its sentence."""
    with pytest.raises(tdstream.ConfigError, match=message):
        tdstream.Mixture(sources, **options)


def test_other_refusals(sources, tmp_path):
    """No sources, nameless ones, source_id of one source, and a source that is missing."""
    with pytest.raises(tdstream.ConfigError, match="sources must be a dict"):
        tdstream.build({}, **OPTIONS)
    with pytest.raises(tdstream.ConfigError, match="non-empty strings"):
        tdstream.build({3: (sources["web"], 1)}, **OPTIONS)
    with pytest.raises(tdstream.ConfigError, match="source_id"):
        tdstream.build(sources["web"], source_id=True, **OPTIONS)
    with pytest.raises(tdstream.CorpusNotFoundError, match="nowhere"):
        tdstream.build({"web": (tmp_path / "nowhere", 1)}, **OPTIONS)
    with pytest.raises(
        tdstream.ConfigError, match=r"source text of a mixture must be a corpus directory.*list"
    ):
        tdstream.build({**mixed(sources), "text": (["a text"], 1)}, tokenizer="none", **OPTIONS)
    for option in ({"kind": "stream"}, {"kind": "anything"}, {"cache_dir": tmp_path}):
        with pytest.raises(tdstream.ConfigError, match="for one of text"):
            tdstream.build(mixed(sources), **option, **OPTIONS)


def test_other_tokenizers_are_refused(sources, caplog):
    """Sources whose tokenizers are known and differ do not mix, unless that is wanted."""
    for name, fingerprint in (("web", "aaaa"), ("code", "bbbb")):
        meta = json.loads((sources[name] / "meta.json").read_text())
        (sources[name] / "meta.json").write_text(json.dumps({**meta, "tokenizer_fingerprint": fingerprint}))
    with pytest.raises(tdstream.ConfigError, match="web and code were prepared with different tokenizers"):
        tdstream.build(mixed(sources), **OPTIONS)
    tdstream.build(mixed(sources), strict=False, **OPTIONS)
    assert "different tokenizers" in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 4}, "permutation.seed was 3, is 4"),
        ({"seq_len": 2}, "reader.seq_len was 3, is 2"),
        ({"stop": "all"}, "mixture.stop was 'first', is 'all'"),
        ({"max_epochs": 2}, "max_epochs of code was None, is 2"),
        ({"max_epochs": {"web": 1}}, "max_epochs of web was None, is 1"),
    ],
)
def test_a_state_of_other_settings_is_refused(sources, change, message):
    """What would change what was already served is named; nothing is loaded."""

    def make(**options: Any) -> tdstream.Loader:
        rules = {name: options.pop(name) for name in ("stop", "max_epochs") if name in options}
        mixture = tdstream.Mixture(sources, weights={"web": 3, "code": 1}, **rules)
        return tdstream.loader(mixture, batch_size=4, **{**OPTIONS, **options})

    first = make()
    next(iter(first))
    other = make(**change)
    with pytest.raises(tdstream.StateError, match=message):
        other.load_state_dict(first.state_dict())
    assert (other.epoch, other.position) == (0, 0)
    if "max_epochs" in change:
        with pytest.raises(tdstream.StateError, match=r"max_epochs of \w+ was \d, is None"):
            first.load_state_dict(other.state_dict())


def test_another_corpus_under_the_same_name_is_refused(sources):
    """A source is its content; a mixture and one source are different things."""
    first = tdstream.loader(mixed(sources), batch_size=4, **OPTIONS)
    swapped = {"web": (sources["code"], 3), "code": (sources["web"], 1)}
    with pytest.raises(tdstream.StateError, match="source code had 40 samples, has 100"):
        tdstream.loader(swapped, batch_size=4, **OPTIONS).load_state_dict(first.state_dict())
    with pytest.raises(tdstream.StateError, match="another kind of pipeline"):
        tdstream.loader(sources["web"], batch_size=4, **OPTIONS).load_state_dict(first.state_dict())


@pytest.mark.parametrize(
    "damage",
    [
        {"stages": []},
        {"stages": [[0, [1]]]},
        {"stages": [[0, [0, 0]]]},
        {"sources": [["web", 0, "", 0]], "stages": [[0, [1]]]},
        {"sources": 3},
        {"stop": "soon"},
        {"stages": [[0, [1, math.inf]]]},
        {"stages": [[0, [1, 3]], [2**62 + 1, [3, 1]]]},
        {"sources": [["code", 40, "", 0], ["web", 2**62 + 1, "", 0]]},
        {"sources": [["code", 40, "", 0], ["web", 100, "", 2**62 + 1]]},
    ],
)
def test_a_damaged_state_is_refused(sources, damage):
    """A mixture's part that cannot be has a sentence, not a stack trace."""
    loader = tdstream.loader(mixed(sources), batch_size=4, **OPTIONS)
    state = loader.state_dict()
    state["nodes"]["mixture"].update(damage)
    with pytest.raises(tdstream.StateError, match="was cut or changed"):
        loader.load_state_dict(state)
    with pytest.raises(tdstream.StateError, match="was cut or changed"):
        read_cursor(state)


def test_the_state_is_small_and_files_stay_few(tmp_path):
    """A thousand sources: below 100 bytes each with four stages, and no more than 128 files open."""
    corpus = write_corpus(tmp_path / "one", np.arange(400, dtype="<u2"), [400])
    names = [f"source-{number:04d}" for number in range(1000)]
    generator = np.random.default_rng(0)
    stages = [(1000 * n, dict(zip(names, generator.random(1000).tolist(), strict=True))) for n in range(4)]
    mixture = tdstream.Mixture(dict.fromkeys(names, corpus), stages=stages)
    loader = tdstream.loader(mixture, batch_size=8, **OPTIONS)
    batches = iter(loader)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(300):
        next(batches)
    assert len(list(Path("/proc/self/fd").iterdir())) - before <= 128
    assert len(json.dumps(loader.state_dict())) < 100 * 1000


def test_a_mixture_goes_to_another_process(sources):
    """Pickled, as for a spawned worker, a pipeline serves the same."""
    pipe = tdstream.build(mixed(sources), batch_size=4, **OPTIONS)
    first = [samples(batch) for batch in pipe]
    copy = pickle.loads(pickle.dumps(tdstream.build(mixed(sources), batch_size=4, **OPTIONS)))
    assert [samples(batch) for batch in copy] == first
    assert "web, code" in repr(copy)
    assert asdict(tdstream.loader(mixed(sources), batch_size=4, **OPTIONS).locate(0))["step"] == 0


@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_that_has_no_batch_any_more_is_refused(sources, workers):
    """Where a stage's epochs are smaller than a global batch: no loop over nothing, again and again."""
    few = tdstream.split(sources["code"], [0.05])[0]  # 2 samples
    stages = [(0, {"web": 1}), (100, {"few": 1})]
    mixture = tdstream.Mixture({"web": sources["web"], "few": few}, stages=stages)
    loader = tdstream.loader(mixture, batch_size=4, num_workers=workers, **OPTIONS)
    assert sum(1 for _ in loader) == 25
    for _ in range(2):
        with pytest.raises(tdstream.GeometryError, match="an epoch has 2 samples, fewer than the 4"):
            next(iter(loader))
    lenient = tdstream.loader(mixture, batch_size=4, num_workers=workers, strict=False, **OPTIONS)
    lenient.load_state_dict(loader.state_dict())
    assert list(lenient) == []


def test_an_epoch_without_a_batch_on_the_way_is_passed(sources):
    """Later ones have batches: the run goes on."""
    few = tdstream.split(sources["code"], [0.05])[0]
    stages = [(0, {"web": 1}), (100, {"few": 1}), (102, {"web": 1})]
    mixture = tdstream.Mixture({"web": sources["web"], "few": few}, stages=stages)
    loader = tdstream.loader(mixture, batch_size=4, **OPTIONS)
    assert [sum(1 for _ in loader) for _ in range(4)] == [25, 0, 25, 25]
