"""What each pipeline yields, and what each stored state goes on with, is what it was in earlier versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from golden_cases import BY_NAME, CASES, COUNT, CROSSINGS, END, SEQ_LEN, Case, advance, first_of, take
from golden_folder import HERE, copy_of, read_json, state_of_files

import tdstream

FOLDERS = [folder.name for folder in sorted(HERE.glob("v*"))]
RANKS = {"alone": {}, **{f"rank {rank} of 2": {"dp_rank": rank, "dp_world_size": 2} for rank in (0, 1)}}


def cases(part: str) -> list[Any]:
    """Return (folder, case) for each case that a golden folder has in this part."""
    names = [(folder, case.name) for folder in FOLDERS for case in CASES]
    found = [(folder, name) for folder, name in names if list((HERE / folder / part).glob(f"{name}.json*"))]
    return [pytest.param(folder, BY_NAME[name], id=f"{folder}-{name}") for folder, name in found]


def load(folder: str, part: str, name: str) -> Any:
    """Return what a golden file says."""
    ending = ".json.gz" if part == "states" else ".json"
    return read_json(HERE / folder / part / (name + ending))


@pytest.mark.parametrize(("folder", "case"), cases("orders"))
def test_orders(folder: str, case: Case, golden_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batches of epochs 0 and 1 are the same, on one rank and on each of two."""
    monkeypatch.chdir(golden_copy / folder)
    for ranks, expected in load(folder, "orders", case.name).items():
        loader = case.stateful(0, **RANKS[ranks]) if case.by_samples else case.loader(**RANKS[ranks])
        if "length" in expected:
            assert len(loader) == expected["length"]
        for epoch in (0, 1):
            assert take(first_of(loader, epoch)) == expected[f"epoch {epoch}"], (ranks, epoch)


