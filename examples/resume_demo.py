"""Proof that a killed training job resumes exactly: the same batches and the same losses, to the bit.

    python examples/resume_demo.py

Prepares a small corpus from the sources of Python's standard library, and trains a tiny language model on it
twice: once without interruption, and once with SIGKILLs to the whole job at random moments, each followed by
a restart from the checkpoints. Then compares every batch and every loss. Needs no network.

    python examples/resume_demo.py --elastic

resumes the killed job with another number of processes each time, and proves that every sample of each epoch
was served exactly once.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from elastic_proof import prove_elastic
from resume_corpus import VOCAB_SIZE, describe, make_corpus
from resume_job import JobError, Run, choose_kills, run_job
from resume_logs import RankLog, first_difference, first_fault, read_logs

SEQ_LEN = 64
BATCH_SIZE = 8
SAVE_EVERY = 10


def main() -> None:
    """Make the scratch folder, run the proof in it, and exit with 0 or 1."""
    options = parse_arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: leaves no job running
    scratch = Path(tempfile.mkdtemp(prefix="tdstream-"))  # short: paths of sockets are limited
    started = time.monotonic()
    try:
        corpus = make_corpus(scratch, int(options.text_mb * 1e6))
        print(f"corpus: {describe(corpus)}, from the sources of Python's standard library")
        fault = (prove_elastic if options.elastic else prove)(options, corpus, scratch)
    except JobError as error:
        fault = str(error)
    except KeyboardInterrupt:
        fault = "interrupted"
    print(f"FAILED: {fault}" if fault else "PASSED", f"({time.monotonic() - started:.0f} s)")
    if options.keep or fault:
        print(f"the corpus, checkpoints and logs are in {scratch}")
    else:
        shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(1 if fault else 0)


def parse_arguments() -> argparse.Namespace:
    """Return the flags."""
    parser = argparse.ArgumentParser(
        description="Kill a training job, restart it, compare every batch and loss."
    )
    parser.add_argument(
        "--elastic", action="store_true",
        help="resume with other numbers of ranks and loader workers after each kill; "
        "ignores --kills, --workers and --nproc",
    )  # fmt: skip
    parser.add_argument("--kills", type=int, default=3, help="number of kills")
    parser.add_argument("--workers", type=int, default=2, help="loader workers per rank")
    parser.add_argument("--nproc", type=int, default=2, help="ranks")
    parser.add_argument("--epochs", type=int, default=3, help="passes over the corpus")
    parser.add_argument("--text_mb", type=float, default=0.3, help="approximate amount of text")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="default: random")
    parser.add_argument("--keep", action="store_true", help="keep the scratch folder and print its path")
    options = parser.parse_args()
    if options.elastic and options.epochs < 2:
        parser.error("--elastic kills the job in the first and in the second epoch; pass --epochs 2 or more")
    return options


def prove(options: argparse.Namespace, corpus: Path, scratch: Path) -> str | None:
    """Train without and with kills, and compare; return the fault found, or None."""
    print(f"job: {options.nproc} ranks x {options.workers} loader workers, {options.epochs} epochs, ", end="")
    print(f"a checkpoint every {SAVE_EVERY} steps, seed {options.seed}\n")
    print(f"{'run':<14}{'started at':>12}{'ended at':>12}{'batches':>9}{'seconds':>9}  end")

    whole = train(options, corpus, scratch, "uninterrupted")[0]
    whole_logs = read_logs(whole.log_files)
    if fault := first_fault(whole_logs, options.epochs):
        return fault
    runs = train(options, corpus, scratch, "killed", kills=options.kills, steps=whole.last_step)
    logs = [read_logs(run.log_files) for run in runs]
    if difference := first_difference(whole_logs, logs):
        return difference
    print(verdict(whole_logs, logs))
    return None


def train(
    options: argparse.Namespace, corpus: Path, scratch: Path, name: str, *, kills: int = 0, steps: int = 0
) -> list[Run]:
    """Train all epochs, with kills at random ones of so many steps, and a restart after each.

    `name` is the label of the runs in the table; checkpoints and logs go to `scratch`.
    """
    checkpoints = scratch / f"{name}-checkpoints"
    checkpoints.mkdir()
    arguments = [f"--data_path={corpus}", f"--checkpoint_dir={checkpoints}", f"--vocab_size={VOCAB_SIZE}"]
    arguments += [f"--seq_len={SEQ_LEN}", f"--batch_size={BATCH_SIZE}", f"--save_every={SAVE_EVERY}"]
    arguments += [f"--{flag}={getattr(options, flag)}" for flag in ("epochs", "workers", "seed")]
    runs = []
    for number, kill in enumerate([*choose_kills(kills, steps, options.seed), None], start=1):
        label = f"{name} {number}" if kills else name
        log_dir = scratch / label.replace(" ", "-")
        run = run_job("resume_trainer.py", arguments, num_ranks=options.nproc, log_dir=log_dir, kill=kill)
        spared = kill is not None and not kill.everything
        print_row(label, run, "trainers killed" if spared else "all processes killed")
        runs.append(run)
        if not run.killed:
            break
    return runs


def print_row(label: str, run: Run, violence: str) -> None:
    """Print a run as one line of the table."""
    logs = read_logs(run.log_files)
    start, batches = logs[0].start_step, sum(len(log.trained) for log in logs)
    end = violence if run.killed else "finished"
    print(
        f"{label:<14}{f'step {start}':>12}{f'step {run.last_step}':>12}{batches:>9}{run.seconds:>9.1f}  {end}"
    )


def verdict(whole: list[RankLog], runs: list[list[RankLog]]) -> str:
    """Return in words and numbers what has been compared."""
    ranks, steps, kills = len(whole), whole[0].trained[-1].step, len(runs) - 1
    trained = sum(len(log.trained) for run in runs for log in run)
    times = f"{kills} kill" if kills == 1 else f"{kills} kills"
    return (
        f"\n{steps} batches on each of {ranks} ranks, {times}: every batch and every loss equal, "
        f"including the {trained - steps * ranks} that were trained again after a restart."
    )


if __name__ == "__main__":
    main()
