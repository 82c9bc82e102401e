"""The Trainer of transformers, really run: what an interrupted run trains on is what the whole run does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from trainer_runs import copy_checkpoint, make_directory, run, truth

pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate: make test-trainers")
pytestmark = pytest.mark.trainers

WHOLE = truth(0) + truth(1)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory with a corpus."""
    return make_directory(tmp_path)


def steps_of(notes: list[dict]) -> list[tuple[int, float]]:
    """Return (step, epoch) of the optimizer steps."""
    return [(note["step"], note["epoch"]) for note in notes if "step" in note]


def test_a_whole_run_and_its_resumes(directory: Path) -> None:
    """Steps in both epochs and the epoch's end resume exactly; numbers and logs are right."""
    whole = run("transformers", directory, "--evaluate")
    assert whole.batches == WHOLE
    assert [note["items"] for note in whole.notes if "items" in note] == [128.0] * 50  # 8 rows of 16 targets
    assert steps_of(whole.notes) == [(n, pytest.approx(n / 25)) for n in range(1, 51)]
    result = next(note["result"] for note in whole.notes if "result" in note)
    samples = result["train_samples_per_second"] * result["train_runtime"]
    assert samples == pytest.approx(2 * 203, rel=0.02)
    evaluations = [note["evaluation"] for note in whole.notes if "evaluation" in note]
    assert len(evaluations) == 5
    assert evaluations[0]["eval_samples_per_second"] * evaluations[0]["eval_runtime"] == pytest.approx(
        13, rel=0.1
    )
    assert "Warning" not in whole.text
    for step in (10, 25, 30):
        checkpoint = copy_checkpoint(directory, step, f"kept-{step}")
        resumed = run("transformers", directory, "--evaluate", "--resume", checkpoint)
        assert (resumed.batches, resumed.losses) == (WHOLE[step:], whole.losses[step:])
        assert steps_of(resumed.notes) == steps_of(whole.notes)[step:]
        assert "Warning" not in resumed.text
        later = [note["evaluation"]["eval_loss"] for note in resumed.notes if "evaluation" in note]
        assert later == [one["eval_loss"] for one in evaluations[step // 10 :]]


@pytest.mark.parametrize("kill", [13, 38])
def test_killed_in_an_epoch(directory: Path, kill: int) -> None:
    """SIGKILL in epoch 0 and in epoch 1; the last checkpoint resumes, with workers."""
    cut = run("transformers", directory, "--kill", kill, fails=True)
    assert cut.batches == WHOLE[:kill]
    done = kill - 1  # the step that was killed was not finished
    assert (directory / "runs" / f"checkpoint-{done}" / "trainer_state.json").exists()
    resumed = run(
        "transformers", directory, "--workers", 2, "--resume", directory / "runs" / f"checkpoint-{done}"
    )
    assert resumed.batches == WHOLE[done:]


def test_accumulation_that_does_not_divide_the_epoch(directory: Path) -> None:
    """25 batches in groups of 4 are 7 steps; a resume at step 2 and one at 9 take all 14."""
    whole = run("transformers", directory, "--accumulate", 4)
    assert whole.batches == WHOLE
    assert [step for step, _ in steps_of(whole.notes)] == [*range(1, 15)]
    assert [note["items"] for note in whole.notes if "items" in note][20:26] == [512.0] * 4 + [128.0, 512.0]
    for step, batches in ((2, 8), (7, 25), (9, 33)):
        resumed = run(
            "transformers",
            directory,
            "--accumulate",
            4,
            "--resume",
            copy_checkpoint(directory, step, f"k{step}"),
        )
        assert (resumed.batches, resumed.losses) == (WHOLE[batches:], whole.losses[batches:])
        assert steps_of(resumed.notes) == steps_of(whole.notes)[step:]


def test_two_ranks_then_one(directory: Path) -> None:
    """Two ranks resume exactly; one rank with the same global batch does, in one batch or accumulated."""
    whole = run("transformers", directory, "--batch_size", 4, "--evaluate", ranks=2)
    assert whole.batches == WHOLE
    kept = {step: copy_checkpoint(directory, step, f"k{step}") for step in (10, 30)}
    for step in (10, 30):
        resumed = run("transformers", directory, "--batch_size", 4, "--resume", kept[step], ranks=2)
        assert (resumed.batches, resumed.losses) == (WHOLE[step:], whole.losses[step:])
    one = run("transformers", directory, "--batch_size", 8, "--evaluate", "--resume", kept[30])
    assert one.batches == WHOLE[30:]
    accumulated = run("transformers", directory, "--batch_size", 4, "--accumulate", 2, "--resume", kept[30])
    halves = [batch[i : i + 4] for batch in WHOLE[30:] for i in (0, 4)]
    assert accumulated.batches == halves
    refused = run("transformers", directory, "--batch_size", 4, "--resume", kept[30], fails=True)
    assert "batch_size 4 x 2 ranks x 1 accumulated = 8" in refused.text
    assert "batch_size 4 x 1 ranks x 1 accumulated = 4" in refused.text
    assert refused.batches == []


def test_an_evaluation_of_two_ranks_is_that_of_one(directory: Path) -> None:
    """13 samples: 8 and, in the last batch, 3 and 2 with a filler; the loss is that of all 13 at once."""
    for ranks in (1, 2):
        flags = ("--batch_size", 8 // ranks, "--epochs", 1, "--evaluate", "--evaluate_first")
        done = run("transformers", directory, *flags, ranks=ranks)
        first = next(note["evaluation"]["eval_loss"] for note in done.notes if "evaluation" in note)
        expected = next(note["expected"] for note in done.notes if "expected" in note)
        assert first == pytest.approx(expected, rel=1e-5)
        shutil.rmtree(directory / "runs")


def test_a_checkpoint_without_a_state_is_refused(directory: Path) -> None:
    """One that another trainer wrote, and one that a kill left unfinished."""
    run("transformers", directory, "--epochs", 1)
    checkpoint = copy_checkpoint(directory, 10, "kept")
    path = checkpoint / "trainer_state.json"
    state = json.loads(path.read_text())
    del state["stateful_callbacks"]["TdstreamCallback"]
    path.write_text(json.dumps(state))
    refused = run("transformers", directory, "--resume", checkpoint, fails=True)
    assert "has no state of a tdstream.loader" in refused.text
    path.unlink()
    refused = run("transformers", directory, "--resume", checkpoint, fails=True)
    assert "has no trainer_state.json" in refused.text
