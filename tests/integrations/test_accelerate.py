"""accelerate over a loader, really run: prepare, save_state and load_state are all that it needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainer_runs import make_directory, run, truth

pytest.importorskip("accelerate", reason="accelerate is not installed: make test-trainers")
pytestmark = pytest.mark.trainers

WHOLE = truth(0) + truth(1)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory with a corpus."""
    return make_directory(tmp_path)


@pytest.mark.parametrize("ranks", [1, 2])
def test_it_resumes_in_both_epochs(directory: Path, ranks: int) -> None:
    """From 10 and 30 batches, on one rank and two; two ranks' checkpoints on one rank, with workers."""
    whole = run("accelerate", directory, "--batch_size", 8 // ranks, ranks=ranks)
    assert whole.batches == WHOLE
    for step in (10, 30):
        checkpoint = directory / "runs" / f"checkpoint-{step}"
        resumed = run(
            "accelerate", directory, "--batch_size", 8 // ranks, "--resume", checkpoint, ranks=ranks
        )
        assert (resumed.batches, resumed.losses) == (WHOLE[step:], whole.losses[step:])
        if ranks == 2:
            alone = run("accelerate", directory, "--resume", checkpoint, "--workers", 2)
            assert alone.batches == WHOLE[step:]


def test_it_steps_at_the_end_of_an_epoch(directory: Path) -> None:
    """25 batches in groups of 4: the last one steps alone, after 25 and 50 batches; also in a killed run."""
    whole = run("accelerate", directory, "--accumulate", 4)
    assert [note["step"] for note in whole.notes] == [4, 8, 12, 16, 20, 24, 25, 29, 33, 37, 41, 45, 49, 50]
    killed = run("accelerate", directory, "--kill", 38, fails=True)
    assert killed.batches == WHOLE[:38]
    resumed = run("accelerate", directory, "--resume", directory / "runs" / "checkpoint-30")
    assert resumed.batches == WHOLE[30:]
