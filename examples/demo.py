"""Read one epoch of a corpus, in one process or under torchrun; print the speed and what each rank saw.

python examples/demo.py --data_path ./data/my-corpus
torchrun --standalone --nproc_per_node=2 examples/demo.py --data_path ./data/my-corpus --num_workers 2
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torchdata.stateful_dataloader import StatefulDataLoader
from tqdm import tqdm

import tdstream


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one rank received in the epoch."""

    batches: int
    """Batches received."""
    tokens: int
    """Input tokens in them."""
    first_ids: list[int]
    """The first tokens of the first batch."""
    shapes: str
    """Names, shapes and dtypes of a batch."""


def main() -> None:
    """Build, read one epoch, report."""
    options = parse_arguments()
    # StatefulDataLoader 0.11 calls a function that newer torch has turned into a warning.
    warnings.filterwarnings("ignore", message=".*set_vital.*")
    try:
        pipeline = tdstream.build(
            options.data_path, seq_len=options.seq_len, batch_size=options.batch_size, shuffle=True
        )
        assert isinstance(pipeline, tdstream.Pipeline)  # a live stream would have no length to print
        loader = StatefulDataLoader(
            pipeline, num_workers=options.num_workers, pin_memory=torch.cuda.is_available()
        )
        rank, world_size, device = join_ranks()
        if rank == 0:
            print(f"{pipeline!r}\n{pipeline.total_samples:,} samples, {len(loader):,} batches on each rank")
        started = time.perf_counter()
        seen = read_epoch(loader, device, show=rank == 0)
        report(seen, world_size, time.perf_counter() - started)
    except tdstream.TdstreamError as error:
        sys.exit(f"demo: {error}")
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def parse_arguments() -> argparse.Namespace:
    """Return the flags."""
    parser = argparse.ArgumentParser(description="Read one epoch of a corpus of token shards.")
    parser.add_argument("--data_path", default="./data/fineweb-edu-sample-10BT", help="the corpus directory")
    parser.add_argument("--seq_len", type=int, default=1024, help="tokens per sample")
    parser.add_argument("--batch_size", type=int, default=16, help="samples per rank and step")
    parser.add_argument("--num_workers", type=int, default=0, help="loader processes per rank")
    return parser.parse_args()


def join_ranks() -> tuple[int, int, torch.device]:
    """Return the rank, the number of ranks (1 without torchrun), and the device."""
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if "RANK" not in os.environ:
        return 0, 1, device
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return dist.get_rank(), dist.get_world_size(), device


def read_epoch(loader: StatefulDataLoader[dict[str, Tensor]], device: torch.device, *, show: bool) -> Seen:
    """Move every batch of one epoch to the device; `show` draws a bar, which ends at exactly 100 %."""
    batches, tokens, first_ids, shapes = 0, 0, [], "no batch"
    for batch in tqdm(loader, total=len(loader), unit="batch", desc="epoch 0", disable=not show):
        ids = batch["input_ids"].to(device, non_blocking=True)  # [batch_size, seq_len]
        if not batches:
            first_ids = ids[0, :6].tolist()
            shapes = ", ".join(f"{name} {list(rows.shape)} {rows.dtype}" for name, rows in batch.items())
        batches, tokens = batches + 1, tokens + ids.numel()
    return Seen(batches=batches, tokens=tokens, first_ids=first_ids, shapes=shapes)


def report(seen: Seen, world_size: int, seconds: float) -> None:
    """Print on rank 0 what all ranks saw."""
    everyone: list[Seen] = [seen]
    if world_size > 1:
        everyone = everyone * world_size
        dist.all_gather_object(everyone, seen)
        if dist.get_rank() != 0:
            return
    tokens = sum(one.tokens for one in everyone)
    print(f"a batch: {seen.shapes}")
    print(f"{tokens:,} tokens in {seconds:.2f} s on {world_size} rank(s): {tokens / seconds:,.0f} tokens/s")
    for rank, one in enumerate(everyone):
        print(f"rank {rank} saw {one.batches:,} batches; its first row begins {one.first_ids}")


if __name__ == "__main__":
    main()
