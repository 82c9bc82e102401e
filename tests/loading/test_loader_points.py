"""tdstream.loader can be saved, loaded, left and broken at any place, with and without workers."""

from __future__ import annotations

import copy
import gc
import itertools
import json
import multiprocessing
import os
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from loader_cluster import Cluster, as_bytes, cluster, make_loader, through_file
from loader_truth import NUM_SAMPLES, Geometry, Ids, ids_of, loop, rest, take, write_counting_corpus

import tdstream
from helpers_processes import kill_worker

B = 12
LENGTH = NUM_SAMPLES // B  # 23 batches of 12, and a sample that is left over
ALL = [
    Geometry(1, 0, B),
    *(Geometry(1, workers, B, keep) for workers in (1, 2, 3) for keep in (False, True)),
]
SETUPS = [ALL[0], ALL[1], ALL[3], ALL[6]]  # none, one, two, and three that live on
FEW = [Geometry(1, 0, B), Geometry(1, 2, B), Geometry(1, 2, B, True)]
every_setup = pytest.mark.parametrize("setup", SETUPS, ids=str)
few_setups = pytest.mark.parametrize("setup", FEW, ids=str)


def truth(epoch: int) -> list[Ids]:
    """Return an epoch's batches."""
    return rest(B, epoch)


def saved_at(corpus: Path, epoch: int, count: int, setup: Geometry = SETUPS[0]) -> dict[str, Any]:
    """Return the state of a fresh loader after some batches of an epoch; len(loader) + 1 pulls the end."""
    loader = make_loader(corpus, setup)
    loader.set_epoch(epoch)
    for _ in itertools.islice(loader, count):
        pass
    return through_file(loader.state_dict())


def loaded(corpus: Path, setup: Geometry, state: dict[str, Any]) -> tdstream.Loader:
    """Return a fresh loader with a state."""
    loader = make_loader(corpus, setup)
    loader.load_state_dict(state)
    return loader


@every_setup
def test_the_last_batch_ends_the_epoch(setup: Geometry, counting: Path) -> None:
    """A state of the last batch, StopIteration not pulled, must go on with the next epoch."""
    state = saved_at(counting, 0, LENGTH, setup)
    assert (state["epoch"], state["position"]) == (0, LENGTH * B)
    resumed = loaded(counting, setup, state)
    assert [loop(resumed), loop(resumed)] == [truth(1), truth(2)]


@every_setup
@pytest.mark.parametrize("count", [LENGTH, LENGTH + 1])
def test_a_finished_epoch_that_is_asked_for_has_an_empty_rest(
    setup: Geometry, count: int, counting: Path
) -> None:
    """A trainer that names the finished epoch counts on its rest, which is empty; then the next one comes."""
    resumed = loaded(counting, setup, saved_at(counting, 5, count))
    resumed.set_epoch(5)
    assert (len(resumed), loop(resumed)) == (LENGTH, [])
    resumed.set_epoch(6)
    assert loop(resumed) == truth(6)
    again = loaded(counting, setup, saved_at(counting, 5, count))
    again.set_epoch(5)
    assert [loop(again), loop(again)] == [[], truth(6)]


@pytest.mark.parametrize(("epoch", "count"), [(0, 7), (1, 10), (1, LENGTH), (1, LENGTH + 1)])
def test_a_state_goes_on_in_every_setup(epoch: int, count: int, counting: Path) -> None:
    """What is saved in any setup must be the same bytes, and go on exactly in any other."""
    states = [saved_at(counting, epoch, count, setup) for setup in ALL]
    assert len({as_bytes(state) for state in states}) == 1
    expected = [truth(epoch)[count:], truth(epoch + 1), truth(epoch + 2)]
    for setup in ALL:
        resumed = loaded(counting, setup, states[0])
        found = [loop(resumed) for _ in range(3)]
        assert found == (expected if count < LENGTH else [*expected[1:], truth(epoch + 3)])


@every_setup
def test_asking_for_the_state_starts_nothing(setup: Geometry, counting: Path) -> None:
    """state_dict() before set_epoch must start no worker, and must not fix the epoch of the first loop."""
    children = set(multiprocessing.active_children())
    loader = make_loader(counting, setup)
    loader.state_dict()
    loader.set_epoch(4)
    state = loader.state_dict()
    assert set(multiprocessing.active_children()) <= children
    assert (state["epoch"], state["position"]) == (4, 0)
    assert loop(loader) == truth(4)


