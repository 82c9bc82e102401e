"""Under torchrun: a job that is killed, and started again with other ranks, loses and repeats nothing."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loader_truth import NUM_SAMPLES, Geometry, Ids, Model, epoch_order, rest

JOB = Path(__file__).with_name("loader_job.py")
# Ranks are forked from torchrun's own process, and so need not import the libraries each.
FORKING_TORCHRUN = (
    "import torchdata.stateful_dataloader; from tdstream import loader; "
    "from torch.distributed.run import main; main()"
)
EVERY = 4
EPOCHS = 3


@contextlib.contextmanager
def torchrun(
    corpus: Path, directory: Path, geometry: Geometry, *flags: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the job, as many ranks as the geometry says; at the end torchrun and they are gone."""
    command = [
        *(sys.executable, "-c", FORKING_TORCHRUN, "--standalone", "--local_addr=127.0.0.1"),
        *("--run_path", "--start_method=fork"),
        *(f"--nproc_per_node={geometry.world}", f"--log_dir={directory / 'torchrun'}", str(JOB)),
        *("--corpus", str(corpus), "--directory", str(directory), "--workers", str(geometry.workers)),
        *("--batch-size", str(geometry.batch_size), "--epochs", str(EPOCHS), *flags),
    ]
    path = os.pathsep.join([str(JOB.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "PYTHONPATH": path}
    with (
        (directory / "output.txt").open("a") as output,
        subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield process
        finally:
            for pid in (process.pid, *children()[process.pid]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def entries(attempt: set[Path]) -> list[dict[str, Any]]:
    """Return what the ranks of one attempt have logged in whole lines."""
    lines = [line for path in sorted(attempt) for line in path.read_text().split("\n")[:-1]]
    return [json.loads(line) for line in lines]


def logs(directory: Path) -> set[Path]:
    """Return all logs."""
    return set(directory.glob("log-*.jsonl"))


def children() -> dict[int, list[int]]:
    """Return all processes' children."""
    found: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            found[int(stat.read_text().rpartition(")")[2].split()[1])].append(int(stat.parent.name))
    return found


def descendants(pid: int) -> list[int]:
    """Return the processes below a process."""
    below, found = children(), [pid]
    for parent in found:
        found += below[parent]
    return found[1:]


def alive(pid: int) -> bool:
    """Say whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def run_until(corpus: Path, directory: Path, geometry: Geometry, step: int) -> list[dict[str, Any]]:
    """Run until all ranks have logged a step; kill torchrun and the ranks with SIGKILL; return the logs."""
    before, deadline = logs(directory), time.monotonic() + 90
    with torchrun(corpus, directory, geometry) as process:
        while sum(entry["step"] >= step for entry in entries(logs(directory) - before)) < geometry.world:
            assert process.poll() is None, (directory / "output.txt").read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        below = descendants(process.pid)
        assert len(below) >= geometry.world * (1 + geometry.workers)
    deadline = time.monotonic() + 10
    while any(map(alive, below)):
        assert time.monotonic() < deadline, "a loader's worker outlived its trainer"
        time.sleep(0.05)
    return entries(logs(directory) - before)


def run_to_the_end(corpus: Path, directory: Path, geometry: Geometry, *flags: str) -> list[dict[str, Any]]:
    """Run to the end; return the logs."""
    before = logs(directory)
    with torchrun(corpus, directory, geometry, *flags) as process:
        code = process.wait(timeout=90)
    assert code == 0, (directory / "output.txt").read_text()[-3000:]
    return entries(logs(directory) - before)


def joined(attempt: list[dict[str, Any]], geometry: Geometry) -> dict[int, tuple[int, Ids]]:
    """Join the ranks' parts: step -> (epoch, global batch), of the steps that all ranks have logged."""
    parts: dict[int, dict[int, dict[str, Any]]] = defaultdict(dict)
    for entry in attempt:
        parts[entry["step"]][entry["rank"]] = entry
    return {
        step: (
            ranks[0]["epoch"],
            tuple(sample for rank in range(geometry.world) for sample in ranks[rank]["ids"]),
        )
        for step, ranks in sorted(parts.items())
        if len(ranks) == geometry.world
    }


def check_attempts(attempts: list[tuple[Geometry, dict[int, tuple[int, Ids]]]]) -> None:
    """Compare joined logs with the truth: what counts is a step's last serving before a checkpoint."""
    model, kept, step = None, {}, 0
    for number, (geometry, served) in enumerate(attempts):
        model = model.at(geometry.size) if model else Model(geometry.size)
        assert min(served) == step, "an attempt must begin behind the last checkpoint"
        ending = max(served) + 1
        following = step if number == len(attempts) - 1 else min(attempts[number + 1][1])
        behind = None
        while model.step < ending:
            if not model.running:
                model.open()
            place = model.take()
            if place is not None:
                assert served[model.step - 1] == (place[0], model.batch(*place))
            if model.step == following and behind is None:
                behind = model.at(geometry.size)
        kept |= {s: b for s, b in served.items() if number == len(attempts) - 1 or s < following}
        model, step = (behind or model), following
    by_epoch: dict[int, list[int]] = defaultdict(list)
    for _, (epoch, batch) in sorted(kept.items()):
        by_epoch[epoch] += batch
    assert sorted(by_epoch) == list(range(EPOCHS))
    assert sorted(kept) == list(range(len(kept)))
    for epoch, samples in by_epoch.items():
        assert tuple(samples) == epoch_order("numpy", epoch)[: len(samples)]
        assert NUM_SAMPLES - len(samples) < max(geometry.size for geometry, _ in attempts)


def kill_and_change(corpus: Path, directory: Path, chain: list[tuple[Geometry, int]]) -> None:
    """Run a job under each geometry until a step, the last one to the end, and check all together."""
    attempts = []
    for geometry, until in chain[:-1]:
        attempts.append((geometry, joined(run_until(corpus, directory, geometry, until), geometry)))
    last = chain[-1][0]
    attempts.append((last, joined(run_to_the_end(corpus, directory, last), last)))
    for earlier, later in itertools.pairwise(attempts):
        replayed = set(earlier[1]) & set(later[1])
        assert len(replayed) <= EVERY + 1
        assert min(later[1]) % EVERY == 0
        assert min(later[1]) > min(earlier[1])
    check_attempts(attempts)


def test_two_three_and_one_rank(counting: Path, tmp_path: Path) -> None:
    """Killed with 2 ranks and with 3, and finished with 1, the job must serve each sample of each epoch once.

    Of what came after the last checkpoint, and so comes again, every attempt must serve what is next in
    the one order; with B x world kept, as from 2 ranks to 3 here, it is the very same batches.
    """
    chain = [(Geometry(2, 2, 9), 11), (Geometry(3, 0, 6), 27), (Geometry(1, 2, 8), 0)]
    kill_and_change(counting, tmp_path, chain)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "chain",
    [
        [(Geometry(2, 0, 6), 9), (Geometry(3, 2, 5), 41), (Geometry(1, 0, 7), 0)],
        [(Geometry(1, 2, 30), 13), (Geometry(2, 1, 3), 33), (Geometry(4, 0, 8), 0)],
    ],
    ids=["2-3-1", "1-2-4"],
)
def test_more_ranks_and_workers(counting: Path, tmp_path: Path, chain: Any) -> None:
    """The same must hold for other chains, G never the same twice."""
    kill_and_change(counting, tmp_path, chain)


def test_distributed_checkpoint_with_two_ranks(counting: Path, tmp_path: Path) -> None:
    """torch.distributed.checkpoint keeps one rank's values for all: they must be right for each."""
    run_to_the_end(counting, tmp_path, Geometry(2, 2, 8), "--distributed-checkpoint")
    ranks = [json.loads((tmp_path / f"consumed-{rank}.json").read_text()) for rank in range(2)]
    assert ranks[0]["state"] == ranks[1]["state"]
    expected = rest(16, 0)[:5] + rest(8, 0, 80)
    found = zip(*(rank["consumed"] for rank in ranks), strict=True)
    assert [tuple(itertools.chain(*parts)) for parts in found] == expected
