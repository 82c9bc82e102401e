"""Plans of packed rows: made once, whatever happens meanwhile, and mapped."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
from itertools import pairwise

import numpy as np
import pytest

from tdstream.corpus import pack_plan
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.corpus.pack_plan import PackOptions, find_pack_plan, plan_in_memory

LENGTHS = np.random.default_rng(0).integers(1, 30, 100)
ENDS = DocumentEnds.of(np.cumsum(LENGTHS), int(LENGTHS.sum()))
OPTIONS = PackOptions(seq_len=16, documents=(0, 100), window=30)
NUM_WINDOWS = 4


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def packed(monkeypatch):
    """Return a list of the windows that are packed from now on."""
    found, pack_window = [], pack_plan._packed

    def noted(ends, window, seq_len):
        found.append(window)
        return pack_window(ends, window, seq_len)

    monkeypatch.setattr(pack_plan, "_packed", noted)
    return found


def lists(plan):
    """Return what a plan says."""
    return [array.tolist() for array in plan.arrays()]


EXPECTED = lists(plan_in_memory(ENDS, OPTIONS))


def test_windows_are_packed_one_after_the_other(tmp_path, packed):
    """No row holds documents of two windows; the second time nothing is planned."""
    plan = find_pack_plan(tmp_path, ENDS, OPTIONS)
    assert packed == [(0, 30), (30, 60), (60, 90), (90, 100)]
    rows, starts, _ = lists(plan)
    borders = np.cumsum(LENGTHS)[[29, 59, 89]]
    window = np.searchsorted(borders, starts, side="right")
    assert all(len(set(window[first:last])) == 1 for first, last in pairwise(rows))
    assert lists(find_pack_plan(tmp_path, ENDS, OPTIONS)) == lists(plan) == EXPECTED
    assert len(packed) == NUM_WINDOWS


def test_some_of_the_documents_have_a_plan_of_their_own(tmp_path):
    """Of their tokens and no others."""
    plan = find_pack_plan(tmp_path, ENDS, PackOptions(seq_len=16, documents=(40, 70), window=30))
    _, starts, lengths = plan.arrays()
    stops = np.cumsum(LENGTHS)
    pieces = [range(first, first + min(count, 16)) for first, count in zip(starts, lengths, strict=True)]
    assert sorted(place for piece in pieces for place in piece) == list(range(stops[39], stops[69]))


@pytest.mark.parametrize("windows", range(NUM_WINDOWS))
@pytest.mark.parametrize("torn", [False, True])
def test_a_plan_that_was_interrupted_goes_on(tmp_path, monkeypatch, packed, windows, torn):
    """Behind the last window that is safe, also if a later one had been written in part."""
    append, done = pack_plan._append, []

    def interrupted(partial, *rest):
        if len(done) == windows:
            if torn:
                with (partial / "starts.i8").open("ab") as file:
                    file.write(b"123")
            raise KeyboardInterrupt
        done.append(partial)
        return append(partial, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(pack_plan, "_append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            find_pack_plan(tmp_path, ENDS, OPTIONS)
    packed.clear()
    assert lists(find_pack_plan(tmp_path, ENDS, OPTIONS)) == EXPECTED
    assert len(packed) == NUM_WINDOWS - windows
    assert sorted(path.suffix for path in (tmp_path / ".tdstream").iterdir()) == ["", ".lock"]


def _killed(directory):
    append = pack_plan._append

    def killing(partial, packed, documents, size):
        size = append(partial, packed, documents, size)
        if size.documents == 60:
            os.kill(os.getpid(), signal.SIGKILL)
        return size

    pack_plan._append = killing
    find_pack_plan(directory, ENDS, OPTIONS)


def test_a_process_that_is_killed_blocks_nobody(tmp_path, packed):
    """The next one goes on with what it left."""
    process = multiprocessing.get_context("fork").Process(target=_killed, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert lists(find_pack_plan(tmp_path, ENDS, OPTIONS)) == EXPECTED
    assert packed == [(60, 90), (90, 100)]


def _plan_and_tell(directory, windows, plans):
    pack_window = pack_plan._packed

    def noted(ends, window, seq_len):
        windows.put(window)
        return pack_window(ends, window, seq_len)

    pack_plan._packed = noted
    plans.put(lists(find_pack_plan(directory, ENDS, OPTIONS)))


def test_ranks_that_begin_together_plan_once(tmp_path):
    """One of them plans, the others wait."""
    context = multiprocessing.get_context("fork")
    windows, plans = context.Queue(), context.Queue()
    ranks = [context.Process(target=_plan_and_tell, args=(tmp_path, windows, plans)) for _ in range(4)]
    for rank in ranks:
        rank.start()
    assert [plans.get(timeout=60) for _ in ranks] == [EXPECTED] * 4
    for rank in ranks:
        rank.join()
    assert [windows.get(timeout=5) for _ in range(NUM_WINDOWS)] == [(0, 30), (30, 60), (60, 90), (90, 100)]
    assert windows.empty()


def test_without_locks_each_makes_its_own(tmp_path, monkeypatch):
    """And the first that is ready gives it its name."""

    def no_locks(*_):
        raise OSError("no locks here")

    monkeypatch.setattr("fcntl.flock", no_locks)
    assert lists(find_pack_plan(tmp_path, ENDS, OPTIONS)) == EXPECTED


@pytest.mark.parametrize("damage", ["cut", "gone", "words"])
def test_a_damaged_plan_is_made_again(tmp_path, packed, damage):
    """Rather than read."""
    find_pack_plan(tmp_path, ENDS, OPTIONS)
    plan = next(path for path in (tmp_path / ".tdstream").iterdir() if path.is_dir())
    if damage == "cut":
        os.truncate(plan / "lengths.i4", 8)
    elif damage == "gone":
        (plan / "rows.i8").unlink()
    else:
        (plan / "plan.json").write_text(json.dumps({"rows": "many"}))
    packed.clear()
    assert lists(find_pack_plan(tmp_path, ENDS, OPTIONS)) == EXPECTED
    assert len(packed) == NUM_WINDOWS


@pytest.mark.parametrize(
    "other",
    [
        (ENDS, PackOptions(seq_len=17, documents=(0, 100), window=30)),
        (ENDS, PackOptions(seq_len=16, documents=(0, 99), window=30)),
        (ENDS, PackOptions(seq_len=16, documents=(0, 100), window=31)),
        (DocumentEnds.of(np.cumsum(LENGTHS[::-1]), ENDS.total_tokens), OPTIONS),
    ],
)
def test_other_documents_or_options_are_another_plan(tmp_path, other):
    """A plan is never taken for one of something else."""
    find_pack_plan(tmp_path, ENDS, OPTIONS)
    assert lists(find_pack_plan(tmp_path, *other)) == lists(plan_in_memory(*other)) != EXPECTED
    assert lists(find_pack_plan(tmp_path, ENDS, OPTIONS)) == EXPECTED


def test_a_plan_is_mapped_where_it_arrives(tmp_path):
    """A pickled plan is small, and one whose files have gone says so."""
    plan = find_pack_plan(tmp_path, ENDS, OPTIONS)
    sent = pickle.dumps(plan)
    assert len(sent) < 700
    assert lists(pickle.loads(sent)) == EXPECTED
    assert lists(pickle.loads(pickle.dumps(plan_in_memory(ENDS, OPTIONS)))) == EXPECTED
    arrived = pickle.loads(sent)
    for path in sorted((tmp_path / ".tdstream").rglob("*.i?")):
        path.unlink()
    with pytest.raises(Exception, match="cannot be read any more"):
        arrived.arrays()