@few_setups
def test_the_state_costs_nothing(setup: Geometry, counting: Path) -> None:
    """state_dict() must take less than a millisecond, the median of many calls in a running loop."""
    loader = make_loader(counting, setup)
    seconds = []
    for _ in itertools.islice(loader, 20):
        begun = time.perf_counter()
        loader.state_dict()
        seconds.append(time.perf_counter() - begun)
    assert statistics.median(seconds) < 1e-3


@every_setup
def test_iterators_that_are_not_used_move_nothing(setup: Geometry, counting: Path) -> None:
    """After a load, two iter() and a state between them must leave the place where it is."""
    loader = loaded(counting, setup, saved_at(counting, 0, 8))
    iter(loader)
    assert loader.state_dict()["position"] == 8 * B
    iter(loader)
    assert loop(loader) == truth(0)[8:]


@every_setup
def test_an_overtaken_iterator_raises(setup: Geometry, counting: Path) -> None:
    """An iterator must not go on when a state was loaded, or a newer one made, and nothing move."""
    state = saved_at(counting, 0, 8)
    loader = make_loader(counting, setup)
    iterator = iter(loader)
    take(iterator, 3)
    loader.load_state_dict(state)
    for _ in range(2):
        with pytest.raises(tdstream.StaleIteratorError, match="stale iterator"):
            next(iterator)
    assert through_file(loader.state_dict()) == state
    older, newer = iter(loader), iter(loader)
    assert take(newer, 1) == truth(0)[8:9]
    with pytest.raises(RuntimeError, match="stale iterator"):
        next(older)
    assert take(newer, LENGTH - 9) == truth(0)[9:]
    assert next(newer, None) is None


@few_setups
def test_states_are_nobodys_but_their_owners(setup: Geometry, counting: Path) -> None:
    """A saved state must not move with the loader, nor a loaded one with the loader that took it."""
    loader = make_loader(counting, setup)
    iterator = iter(loader)
    take(iterator, 2)
    loader.skip(1)
    saved = loader.state_dict()
    kept = copy.deepcopy(saved)
    take(iterator, 3)
    loader.skip(2)
    take(iterator, 2)
    assert saved == kept
    resumed = loaded(counting, setup, saved)
    resumed.skip(1)
    loop(resumed)
    assert saved == kept
    saved["nodes"]["splitter"]["history"].append("mine")
    saved["nodes"]["source"]["dtype"] = "mine"
    assert "mine" not in json.dumps(resumed.state_dict())


def test_ranks_save_the_same_bytes(counting: Path) -> None:
    """At the same step, ranks with any workers must have byte-equal states."""
    ranks = Cluster(counting, Geometry(4, 0, 4))
    ranks.loaders[1] = make_loader(counting, Geometry(4, 2, 4), 1)
    ranks.loaders[3] = make_loader(counting, Geometry(4, 1, 4, True), 3)
    ranks.open()
    for _ in range(5):
        ranks.step()
        ranks.state()  # compares them
    ranks.close()


@every_setup
def test_a_trainer_that_counts_batches_gets_whole_epochs(setup: Geometry, counting: Path) -> None:
    """Three epochs of len(loader) batches each, StopIteration never pulled, must be epochs 0, 1, 2."""
    loader = make_loader(counting, setup)
    assert [take(iter(loader), len(loader)) for _ in range(3)] == [truth(0), truth(1), truth(2)]


@every_setup
@pytest.mark.parametrize("left", [6, 3, 1])
def test_a_break_near_the_end_begins_the_epoch_again(setup: Geometry, left: int, counting: Path) -> None:
    """However far workers have prefetched, a loop that was left must be begun again, or the chosen epoch."""
    loader = make_loader(counting, setup)
    for _ in itertools.islice(loader, LENGTH - left):
        pass
    assert loop(loader) == truth(0)
    for _ in itertools.islice(loader, LENGTH - left):
        pass
    loader.set_epoch(4)
    assert [loop(loader), loop(loader)] == [truth(4), truth(5)]


@every_setup
def test_set_epoch_is_obeyed(setup: Geometry, counting: Path) -> None:
    """Epochs 0, 5, 9 must be served as asked, and then 10; workers that live on must live on."""
    before = set(multiprocessing.active_children())
    loader = make_loader(counting, setup)
    pids = []
    for epoch in (0, 5, 9):
        loader.set_epoch(epoch)
        iterator = iter(loader)
        found = take(iterator, 1)
        pids.append({child.pid for child in set(multiprocessing.active_children()) - before})
        found += loop(iterator)
        assert found == truth(epoch)
    assert loop(loader) == truth(10)
    if setup.persistent:
        assert pids[0] == pids[1] == pids[2]