@pytest.mark.parametrize(("folder", "case"), cases("states"))
def test_states(folder: str, case: Case, golden_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every stored state loads, and goes on with the batches that it went on with.

    Of a StatefulDataLoader's states with workers, which take time to begin, one goes on with them. The next
    test takes the others where they have a position.
    """
    monkeypatch.chdir(golden_copy / folder)
    for stored in load(folder, "states", case.name):
        where = (stored["loader"], stored["num_workers"], stored["options"], stored["point"])
        if stored["loader"] == "stateful" and stored["num_workers"] and stored["point"] != "in epoch 0":
            continue
        if stored["loader"] == "loader":
            loader = case.loader(num_workers=stored["num_workers"], **stored["options"])
        else:
            loader = case.stateful(stored["num_workers"], **stored["options"])
        loader.load_state_dict(stored["state"])
        assert take(loader) == stored["then"], where


@pytest.mark.parametrize(
    ("folder", "case"),
    [found for found in cases("states") if not (found.values[1].by_samples or found.values[1].live)],
)
def test_states_of_workers_have_a_position(
    folder: str, case: Case, golden_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A StatefulDataLoader's own state, with and without workers, becomes the portable one."""
    monkeypatch.chdir(golden_copy / folder)
    loader = case.loader()
    for stored in load(folder, "states", case.name):
        if stored["loader"] == "stateful" and not stored["options"]:
            loader.load_state_dict(tdstream.position_of(stored["state"]))
            then = stored["then"][stored["then"][0] == "end" :]  # no empty pass in a tdstream.loader
            assert take(loader) == then, (stored["num_workers"], stored["point"])


@pytest.mark.parametrize(
    ("folder", "case"), [found for found in cases("states") if not found.values[1].by_samples]
)
def test_states_say_the_same(
    folder: str, case: Case, golden_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tdstream.loader's state at a place is the stored one; it may say more."""
    monkeypatch.chdir(golden_copy / folder)
    stored = load(folder, "states", case.name)[0]
    assert (stored["loader"], stored["num_workers"], stored["point"]) == ("loader", 0, "in epoch 0")
    loader = case.loader()
    kept = advance(loader, 7)
    assert _holds(loader.state_dict(), stored["state"])
    del kept


def _holds(now: Any, before: Any) -> bool:
    """Return whether nested dicts and lists hold all that others hold."""
    if isinstance(before, dict) and isinstance(now, dict):
        return all(name in now and _holds(now[name], value) for name, value in before.items())
    if isinstance(before, list) and isinstance(now, list):
        return len(now) == len(before) and all(map(_holds, now, before))
    return type(now) is type(before) and now == before


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_dict_is_a_mixture(folder: str, golden_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dict of names, directories and weights makes the stored mixture."""
    monkeypatch.chdir(golden_copy / folder)
    shares = {"web": ("corpora/indexed", 0.6), "code": (Path("corpora/merged"), 0.4)}
    loader = tdstream.loader(shares, **BY_NAME["mixture_plain"].arguments())
    assert take(loader) == load(folder, "orders", "mixture_plain")["alone"]["epoch 0"]


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("crossing", CROSSINGS, ids=lambda crossing: crossing.name)
def test_crossings(crossing: Any, folder: str, golden_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A portable state goes on under another geometry or mixture, and so does the state of that run."""
    monkeypatch.chdir(golden_copy / folder)
    stored = load(folder, "crossings", crossing.name)
    loader = BY_NAME[crossing.loaded].loader(**crossing.after)
    for name in ("state", "later"):
        loader.load_state_dict(stored[name])
        assert take(loader) == stored["then" if name == "state" else "later then"], name


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_state_of_another_case_is_refused(
    folder: str, golden_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What tells stored states from each other still does: seed, order, cut, corpus, part."""
    monkeypatch.chdir(golden_copy / folder)
    names = [
        "feistel",
        "seed_42",
        "numpy",
        "block",
        "stride_5",
        "indexed",
        "pack",
        "document",
        "part_samples",
    ]
    states = {name: load(folder, "states", name)[0]["state"] for name in names}
    for name in names:
        loader = BY_NAME[name].loader()
        for other in names:
            if other != name:
                with pytest.raises(tdstream.StateError):
                    loader.load_state_dict(states[other])


# That the golden files are right, and not only unchanged.


@pytest.mark.parametrize("folder", FOLDERS)
def test_rows_are_what_the_contract_says(
    folder: str, golden_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens that are their own places: rows begin where samples do, and each is served once per epoch."""
    monkeypatch.chdir(golden_copy / folder)
    for name, stride in (
        ("plain", 17),
        ("feistel", 17),
        ("stride_5", 5),
        ("stride_seq_len", 16),
        ("block", 17),
    ):
        number = (1900 - SEQ_LEN - 1) // stride + 1
        for epoch in (0, 1):
            loader = first_of(BY_NAME[name].loader(), epoch)
            rows = torch.cat(
                [torch.cat([batch["input_ids"], batch["labels"][:, -1:]], 1) for batch in loader]
            )
            starts = rows[:, 0]
            assert (rows == starts[:, None] + torch.arange(SEQ_LEN + 1)).all()
            assert (starts % stride == 0).all()
            assert len(set(starts.tolist())) == len(rows) == number // 4 * 4
            if name == "plain":
                assert starts.tolist() == list(range(0, len(rows) * 17, 17))


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_reference_order(folder: str, golden_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The orders "numpy" and of DistributedDataset are numpy's permutations."""
    monkeypatch.chdir(golden_copy / folder)
    for epoch in (0, 1):
        for seed, loader in ((7, BY_NAME["numpy"].loader()), (42, BY_NAME["reference"].stateful(0))):
            rows = torch.cat([batch["input_ids"][:, 0] for batch in first_of(loader, epoch)])
            order = np.random.default_rng(seed + epoch * 1000003).permutation(1900 // 17)
            assert (rows.numpy() == order[: len(rows)] * 17).all()


@pytest.mark.parametrize(("folder", "case"), cases("states"))
def test_stored_states_go_on_as_an_uninterrupted_run_does(folder: str, case: Case) -> None:
    """What was recorded behind each state is what was recorded of a run from its beginning."""
    order = load(folder, "orders", case.name)["alone"]
    for stored in load(folder, "states", case.name):
        if stored["options"] or (stored["num_workers"] and (case.live or case.by_samples)):
            continue  # each worker reads a stream of its own
        then = [item for item in stored["then"] if item != END]
        epoch, begin = {"in epoch 0": (0, 7), "in epoch 1": (1, 5)}.get(stored["point"], (1, 0))
        rest = [item for item in order[f"epoch {epoch}"][begin:] if item != END]
        same = min(len(rest), len(then), order.get("length", COUNT) - begin)
        assert same > 8
        assert then[:same] == rest[:same], (stored["loader"], stored["num_workers"], stored["point"])


@pytest.mark.parametrize("folder", FOLDERS)
def test_two_ranks_share_the_global_batches_of_one(folder: str) -> None:
    """Stored states of both ranks are equal; a text gives the same batches in memory, cached and on disk."""
    for name in ("feistel", "pack", "mixture"):
        stored = [part for part in load(folder, "states", name) if part["loader"] == "loader"]
        ranks = [
            [part["state"] for part in stored if part["options"].get("dp_rank") == rank] for rank in (0, 1)
        ]
        assert len(ranks[0]) == 1
        assert ranks[0] == ranks[1]
    orders = {name: load(folder, "orders", name)["alone"] for name in ("indexed", "memory_list", "cache")}
    assert orders["indexed"] == orders["memory_list"] == orders["cache"]
    assert load(folder, "orders", "marks") == {
        **load(folder, "orders", "marks"),
        "alone": load(folder, "orders", "memory_marks")["alone"],
    }
    assert load(folder, "orders", "pack")["alone"] == load(folder, "orders", "pack_unindexed")["alone"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_made_from_a_corpus_are_read_and_not_made_again(
    folder: str, tmp_path: Path, golden_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans of rows, ends of documents and prepared corpora that lie there are used as they are."""
    copy = copy_of(HERE / folder, tmp_path / folder)
    monkeypatch.chdir(copy)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    before = state_of_files(tmp_path)
    kept = [name for name in before if "/.tdstream/" in name]
    assert {Path(name).suffix for name in kept} == {".i8", ".i4", ".json", ".eos"}
    for name in (
        "pack", "pack_unindexed", "document_unindexed", "pack_block", "part_pack", "pack_capacity",
        "mixture_pack",
        "marks_legacy", "part_document", "cache", "cache_document",
    ):  # fmt: skip
        take(BY_NAME[name].loader())
    assert state_of_files(tmp_path) == before
