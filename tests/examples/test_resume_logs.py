"""The comparison of the resume demo must find whatever differs, or its verdict is worth nothing."""

from __future__ import annotations

import dataclasses
import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def resume_logs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module under test, which lies beside the scripts that import it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("resume_logs")


@pytest.fixture
def make_logs(resume_logs: ModuleType) -> Any:
    """Return a function that makes both ranks' logs of steps first .. last, of 3 steps per epoch."""

    def make(first: int, last: int) -> list[Any]:
        return [
            resume_logs.RankLog(
                pid=100 + rank,
                start_step=first - 1,
                batches_per_epoch=3,
                trained=tuple(
                    resume_logs.Trained(
                        step=step, epoch=(step - 1) // 3, batch=f"{rank}-{step}", loss=1 / step + rank
                    )
                    for step in range(first, last + 1)
                ),
            )
            for rank in range(2)
        ]

    return make


def altered(log: Any, index: int, **fields: Any) -> Any:
    """Return a log with other values in one of its records."""
    records = list(log.trained)
    records[index] = dataclasses.replace(records[index], **fields)
    return dataclasses.replace(log, trained=tuple(records))


def test_equal_jobs_have_no_difference(resume_logs, make_logs):
    """Runs that overlap and agree with the uninterrupted one everywhere are equal to it."""
    runs = [make_logs(1, 4), make_logs(3, 4), make_logs(4, 6)]

    assert resume_logs.first_difference(make_logs(1, 6), runs) is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"batch": "1-6"}, "batch is '1-6', uninterrupted it is '1-5'"),
        ({"epoch": 2}, "epoch is 2, uninterrupted it is 1"),
        ({"loss": 1.2000000000000002}, "loss is 1.2000000000000002, uninterrupted it is 1.2"),
    ],
)
def test_one_altered_value_is_named(resume_logs, make_logs, fields, words):
    """One other hash, epoch or last bit of a loss is found, and named with rank, step and run."""
    runs = [make_logs(1, 4), make_logs(4, 6)]
    runs[1][1] = altered(runs[1][1], 1, **fields)

    found = resume_logs.first_difference(make_logs(1, 6), runs)

    assert found == f"rank 1, step 5, run 2: {words}"


def test_a_replayed_step_must_agree(resume_logs, make_logs):
    """A step that was lost and trained again is compared both times."""
    runs = [make_logs(1, 4), make_logs(3, 6)]
    runs[0][0] = altered(runs[0][0], 3, batch="other")  # step 4, before the kill

    found = resume_logs.first_difference(make_logs(1, 6), runs)

    assert found == "rank 0, step 4, run 1: batch is 'other', uninterrupted it is '0-4'"


def test_the_earliest_difference_comes_first(resume_logs, make_logs):
    """Of several differences the one of the lowest step is named, on whichever rank."""
    runs = [make_logs(1, 6)]
    runs[0][0] = altered(runs[0][0], 4, batch="late")
    runs[0][1] = altered(runs[0][1], 1, batch="early")

    assert resume_logs.first_difference(make_logs(1, 6), runs).startswith("rank 1, step 2, run 1")


def test_a_step_that_nobody_trained_is_missing(resume_logs, make_logs):
    """A restart beyond the last trained step leaves a hole, and a job that ends early leaves a tail."""
    whole = make_logs(1, 6)

    hole = resume_logs.first_difference(whole, [make_logs(1, 2), make_logs(4, 6)])
    tail = resume_logs.first_difference(whole, [make_logs(1, 5)])

    assert hole == "rank 0, step 3: no run has trained it"
    assert tail == "rank 0, step 6: no run has trained it"


def test_a_step_too_many_is_a_difference(resume_logs, make_logs):
    """A step beyond the end of the uninterrupted run, or out of turn, is no step of this job."""
    whole, skipping = make_logs(1, 6), make_logs(1, 6)
    skipping[0] = altered(skipping[0], 2, step=4)

    beyond = resume_logs.first_difference(whole, [make_logs(1, 7)])
    out_of_turn = resume_logs.first_difference(whole, [skipping])

    assert beyond == "rank 0, step 7, run 1: the uninterrupted run has no such step"
    assert out_of_turn == "rank 0, step 3, run 1: the log continues with step 4"


def test_an_uninterrupted_job_can_be_at_fault(resume_logs, make_logs):
    """Epochs of the wrong length, and a batch given twice in an epoch, are faults; twice in a run is none."""
    doubled, again = make_logs(1, 6), make_logs(1, 6)
    doubled[1] = altered(doubled[1], 1, batch="0-3")
    again[1] = altered(again[1], 4, batch="0-3")  # another epoch

    assert resume_logs.first_fault(make_logs(1, 6), epochs=2) is None
    assert resume_logs.first_fault(again, epochs=2) is None
    assert resume_logs.first_fault(make_logs(1, 5), epochs=2) == "rank 0 has 5 batches, not 2 x 3"
    assert resume_logs.first_fault(doubled, epochs=2) == (
        "rank 1, step 2: the same batch as rank 0, step 3, in one epoch"
    )


def test_a_line_cut_by_a_kill_is_left_out(resume_logs, tmp_path):
    """Only whole lines of a log count; a log without a first whole line has not begun."""
    path = tmp_path / "rank_0.jsonl"
    head = {"pid": 7, "start_step": 20, "batches_per_epoch": 3}
    record = {"step": 21, "epoch": 6, "batch": "ab", "loss": 0.1}

    assert resume_logs.read_log(path) is None
    path.write_text(json.dumps(head))
    assert resume_logs.read_log(path) is None
    path.write_text(f'{json.dumps(head)}\n{json.dumps(record)}\n{{"step": 22, "ep')

    log = resume_logs.read_log(path)
    assert (log.pid, log.start_step) == (7, 20)
    assert log.trained == (resume_logs.Trained(**record),)
    assert resume_logs.newest_step(path) == 21