@few_setups
def test_set_epoch_after_a_load(setup: Geometry, counting: Path) -> None:
    """The epoch of the state must keep its place; another one begins at its start."""
    state = saved_at(counting, 5, 6)
    kept = loaded(counting, setup, state)
    kept.set_epoch(5)
    assert [loop(kept), loop(kept)] == [truth(5)[6:], truth(6)]
    for epoch in (0, 6):
        other = loaded(counting, setup, state)
        other.set_epoch(epoch)
        assert [loop(other), loop(other)] == [truth(epoch), truth(epoch + 1)]


@few_setups
def test_set_epoch_in_a_running_loop_is_for_the_next_one(setup: Geometry, counting: Path) -> None:
    """A loop must go on with its epoch, also behind batches left out, whatever was chosen meanwhile."""
    loader = make_loader(counting, setup)
    iterator = iter(loader)
    take(iterator, 2)
    loader.set_epoch(3)
    assert take(iterator, 2) == truth(0)[2:4]
    loader.skip(2)
    assert loop(iterator) == truth(0)[6:]
    assert [loop(loader), loop(loader)] == [truth(3), truth(4)]


@few_setups
@pytest.mark.parametrize("epoch", [0.0, -1, True, "1", None])
def test_an_epoch_is_a_whole_number(setup: Geometry, epoch: Any, counting: Path) -> None:
    """Anything but an integer of at least 0 must be refused, and change nothing."""
    loader = make_loader(counting, setup)
    before = loader.state_dict()
    with pytest.raises(tdstream.ConfigError, match="epoch must be an integer of at least 0"):
        loader.set_epoch(epoch)
    assert loader.state_dict() == before


@few_setups
def test_a_chain_of_reloads_changes_nothing(setup: Geometry, counting: Path) -> None:
    """Loading and saving without a step must give the bytes that were loaded, three times over."""
    state = saved_at(counting, 1, 9, setup)
    for _ in range(3):
        again = through_file(loaded(counting, setup, state).state_dict())
        assert as_bytes(again) == as_bytes(state)
        state = again
    assert loop(loaded(counting, setup, state)) == truth(1)[9:]


@every_setup
def test_a_run_can_be_rolled_back_twice(setup: Geometry, counting: Path) -> None:
    """The last of two loads must win, in a used loader, mid-epoch or behind an epoch; twice the same rest."""
    loader = make_loader(counting, setup)
    for _ in range(2):
        take(iter(loader), 5)
        loader.load_state_dict(saved_at(counting, 2, 3))
        loader.load_state_dict(saved_at(counting, 1, 7))
        assert [loop(loader), loop(loader)] == [truth(1)[7:], truth(2)]


@pytest.mark.parametrize("batch_size", [277, 138, 92])
@pytest.mark.parametrize("setup", [Geometry(), Geometry(1, 3), Geometry(1, 3, persistent=True)], ids=str)
def test_epochs_of_one_two_or_three_batches(setup: Geometry, batch_size: int, counting: Path) -> None:
    """Epochs shorter than the row of workers must be served in order, and go on after a resume."""
    setup = Geometry(1, setup.workers, batch_size, setup.persistent)
    loader = make_loader(counting, setup)
    assert [loop(loader), loop(loader)] == [rest(batch_size, 0), rest(batch_size, 1)]
    resumed = loaded(counting, setup, through_file(loader.state_dict()))
    assert [loop(resumed), loop(resumed)] == [rest(batch_size, 2), rest(batch_size, 3)]


@pytest.mark.parametrize("setup", [Geometry(1, 0, 8), Geometry(1, 2, 8), Geometry(1, 2, 8, True)], ids=str)
def test_a_batch_that_could_not_be_read_is_read_again(setup: Geometry, tmp_path: Path) -> None:
    """After an error of its third batch a loader must go on with that batch, here and after a resume."""
    own = write_counting_corpus(tmp_path / "corpus", (64, 64))
    options = {"shuffle": False} | ({"prefetch_factor": 1} if setup.workers else {})
    loader = make_loader(own, setup, **options)
    shard, aside = own / "chunk_000001.bin", own / "aside"
    shard.rename(aside)
    iterator, truth_here = iter(loader), rest(8, 0, order="sequential", num_samples=32)
    assert take(iterator, 2) == truth_here[:2]
    with pytest.raises(tdstream.CorpusError, match=r"chunk_000001\.bin cannot be read any more"):
        next(iterator)
    state = through_file(loader.state_dict())
    assert state["position"] == 16
    with pytest.raises(tdstream.StaleIteratorError, match="it failed"):
        next(iterator)
    aside.rename(shard)
    resumed = make_loader(own, setup, **options)
    resumed.load_state_dict(state)
    assert loop(resumed) == truth_here[2:]
    assert [loop(loader), loop(loader)] == [truth_here[2:], truth_here]


