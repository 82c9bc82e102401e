"""Proof of elastic resume: a killed job continues with other numbers of processes and loses no sample."""

from __future__ import annotations

import argparse
import random
import textwrap
from dataclasses import dataclass
from pathlib import Path

from elastic_logs import ElasticLog, Row, Runs, join, read_elastic_logs
from elastic_truth import first_fault, hash_samples, order_fault, start_fault, state_fault
from resume_corpus import VOCAB_SIZE
from resume_job import Kill, Run, run_job

SEQ_LEN = 64
BATCH_SIZE = 8
SAVE_EVERY = 7


@dataclass(frozen=True)
class Machine:
    """The size of a run."""

    processes: int
    """Ranks."""
    workers: int
    """Loader workers per rank."""


MACHINES = [Machine(2, 2), Machine(3, 0), Machine(1, 1)]


def prove_elastic(options: argparse.Namespace, corpus: Path, scratch: Path) -> str | None:
    """Train on one machine after the other and count every sample; return the fault found, or None."""
    samples = hash_samples(corpus, SEQ_LEN)
    shape = " > ".join(f"{machine.processes} x {machine.workers}" for machine in MACHINES)
    print(
        f"job: processes x loader workers {shape}, {options.epochs} epochs of {len(samples):,} samples, ",
        end="",
    )
    print(f"a checkpoint every {SAVE_EVERY} steps, seed {options.seed}\n")
    print(f"{'run':<5}{'processes':>9}{'workers':>9}{'started at':>24}{'ended at':>24}{'batches':>9}", end="")
    print(f"{'seconds':>9}  end")

    runs = train(options, corpus, scratch, len(samples))
    rows = join(runs)
    fault = first_fault(rows, samples, options.epochs)
    fault = fault or order_fault(rows, samples, uninterrupted(corpus, options.epochs, options.seed))
    fault = fault or start_fault(runs, rows, SAVE_EVERY) or state_fault(runs)
    print("" if fault else verdict(runs, rows, len(samples)))
    return fault


def train(options: argparse.Namespace, corpus: Path, scratch: Path, num_samples: int) -> Runs:
    """Train on each machine until the kill, and on the last one to the end; return all logs."""
    arguments = [f"--data_path={corpus}", f"--checkpoint={scratch / 'checkpoint.pt'}"]
    arguments += [f"--vocab_size={VOCAB_SIZE}", f"--seq_len={SEQ_LEN}", f"--batch_size={BATCH_SIZE}"]
    arguments += [f"--save_every={SAVE_EVERY}", f"--epochs={options.epochs}", f"--seed={options.seed}"]
    runs = []
    kills = [*choose_elastic_kills(num_samples, options.seed), None]
    for number, (machine, kill) in enumerate(zip(MACHINES, kills, strict=True), start=1):
        run = run_job(
            "elastic_trainer.py", [*arguments, f"--workers={machine.workers}"],
            num_ranks=machine.processes, log_dir=scratch / f"elastic-{number}", kill=kill,
        )  # fmt: skip
        runs.append(read_elastic_logs(run.log_files))
        print_row(number, machine, run, runs[-1])
        if not run.killed:
            break
    return runs


def choose_elastic_kills(num_samples: int, seed: int) -> list[Kill]:
    """Return a kill for each machine but the last, at a random step in the middle of epochs 0, 1, ..."""
    chance = random.Random(seed)  # noqa: S311  # no secret
    kills, step, done = [], 0.0, 0.0
    for epoch, machine in enumerate(MACHINES[:-1]):
        target = (epoch + chance.uniform(0.3, 0.7)) * num_samples
        step += (target - done) / (machine.processes * BATCH_SIZE)
        done = target
        after_first_save = max(int(step), SAVE_EVERY + 2)  # no rank is more than a step behind another
        kills.append(Kill(step=after_first_save, delay_s=chance.uniform(0, 0.05), everything=epoch % 2 == 1))
    return kills


def uninterrupted(corpus: Path, epochs: int, seed: int) -> list[list[str]]:
    """Return the samples of each epoch in the order of one uninterrupted process."""
    # Imported here: they take seconds, and only this proof needs them.
    from elastic_trainer import hash_rows  # noqa: PLC0415

    import tdstream  # noqa: PLC0415

    loader = tdstream.loader(corpus, seq_len=SEQ_LEN, batch_size=1, shuffle=True, seed=seed)
    return [[sample for batch in loader for sample in hash_rows(batch)] for _ in range(epochs)]


def print_row(number: int, machine: Machine, run: Run, logs: list[ElasticLog]) -> None:
    """Print a run as one line of the table."""
    last = max((batch for log in logs for batch in log.served), key=lambda batch: batch.step, default=logs[0])
    started, ended = (f"epoch {at.epoch}, position {at.position}" for at in (logs[0], last))
    batches = sum(len(log.served) for log in logs)
    print(
        f"{number:<5}{machine.processes:>9}{machine.workers:>9}{started:>24}{ended:>24}{batches:>9}", end=""
    )
    print(f"{run.seconds:>9.1f}  {'killed' if run.killed else 'finished'}")


def verdict(runs: Runs, rows: list[Row], num_samples: int) -> str:
    """Return in words and numbers what has been proven."""
    epochs = rows[-1].epoch + 1
    again = sum(len(batch.rows) for run in runs for log in run for batch in log.served) - len(rows)
    left_out = [num_samples - sum(row.epoch == epoch for row in rows) for epoch in range(epochs)]
    steps = sum(max(len(log.served) for log in run) for run in runs)
    text = (
        f"{len(rows):,} samples in {epochs} epochs over {len(runs)} machines: each of the corpus's "
        f"{num_samples:,} was served exactly once per epoch, except for the last incomplete global batch "
        f"({' and '.join(map(str, left_out))} samples), in the order of a single uninterrupted process. "
        f"{again} more were served after a checkpoint, lost in a kill, and served again by the next run. The "
        f"loader's state was the same on all ranks at each of {steps:,} steps. Losses are not compared: "
        f"another number of processes makes other global batches, and therefore other losses."
    )
    return f"\n{textwrap.fill(text, 100)}"
