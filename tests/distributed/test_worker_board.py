"""WorkerBoard: the last worker to end an epoch is told so, and progress is that of the newest epoch."""

from __future__ import annotations

import pickle

from tdstream.distributed.topology import Worker
from tdstream.distributed.worker_board import WorkerBoard

WORKERS = [Worker(number, 3, True) for number in range(3)]


def test_the_last_one_is_told():
    """Two of three ends are not the end; nor is one of an epoch that is read again."""
    board = WorkerBoard()
    for worker in WORKERS:
        board.begin(worker)
    assert [board.end(worker, 4) for worker in WORKERS] == [False, False, True]
    for worker in WORKERS:
        board.begin(worker)
    assert [board.end(worker, 4) for worker in WORKERS] == [False, False, True]


def test_progress_is_that_of_the_newest_epoch():
    """None before all workers have noted some; then the rows of the newest epoch; a copy begins with none."""
    board = WorkerBoard()
    for worker in WORKERS:
        assert board.read_progress() == []
        board.note_progress(worker, {"epoch": 1, "read": 10 + worker.id, "served": 5, "cut": 6})
    assert [row["read"] for row in board.read_progress()] == [10, 11, 12]
    board.note_progress(WORKERS[1], {"epoch": 2, "read": 3, "served": 1, "cut": 2})
    assert board.read_progress() == [{"read": 3, "served": 1, "cut": 2}]
    assert pickle.loads(pickle.dumps(board)).read_progress() == []


def test_progress_and_ends_do_not_disturb_each_other():
    """Forgetting progress keeps the ends; an end keeps the progress."""
    board = WorkerBoard()
    alone = Worker(0, 1, True)
    board.begin(alone)
    board.note_progress(alone, {"epoch": 0, "read": 3, "served": 1, "cut": 2})
    assert board.end(WORKERS[0], 0) is False
    assert board.read_progress() == [{"read": 3, "served": 1, "cut": 2}]
    board.forget_progress()
    assert [board.end(worker, 0) for worker in WORKERS[1:]] == [False, True]
