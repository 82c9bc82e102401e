"""The last worker to end is told so, and only that one."""

from __future__ import annotations

from tdstream.distributed.topology import Worker
from tdstream.distributed.worker_board import EndBoard

WORKERS = [Worker(number, 3, True) for number in range(3)]


def test_the_last_one_is_told():
    """Two of three ends are not the end; nor is one of an epoch that is read again."""
    roll = EndBoard()
    for worker in WORKERS:
        roll.begin(worker)
    assert [roll.ends(worker, 4) for worker in WORKERS] == [False, False, True]
    for worker in WORKERS:
        roll.begin(worker)
    assert [roll.ends(worker, 4) for worker in WORKERS] == [False, False, True]
