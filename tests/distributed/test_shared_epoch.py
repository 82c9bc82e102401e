"""EpochClock: the next pass's epoch, in this process and in workers however they are started."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch.multiprocessing as mp

from tdstream.core.errors import ConfigError
from tdstream.distributed.shared_epoch import SharedEpoch


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
