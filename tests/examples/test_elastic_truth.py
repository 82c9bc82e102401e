"""The elastic demo's count of samples must find whatever is missing, repeated or foreign."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import tdstream

EXAMPLES = Path(__file__).parents[2] / "examples"
SAMPLES = [f"s{number}" for number in range(14)]  # what the fixtures' corpus consists of
EPOCHS = 2
SAVE_EVERY = 2


@pytest.fixture
def elastic(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return the functions under test, which lie beside the scripts that import them."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    modules = [importlib.import_module(name) for name in ("elastic_logs", "elastic_truth", "elastic_proof")]
    return SimpleNamespace(**{name: value for module in modules for name, value in vars(module).items()})


@pytest.fixture
def make_run(elastic: SimpleNamespace) -> Callable[..., list[Any]]:
    """Return a function that makes the logs of a run whose ranks take 2 samples each per step, in order."""

    def make(ranks: int, start_step: int, places: list[tuple[int, int]]) -> list[Any]:
        """Make logs of steps whose first samples have these (epoch, position)."""
        batch = 2 * ranks
        return [
            elastic.ElasticLog(
                pid=100 + rank,
                start_step=start_step,
                epoch=places[0][0],
                position=places[0][1],
                state=f"state {start_step}",
                served=tuple(
                    elastic.Served(
                        step=step,
                        epoch=epoch,
                        position=position + batch,
                        state=f"state {step}",
                        rows=tuple(SAMPLES[position + 2 * rank :][:2]),
                    )
                    for step, (epoch, position) in enumerate(places, start=start_step + 1)
                ),
            )
            for rank in range(ranks)
        ]

    return make


@pytest.fixture
def runs(make_run: Callable[..., list[Any]]) -> list[list[Any]]:
    """Return a job of 2, 3 and 1 ranks; run 1's step 3 and run 2's step 5 are lost and trained again."""
    return [
        make_run(2, 0, [(0, 0), (0, 4), (0, 8)]),
        make_run(3, 2, [(0, 8), (1, 0), (1, 6)]),
        make_run(1, 4, [(1, 6), (1, 8), (1, 10), (1, 12)]),
    ]


def altered(runs: list[list[Any]], run: int, rank: int, index: int, **fields: Any) -> list[list[Any]]:
    """Return a job's logs with other values in one rank's record."""
    log = runs[run][rank]
    records = list(log.served)
    records[index] = dataclasses.replace(records[index], **fields)
    changed = [list(logs) for logs in runs]
    changed[run][rank] = dataclasses.replace(log, served=tuple(records))
    return changed


def moved(runs: list[list[Any]], run: int, **fields: Any) -> list[list[Any]]:
    """Return a job's logs with another start of one run, on all its ranks."""
    return [
        [dataclasses.replace(log, **fields) for log in logs] if number == run else logs
        for number, logs in enumerate(runs)
    ]


def test_every_sample_once_is_no_fault(elastic, runs):
    """A job whose lost steps were trained again, and whose epochs lack no more than a tail, is right."""
    rows = elastic.join(runs)

    assert elastic.first_fault(rows, SAMPLES, EPOCHS) is None
    assert elastic.order_fault(rows, SAMPLES, [SAMPLES] * EPOCHS) is None
    assert elastic.start_fault(runs, rows, SAVE_EVERY) is None
    assert elastic.state_fault(runs) is None


def test_lost_steps_are_replaced(elastic, runs):
    """Of a step that two runs have trained, the later one's rows count, in the order of steps and ranks."""
    rows = elastic.join(runs)

    assert [row.run for row in rows] == [1] * 8 + [2] * 12 + [3] * 8
    assert [row.sample for row in rows] == [*SAMPLES, *SAMPLES]


def test_a_run_killed_before_its_first_checkpoint_counts_for_nothing(elastic, make_run):
    """Where two runs start from the same checkpoint, only the later one's rows count."""
    runs = [
        make_run(2, 0, [(0, 0), (0, 4), (0, 8)]),
        make_run(3, 2, [(0, 8)]),
        make_run(1, 2, [(0, 8), (0, 10), (0, 12)]),
    ]

    assert [row.sample for row in elastic.join(runs)] == SAMPLES
    assert elastic.first_fault(elastic.join(runs), SAMPLES, 1) is None


def test_a_repeated_row_is_named(elastic, runs):
    """A row served a second time in its epoch is named with both steps, though batches have their size."""
    rows = elastic.join(altered(runs, 1, 2, 1, rows=("s4", "s1")))

    assert elastic.first_fault(rows, SAMPLES, EPOCHS) == (
        "epoch 1, sample 1: served at step 4 (run 2, rank 2) again, after step 4 (run 2, rank 0)"
    )


def test_a_foreign_row_is_named(elastic, runs):
    """A row that is no sample of the corpus is named with its step."""
    rows = elastic.join(altered(runs, 0, 1, 1, rows=("s6", "other")))

    assert elastic.first_fault(rows, SAMPLES, EPOCHS) == (
        "epoch 0, step 2 (run 1, rank 1): a row that is no sample of the corpus (hash other)"
    )


def test_missing_rows_are_named(elastic, runs):
    """As many missing samples as the last global batch has are more than a tail, and the first is named."""
    rows = [row for row in elastic.join(runs) if row.step != 5]

    assert elastic.first_fault(rows, SAMPLES, EPOCHS) == (
        "epoch 1, sample 6: never served, one of 2 such; only the last incomplete global "
        "batch may be left out, with fewer than 2"
    )


