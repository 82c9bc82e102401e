"""Killed workers, trainers and jobs end quickly, leave nothing behind, and cost no batch."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from resume_loaders import (
    HERE,
    Setup,
    child_env,
    loaded,
    make_dataset,
    make_loader,
    name_of,
    one_pass,
    take,
    through_file,
)
from resume_processes import Process, descendants, is_alive, marked, stat_of, wait_until
from resume_trainer import DATA as JOB_DATA
from resume_trainer import EPOCHS
from resume_truth import MODES, flat, truth

BATCH = dataclasses.replace(MODES["batch"], batch_size=1)  # 45 batches, more than are prefetched


@pytest.mark.parametrize("setup", [Setup(2), Setup(3, True), Setup(2, True, 5, 4)], ids=name_of)
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_worker_is_an_error_at_once(setup: Setup, victim: int, corpus: Path) -> None:
    """The loop must fail within seconds, the state still be right, and a fresh loader go on exactly."""
    loader = make_loader(corpus, BATCH, setup)
    iterator = iter(loader)
    taken = take(iterator, 4, BATCH)
    children = [worker.pid for worker in loader._iterator._workers]
    begun = time.monotonic()
    with pytest.raises(RuntimeError, match=r"DataLoader worker .* is killed by signal|exited unexpectedly"):
        kill_and_go_on(children[victim], iterator, taken)
    assert time.monotonic() - begun < 8
    state = through_file(loader.state_dict())
    del iterator, loader
    gc.collect()
    resumed = loaded(corpus, BATCH, setup, state)
    rest, whole = one_pass(resumed, BATCH), truth(BATCH, 0)
    # torch raises out of a signal handler, maybe when a batch has been counted and has not arrived here yet.
    in_hand = whole[len(taken) : len(taken) + 1] if len(taken) + len(rest) < len(whole) else []
    assert taken + in_hand + rest == whole
    assert not any(stat_of(pid) for pid in children)


def kill_and_go_on(pid: int, iterator: Any, taken: list[Any]) -> None:
    """Kill a worker and take what had been prefetched, until the loader notices."""
    os.kill(pid, signal.SIGKILL)
    while True:
        taken.append(take(iterator, 1, BATCH)[0])


# Of a trainer with persistent workers: how they are started, the signal, and whether the workers are
# blocked on a full pipe ("busy") or wait for work.
KILLS = [
    ("fork", signal.SIGKILL, True),
    ("fork", signal.SIGKILL, False),
    ("fork", signal.SIGTERM, True),
    ("fork", signal.SIGTERM, False),
    ("spawn", signal.SIGKILL, True),
    ("forkserver", signal.SIGKILL, False),
    ("forkserver", signal.SIGTERM, True),
]
OTHER_KILLS = [
    ("spawn", signal.SIGKILL, False),
    ("spawn", signal.SIGTERM, True),
    ("spawn", signal.SIGTERM, False),
    ("forkserver", signal.SIGKILL, True),
    ("forkserver", signal.SIGTERM, False),
]


def orphans_of(kills: list[tuple[str, signal.Signals, bool]], corpus: Path, out: Path) -> dict[str, int]:
    """Kill one trainer of each kind; return how many processes of each stay."""
    kinds = json.dumps([[method, busy] for method, _, busy in kills])
    command = [sys.executable, str(HERE / "resume_processes.py"), str(corpus), str(out), kinds]
    files = [out / f"trainer{number}" for number in range(len(kills))]
    left: dict[str, int] = {}
    families: set[Process] = set()
    with subprocess.Popen(command, env=child_env()) as nursery:
        try:
            assert wait_until(lambda: all(file.exists() for file in files), 90), "a trainer did not start"
            for file, (method, sent, busy) in zip(files, kills, strict=True):
                trainer = json.loads(file.read_text())
                family = descendants(trainer["pid"])
                families |= family
                assert set(trainer["workers"]) <= {pid for pid, _ in family}
                os.kill(trainer["pid"], sent)
                wait_until(lambda family=family: not any(map(is_alive, family)), 20.0)
                left[f"{method}, {sent.name}, {busy=}"] = sum(map(is_alive, family))
        finally:
            for process in families | descendants(nursery.pid):
                if is_alive(process):
                    os.kill(process[0], signal.SIGKILL)
            nursery.kill()
    return left


def test_a_killed_trainer_leaves_no_worker(corpus: Path, tmp_path: Path) -> None:
    """After SIGKILL or SIGTERM every process of the trainer ends; an orphan would live for ever."""
    left = orphans_of(KILLS, corpus, tmp_path)
    assert not any(left.values()), left
    assert len(left) == len(KILLS)


@pytest.mark.exhaustive
def test_a_killed_trainer_leaves_no_worker_in_the_other_cases(corpus: Path, tmp_path: Path) -> None:
    """The same must hold for the rest of start method x signal x idle or busy."""
    left = orphans_of(OTHER_KILLS, corpus, tmp_path)
    assert not any(left.values()), left
    assert len(left) == len(OTHER_KILLS)


def torchrun(options: dict[str, Any], restarts: int, mark: str) -> subprocess.CompletedProcess[str]:
    """Run the training job with two ranks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    command += [f"--max-restarts={restarts}", "--monitor-interval=0.1"]
    command += [str(HERE / "resume_trainer.py"), json.dumps(options)]
    return subprocess.run(
        command, env=child_env(RESUME_MARK=mark), capture_output=True, text=True, check=False, timeout=170
    )


