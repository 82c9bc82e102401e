"""A training job for torchrun that kills itself at given steps and goes on from its checkpoints."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from resume_loaders import Setup, strict_warnings, wrap
from resume_truth import Data, ids_of

import tdstream

DATA = Data("batch", seq_len=3, batch_size=2, world=2)  # 14 batches per rank and epoch
EPOCHS = 3


class Job:
    """One rank's training: what it logs, saves, and dies of."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.out, self.every, self.kills = Path(options["out"]), options["every"], options["kills"]
        self.rank, self.step = dist.get_rank(), 0
        dataset = tdstream.build(
            options["corpus"], seq_len=DATA.seq_len, batch_size=DATA.batch_size, shuffle=True, order="numpy"
        )  # its rank is found in torch.distributed
        self.loader = wrap(
            dataset, DATA, Setup(options["workers"], options["persistent"], options["snapshot"])
        )
        self.log = (self.out / f"log{self.rank}").open("a")

    def checkpoint(self, step: int) -> Path:
        """Return the file of one rank's checkpoint."""
        return self.out / f"step{step:03d}.rank{self.rank}.pt"

    def resume(self) -> None:
        """Load the newest checkpoint that both ranks have."""
        have = [int(path.name[4:7]) for path in self.out.glob(f"step*.rank{self.rank}.pt")]
        newest = torch.tensor(max(have, default=0))
        dist.all_reduce(newest, dist.ReduceOp.MIN)
        self.step = int(newest)
        if self.step:
            self.loader.load_state_dict(torch.load(self.checkpoint(self.step), weights_only=True))

    def save(self) -> None:
        """Write a checkpoint under a temporary name first."""
        path = self.checkpoint(self.step)
        torch.save(self.loader.state_dict(), path.with_suffix(".tmp"))
        path.with_suffix(".tmp").rename(path)

    def die_if_due(self) -> None:
        """Let one rank end itself as kill -9 would; each of the listed deaths happens once."""
        deaths = sorted(self.out.glob("death*"))
        if len(deaths) < len(self.kills) and self.kills[len(deaths)] == [self.step, self.rank]:
            (self.out / f"death{len(deaths)}").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def train(self) -> None:
        """Take 42 steps, each of which waits for the other rank."""
        while self.step < EPOCHS * 14:
            for batch in self.loader:
                self.step += 1
                dist.all_reduce(torch.ones(1))
                self.log.write(json.dumps([self.step, ids_of(batch, DATA)]) + "\n")
                self.log.flush()
                if self.step % self.every == 0:
                    self.save()
                self.die_if_due()


def main() -> None:
    """Train under torchrun."""
    strict_warnings()
    options = json.loads(sys.argv[1])
    # A meeting place of its own for every attempt: in torchrun's store the dead still have addresses.
    attempt = f"{os.environ['TORCHELASTIC_RUN_ID']}-{os.environ['TORCHELASTIC_RESTART_COUNT']}"
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore(str(Path(options["out"]) / attempt), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    job = Job(options)
    job.resume()
    job.train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