def test_a_tail_may_be_left_out(elastic, runs):
    """Fewer missing samples than the epoch's last global batch had are its documented tail."""
    more = [*SAMPLES, *(f"s{number}" for number in range(14, 19))]  # 5, and 6 are a batch of three ranks

    assert elastic.first_fault(elastic.join(runs)[:14], more, 1) is None
    assert elastic.first_fault(elastic.join(runs), more, EPOCHS).startswith(
        "epoch 1, sample 14: never served"
    )


def test_the_tail_is_the_end_of_the_order(elastic, runs):
    """A sample out of the uninterrupted order is found, and so is one left out before the order's end."""
    rows = elastic.join(runs)[:13]
    left_out = [*SAMPLES[:3], SAMPLES[13], *SAMPLES[3:13]]

    assert elastic.order_fault(rows, SAMPLES, [SAMPLES]) is None
    assert elastic.order_fault(rows, SAMPLES, [left_out]) == (
        "epoch 0, sample 3: served at step 1 (run 1, rank 1), uninterrupted it is sample 13"
    )


def test_an_epoch_too_few_or_too_many(elastic, runs):
    """An epoch of which nothing was served, and one that nobody asked for, are faults."""
    rows = elastic.join(runs)

    assert elastic.first_fault(rows, SAMPLES, 3).startswith("epoch 2, sample 0: never served, one of 14 such")
    assert elastic.first_fault(rows, SAMPLES, 1) == "epoch 1, step 4 (run 2, rank 0): not asked for"


def test_equal_samples_may_be_served_as_often_as_they_occur(elastic, runs):
    """Where two samples of the corpus are equal, serving both is right, and serving three times is not."""
    rows = [
        dataclasses.replace(row, sample="s0") if row.sample == "s1" else row for row in elastic.join(runs)
    ]
    twins = ["s0", "s0", *SAMPLES[2:]]

    assert elastic.first_fault(rows, twins, EPOCHS) is None
    rows[5] = dataclasses.replace(rows[5], sample="s0")
    assert elastic.first_fault(rows, twins, EPOCHS).startswith("epoch 0, sample 0: served at step 2")


def test_a_run_must_start_where_the_checkpoint_was_saved(elastic, runs):
    """Another position than what had been served by that step is a fault, though no sample shows it."""
    wrong = moved(runs, 2, position=8)

    assert elastic.start_fault(wrong, elastic.join(wrong), SAVE_EVERY) == (
        "run 3 started in epoch 1 at position 8, though 6 samples of it had been served by step 4"
    )


def test_a_run_must_start_from_the_newest_checkpoint(elastic, runs, make_run):
    """A run that begins again though a checkpoint was there is a fault; the newest step may be unsaved."""
    again = [runs[0], make_run(2, 0, [(0, 0)])]
    saving = [make_run(2, 0, [(0, 0), (0, 4)]), make_run(2, 0, [(0, 0)])]

    assert elastic.start_fault(again, elastic.join(again), SAVE_EVERY) == (
        "run 2 started at step 0, though step 2 had been saved"
    )
    assert elastic.start_fault(saving, elastic.join(saving), SAVE_EVERY) is None


def test_states_must_be_equal_on_all_ranks(elastic, runs):
    """A rank whose loader's state differs at some step, or at a start, is named."""
    later = altered(runs, 1, 1, 1, state="other")
    at_start = [[*runs[0][:1], dataclasses.replace(runs[0][1], state="other")], *runs[1:]]

    assert elastic.state_fault(later) == "run 2, step 4: the state of rank 1 differs from another rank's"
    assert elastic.state_fault(at_start) == "run 1, step 0: the state of rank 1 differs from another rank's"


def test_logs_are_read_up_to_the_kill(elastic, tmp_path):
    """Whole lines count, one that a kill cut does not, and a rank that has not begun is left out."""
    paths = [tmp_path / f"rank_{rank}.jsonl" for rank in range(3)]
    head = {"pid": 7, "start_step": 20, "epoch": 1, "position": 8, "state": "a"}
    record = {"step": 21, "epoch": 1, "position": 12, "state": "b", "rows": ["x", "y"]}
    paths[0].write_text(f'{json.dumps(head)}\n{json.dumps(record)}\n{{"step": 22, "ep')
    paths[1].write_text(json.dumps(head))

    logs = elastic.read_elastic_logs(paths)

    served = (elastic.Served(**{**record, "rows": ("x", "y")}),)
    assert logs == [elastic.ElasticLog(**head, served=served)]


def test_samples_are_read_across_shards(elastic, make_corpus, monkeypatch):
    """The truth is the shards as one stream, cut into samples, and hashed as the trainer hashes its rows."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    hash_rows = importlib.import_module("elastic_trainer").hash_rows
    for dtype in ("uint16", "uint32"):
        corpus = make_corpus(23, 19, dtype=dtype, name=dtype)
        loader = tdstream.loader(corpus, seq_len=9, batch_size=2)

        samples = elastic.hash_samples(corpus, 9)

        assert samples == [sample for batch in loader for sample in hash_rows(batch)]
        assert len(set(samples)) == 4
    ids, labels, wrong = (torch.tensor([tokens]) for tokens in [(1, 2), (2, 3), (2, 4)])
    assert hash_rows({"input_ids": ids, "labels": wrong}) != hash_rows({"input_ids": ids, "labels": labels})