def run_and_kill(corpus: Path, out: Path, kills: list[list[int]], **options: Any) -> None:
    """Run a job through its deaths; the last one of them ends it, and another start finishes it."""
    mark = f"resume-{uuid.uuid4()}"
    options |= {"corpus": str(corpus), "out": str(out), "kills": kills}
    killed = torchrun(options, len(kills) - 1, mark)
    assert killed.returncode != 0
    assert wait_until(lambda: not marked(mark), 2.0), marked(mark)
    assert len(list(out.glob("death*"))) == len(kills), killed.stderr[-3000:]
    finished = torchrun(options, 0, mark)
    assert finished.returncode == 0, finished.stderr[-3000:]
    assert wait_until(lambda: not marked(mark), 2.0), marked(mark)
    check_logs(out)


def check_logs(out: Path) -> None:
    """Each rank must have taken every step, replayed ones with the same batch, and all be the truth."""
    for rank in range(2):
        lines = [json.loads(line) for line in (out / f"log{rank}").read_text().splitlines()]
        data = type(JOB_DATA)("batch", seq_len=3, batch_size=2, world=2, rank=rank)
        expected = flat(truth(data, epoch) for epoch in range(EPOCHS))
        steps = {step for step, _ in lines}
        assert steps == set(range(1, len(expected) + 1))
        assert all(tuple(ids) == expected[step - 1] for step, ids in lines)


@pytest.mark.exhaustive
def test_a_job_that_is_killed_four_times_takes_every_step(corpus: Path, tmp_path: Path) -> None:
    """Two ranks, killed at an epoch's end, behind one, in mid-epoch and at the very end, go on exactly."""
    kills = [[14, 0], [20, 1], [29, 0], [42, 1]]
    run_and_kill(corpus, tmp_path, kills, workers=2, persistent=False, every=4, snapshot=1)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
@pytest.mark.parametrize("every", [1, 4, 14])
def test_a_job_in_other_settings_takes_every_step(
    every: int, workers: int, persistent: bool, corpus: Path, tmp_path: Path
) -> None:
    """The same must hold with other workers, checkpoint intervals and moments of death."""
    kills = [[3 + every, 1], [14 + every, 0], [28, 0], [41, 1]]
    snapshot = every if persistent else 1
    options = {"workers": workers, "persistent": persistent, "every": every, "snapshot": snapshot}
    run_and_kill(corpus, tmp_path, kills, **options)


def test_a_pickled_dataset_does_not_carry_its_data(tmp_path: Path, write_corpus: Any) -> None:
    """A dataset that has read from 100 MB must be less than 10 KB on its way to a spawned worker."""
    corpus = write_corpus(tmp_path / "corpus", (1000,))
    tokens = 25_000_000
    os.truncate(corpus / "chunk_000000.bin", tokens * 4)
    meta = json.loads((corpus / "meta.json").read_text())
    meta |= {"total_tokens": tokens, "chunks": [{"file": "chunk_000000.bin", "tokens": tokens}]}
    (corpus / "meta.json").write_text(json.dumps(meta))
    dataset = make_dataset(corpus, BATCH, order="feistel")
    next(iter(dataset))
    assert len(dataset) > 1_000_000
    assert len(pickle.dumps(dataset)) < 10_000


LONG_RUN = """
import gc, multiprocessing, os, sys
from pathlib import Path
from resume_loaders import Setup, loaded, make_loader, one_pass, strict_warnings, through_file
from resume_truth import MODES

def used():
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096, len(os.listdir("/proc/self/fd")), len(multiprocessing.active_children())

def go_on(times):
    loader = make_loader(sys.argv[1], data, Setup(1))
    for _ in range(times):
        one_pass(loader, data)
    for _ in range(times):
        next(iter(loader))
        loader.load_state_dict(through_file(loader.state_dict()))
        next(iter(loader))

strict_warnings()
data = MODES["batch"]
go_on(5)
before = used()
go_on(20)
after = used()
print(before, after)
assert after[0] - before[0] < 5_000_000
assert after[1] <= before[1] + 1 and after[2] == before[2] == 0  # 45 passes: what leaks would show tenfold
"""


def test_a_long_run_with_many_reloads_grows_nothing(corpus: Path) -> None:
    """After 20 epochs and 20 reloads memory, file descriptors and children must not be more than before."""
    done = subprocess.run(
        [sys.executable, "-c", LONG_RUN, str(corpus)],
        env=child_env(), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stderr == ""
