"""A training job under torchrun: followed through its logs, and killed at a chosen step."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from resume_logs import newest_step, read_pid

_MARK = "TDSTREAM_RESUME_DEMO"  # in the environment of every process of a job, to find them all
_POLL_S = 0.005
_STALL_S = 180.0  # a job without a new batch for so long hangs
_WORKERS_GONE_S = 2.0  # loader workers whose trainer was killed look for it twice a second


@dataclass(frozen=True, kw_only=True)
class Kill:
    """When and how to kill a job."""

    step: int
    """Kill when any rank has trained this step ..."""
    delay_s: float
    """... and this much later."""
    everything: bool
    """Whether to kill the loader workers too, or only torchrun and the trainers: the workers must then notice
    by themselves."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """The outcome of a job."""

    log_files: list[Path]
    """One per rank."""
    killed: bool
    """Whether it was killed, rather than finished."""
    seconds: float
    """From start to end."""

    @property
    def last_step(self) -> int:
        """The newest step of any rank."""
        return max(map(newest_step, self.log_files))


class JobError(Exception):
    """A job failed by itself, hung, or left a process running."""


def run_job(
    trainer: str, arguments: list[str], *, num_ranks: int, log_dir: Path, kill: Kill | None = None
) -> Run:
    """Run a trainer to its end, or until it is killed; raise JobError if it fails by itself or hangs.

    Args:
        trainer: Its file, beside this one. In --log_dir each rank writes a log rank_N.jsonl, whose first line
            has its "pid" and each further one a "step".
        arguments: The trainer's flags, without --log_dir.
        num_ranks: Processes to train with.
        log_dir: Created for this run; temporary files of the job go beside it.
        kill: When to kill the job; None for never.
    """
    log_dir.mkdir(parents=True)
    job = _Job(trainer, arguments, num_ranks=num_ranks, log_dir=log_dir)
    started = time.monotonic()
    try:
        killed = job.follow(kill)
    finally:
        job.end()
    return Run(log_files=job.log_files, killed=killed, seconds=time.monotonic() - started)


class _Job:
    """torchrun, its ranks, and their loader workers."""

    def __init__(self, trainer: str, arguments: list[str], *, num_ranks: int, log_dir: Path) -> None:
        self._log_dir = log_dir
        self.log_files = [log_dir / f"rank_{rank}.jsonl" for rank in range(num_ranks)]
        self._mark = uuid.uuid4().hex
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local_addr=127.0.0.1"]
        torchrun += [f"--nproc_per_node={num_ranks}", f"--log_dir={log_dir / 'torchrun'}"]
        command = [*torchrun, str(Path(__file__).with_name(trainer)), *arguments, f"--log_dir={log_dir}"]
        with (log_dir / "output.txt").open("w") as output:
            self._torchrun = subprocess.Popen(
                command,
                env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(log_dir.parent), _MARK: self._mark},
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def follow(self, kill: Kill | None) -> bool:
        """Wait for the end, or kill the job when the kill is due; return whether it was killed."""
        step, moved = 0, time.monotonic()
        while self._torchrun.poll() is None:
            time.sleep(_POLL_S)
            if (newest := max(map(newest_step, self.log_files))) > step:
                step, moved = newest, time.monotonic()
            if kill is not None and step >= kill.step:
                time.sleep(kill.delay_s)
                self.kill(everything=kill.everything)
                self._wait_for_workers()
                return True
            if time.monotonic() - moved > _STALL_S:
                raise JobError(f"no new batch in {_STALL_S:.0f} s after step {step}; {self._output()}")
        if self._torchrun.returncode:
            raise JobError(f"torchrun ended with {self._torchrun.returncode}; {self._output()}")
        return False

    def kill(self, *, everything: bool) -> None:
        """Send SIGKILL to torchrun and the ranks, and with `everything` to the loader workers, too."""
        # torchrun puts each rank in its own process group, which the workers of the rank belong to.
        send: Callable[[int, int], None] = os.killpg if everything else os.kill
        for pid in (self._torchrun.pid, *map(read_pid, self.log_files)):
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    send(pid, signal.SIGKILL)
        self._torchrun.wait()

    def end(self) -> None:
        """Kill the job if it still runs, after an error or Ctrl-C."""
        if self._torchrun.poll() is None:
            self.kill(everything=True)

    def _wait_for_workers(self) -> None:
        """Wait until the job has no process left; raise JobError if one stays too long."""
        deadline = time.monotonic() + _WORKERS_GONE_S
        while left := list(self._processes()):
            if time.monotonic() > deadline:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
                raise JobError(f"{_WORKERS_GONE_S:.0f} s after the kill, processes {left} still live")
            time.sleep(_POLL_S)

    def _processes(self) -> Iterator[int]:
        """Yield the ids of the job's processes; none on systems without /proc."""
        wanted = f"{_MARK}={self._mark}".encode()
        for environment in Path("/proc").glob("[0-9]*/environ"):
            try:
                if wanted in environment.read_bytes().split(b"\0"):
                    yield int(environment.parent.name)
            except OSError:  # has ended, or belongs to another user
                continue

    def _output(self) -> str:
        """Return the end of what the job printed."""
        return "its last lines were:\n" + (self._log_dir / "output.txt").read_text()[-3000:]


def choose_kills(number: int, steps: int, seed: int) -> list[Kill]:
    """Return kills at random steps, one in each of `number` equal parts; every other spares the workers."""
    chance = random.Random(seed)  # noqa: S311  # no secret
    part = steps / (number + 0.5)  # half a part is left at the end: a finished job cannot be killed
    return [
        Kill(
            step=1 + int(part * (kill + chance.random())),
            delay_s=chance.uniform(0, 0.05),
            everything=kill % 2 == 1,
        )
        for kill in range(number)
    ]