def test_a_pass_that_could_not_be_opened_is_opened_again(
    counting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where workers could not be started, a loaded place must still be there for the next attempt."""
    resumed = loaded(counting, Geometry(1, 2, B), saved_at(counting, 1, 7))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", _no_more_processes)
        with pytest.raises(BlockingIOError, match="no more processes"):
            next(iter(resumed))
    assert resumed.state_dict()["position"] == 7 * B
    assert loop(resumed) == truth(1)[7:]


def _no_more_processes() -> int:
    raise BlockingIOError("no more processes")


@pytest.mark.parametrize("persistent", [False, True])
def test_a_killed_worker_is_an_error_and_no_loss(persistent: bool, counting: Path) -> None:
    """SIGKILL of a worker must end in a RuntimeError soon; the state is right, and both ways on are exact."""
    setup = Geometry(1, 2, B, persistent)
    before = set(multiprocessing.active_children())
    loader = make_loader(counting, setup)
    iterator = iter(loader)
    found = take(iterator, 4)
    worker = (set(multiprocessing.active_children()) - before).pop()
    kill_worker(worker.pid)
    begun = time.monotonic()
    with pytest.raises(RuntimeError, match="worker"):
        found.extend(map(ids_of, iterator))  # keeps those before the error
    assert time.monotonic() - begun < 10  # of which a loaded machine may need most
    state = through_file(loader.state_dict())
    assert found == truth(0)[: len(found)]
    assert state["position"] == len(found) * B
    assert loop(loaded(counting, setup, state)) == truth(0)[len(found) :]
    assert [loop(loader), loop(loader)] == [truth(0)[len(found) :], truth(1)]


@pytest.mark.parametrize("persistent", [False, True])
def test_a_killed_worker_is_forgotten_with_its_error(persistent: bool, counting: Path) -> None:
    """While torch knows a dead worker, the end of any child raises an error anywhere in the program."""
    loader = make_loader(counting, Geometry(1, 2, B, persistent))
    before = set(multiprocessing.active_children())
    iterator = iter(loader)
    next(iterator)
    worker = (set(multiprocessing.active_children()) - before).pop()
    kill_worker(worker.pid)
    with pytest.raises(RuntimeError, match="worker") as caught:
        list(iterator)
    assert subprocess.run(["true"], check=True).returncode == 0  # its end is a signal to this process
    assert caught.tb is not None  # which keeps the iterator alive
    assert set(multiprocessing.active_children()) == before


def test_twenty_epochs_and_reloads_leave_nothing_behind(counting: Path) -> None:
    """Memory, file descriptors and children must not be more after 20 epochs and 20 reloads."""

    def usage() -> tuple[int, int, int]:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * 4096, len(os.listdir("/proc/self/fd")), len(multiprocessing.active_children())

    def work(times: int) -> None:
        loader = make_loader(counting, Geometry(1, 1, 92))
        for _ in range(times):
            assert len(loop(loader)) == 3
            state = loader.state_dict()
            assert loop(loader)[0] == rest(92, loader.epoch)[0]
            loader.load_state_dict(state)
            take(iter(loader), 1)

    work(3)
    before = usage()
    work(10)
    after = usage()
    assert after[0] - before[0] < 8e6
    assert after[1] <= before[1] + 1  # 40 passes: what leaks would show tenfold
    assert after[2] <= before[2]  # a worker of the test before may still have been ending


def test_ranks_may_be_many(counting: Path) -> None:
    """A world in which each rank has a batch of one must serve an epoch of one global batch."""
    with cluster(counting, Geometry(277, 0, 1)) as ranks:
        assert ranks.each("len") == 1
        assert ranks.loop() == rest(277, 0)
        state = ranks.state()
    assert loop(loaded(counting, Geometry(1, 0, B), state)) == truth(1)
