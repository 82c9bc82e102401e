"""SharedEpoch: the next pass's epoch, in this process and in workers however they are started."""

from __future__ import annotations

import copy
import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch.multiprocessing as mp
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream
from tdstream.core.errors import ConfigError
from tdstream.distributed.shared_epoch import Pass, SharedEpoch


def serve(clock: SharedEpoch) -> int:
    """Open a pass, run it to its end, return its epoch."""
    opened = clock.open(in_worker=False)
    clock.close(opened)
    return opened.epoch


def test_epochs_count_themselves():
    """0, 1, 2, ..."""
    clock = SharedEpoch()
    assert [serve(clock) for _ in range(3)] == [0, 1, 2]


def test_a_pass_left_early_is_begun_again():
    """Only a pass that has run to its end moves the clock."""
    clock = SharedEpoch()
    clock.open(in_worker=False)
    assert clock.open(in_worker=False).epoch == 0


def test_set_epoch_chooses_and_counting_goes_on_from_there():
    """0, 5, 6, 9; a chosen pass that is left early is begun again, too."""
    clock = SharedEpoch()
    assert serve(clock) == 0
    clock.set_epoch(5)
    assert clock.open(in_worker=False).epoch == 5
    assert [serve(clock), serve(clock)] == [5, 6]
    clock.set_epoch(9)
    assert serve(clock) == 9


def test_an_abandoned_pass_does_not_swallow_the_next_choice():
    """Its last batch may be produced, by a worker that looks ahead, after the next epoch was chosen."""
    clock = SharedEpoch()
    abandoned = clock.open(in_worker=False)
    clock.set_epoch(4)
    clock.close(abandoned)
    assert [serve(clock), serve(clock)] == [4, 5]


def test_a_checkpoint_overrules_an_earlier_choice():
    """But not a later one."""
    clock = SharedEpoch()
    clock.set_epoch(0)
    clock.restore(5)
    assert clock.epoch == 5
    clock.set_epoch(2)
    assert clock.epoch == 2


@pytest.mark.parametrize("epoch", [-1, 1.0, "3", None, True])
def test_an_epoch_is_a_whole_number(epoch):
    """Of at least 0."""
    with pytest.raises(ConfigError, match="epoch must be an integer of at least 0, got"):
        SharedEpoch().set_epoch(epoch)


def test_a_copy_is_a_clock_of_its_own():
    """copy.deepcopy and pickle do not tie two datasets together, and the copy is in shared memory again."""
    clock = SharedEpoch()
    clock.set_epoch(3)
    for copied in (copy.deepcopy(clock), pickle.loads(pickle.dumps(clock))):
        copied.set_epoch(7)
        assert (clock.epoch, copied.epoch) == (3, 7)
        assert copied._cells.is_shared()


def _look(clock: SharedEpoch, started, go, answers) -> None:
    started.set()
    go.wait()
    first, second = clock.open(in_worker=True), clock.open(in_worker=True)
    answers.put((first.epoch, second.epoch))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_workers_first_pass_is_the_one_it_was_started_for(method):
    """A sibling may have ended the epoch before this worker looks; its second pass is live."""
    context = mp.get_context(method)
    clock, started, go, answers = SharedEpoch(), context.Event(), context.Event(), context.SimpleQueue()
    worker = context.Process(target=_look, args=(clock, started, go, answers))
    worker.start()
    started.wait()
    serve(clock)
    go.set()
    assert answers.get() == (0, 1)
    worker.join()


def make_siblings(clock: SharedEpoch, count: int) -> list[SharedEpoch]:
    """Return copies that share cells, as persistent workers have them."""
    siblings = [SharedEpoch() for _ in range(count)]
    for one in siblings:
        one._cells = clock._cells
    return siblings


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_workers_that_live_on_open_one_epoch_together(order):
    """A sibling that ends an abandoned pass between the two openings of the next one mixes no epochs."""
    workers = make_siblings(SharedEpoch(), 2)
    seed = 77
    abandoned = [worker.open_together(number, seed) for number, worker in enumerate(workers)]
    assert [opened.epoch for opened in abandoned] == [0, 0]
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(workers[order[0]].open_together, order[0], seed)
        time.sleep(0.05)
        workers[1].close(abandoned[1])  # the last prefetched item of the abandoned pass
        second = pool.submit(workers[order[1]].open_together, order[1], seed)
        found = {order[0]: first.result(timeout=10), order[1]: second.result(timeout=10)}
    assert found[0] == found[1]
    assert found[0].epoch == order[0]  # what worker 0 saw


@pytest.mark.parametrize("seed", [1, 2])
def test_new_workers_do_not_take_the_word_of_earlier_ones(seed):
    """Their passes are counted anew, under another seed, or under the same one that a state restored."""
    earlier, later = make_siblings(SharedEpoch(), 2), make_siblings(SharedEpoch(), 2)
    for one in later:
        one._cells = earlier[0]._cells
    for _ in range(2):
        passes = [worker.open_together(number, 1) for number, worker in enumerate(earlier)]
        earlier[1].close(passes[1])
    assert [worker.open_together(number, seed).epoch for number, worker in enumerate(later)] == [2, 2]
    later[0].close(Pass(2, 0))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(later[1].open_together, 1, seed)
        time.sleep(0.05)
        assert not waiting.done()
        assert later[0].open_together(0, seed).epoch == 3
        assert waiting.result(timeout=10).epoch == 3


def test_a_loader_opened_twice_over_a_short_epoch(make_corpus):
    """As tqdm.auto opens it: each pass has every sample of one epoch, whatever was prefetched."""
    pipe = tdstream.build(make_corpus(17 * 5), seq_len=4, batch_size=4, shuffle=True, strict=False)
    loader = StatefulDataLoader(pipe, batch_size=None, num_workers=2, persistent_workers=True)
    for _ in range(6):
        abandoned = iter(loader)
        rows = [row for batch in loader for row in batch["input_ids"][:, 0].tolist()]
        assert len(rows) == len(set(rows)) == 16
        del abandoned


def test_a_sibling_may_lag_behind():
    """A loader that is opened again and again does not wait until all workers have opened each pass."""
    workers = make_siblings(SharedEpoch(), 2)
    for number, worker in enumerate(workers):
        worker.open_together(number, 5)
    passes = []
    for epoch in (4, 7, 9):
        workers[0].set_epoch(epoch)
        passes.append(workers[0].open_together(0, 5))
    begun = time.monotonic()
    assert [workers[1].open_together(1, 5) for _ in passes] == passes
    assert [opened.epoch for opened in passes] == [4, 7, 9]
    assert time.monotonic() - begun < 10
