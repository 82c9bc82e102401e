"""A training job for torchrun over a live stream: each rank logs its batches, and saves a state of its own.

Run by test_live_ranks.py, once for each attempt; ranks have streams of very different lengths.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from helpers_stream import BATCH_SIZE, SEQ_LEN, ids_of, some_texts
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream


def texts():
    """Return texts of which those that rank 0 reads are short, with no worker or two."""
    return (text if number % 4 == 3 else text[:8] for number, text in enumerate(some_texts(240)))


def arguments() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--die-at", type=int, default=-1)
    return parser.parse_args()


def make_loader(options: argparse.Namespace):
    """Return tdstream's loader, or a bare StatefulDataLoader."""
    settings = {
        "tokenizer": options.tokenizer,
        "seq_len": SEQ_LEN,
        "batch_size": BATCH_SIZE,
        "shuffle_buffer": 40,
    }
    if options.bare:
        return StatefulDataLoader(tdstream.build(texts, **settings), num_workers=options.workers)
    return tdstream.loader(texts, num_workers=options.workers, **settings)


def main() -> None:
    """Train for two epochs; every step is a collective, in which ranks at different steps would hang."""
    options = arguments()
    dist.init_process_group("gloo")
    rank, loader = dist.get_rank(), make_loader(options)
    saved = sorted(options.directory.glob(f"state-*-{rank}.pt"))
    step, epoch = 0, 0
    if saved:
        content = torch.load(saved[-1], weights_only=True)
        loader.load_state_dict(content["loader"])
        step, epoch = content["step"], content["epoch"]
    with (options.directory / f"log-{time.time_ns()}-{rank}.jsonl").open("w", buffering=1) as log:
        for number in range(epoch, 2):
            for batch in loader:
                dist.all_reduce(torch.ones(1))
                log.write(json.dumps({"step": step, "epoch": number, "ids": ids_of(batch)}) + "\n")
                step += 1
                if step == options.die_at:
                    log.flush()
                    os._exit(1)
                if step % 5 == 0:
                    path = options.directory / f"state-{step:06d}-{rank}.pt"
                    torch.save({"loader": loader.state_dict(), "step": step, "epoch": number}, path)
                    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
