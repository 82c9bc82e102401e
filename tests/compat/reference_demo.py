"""A script as people have written it against the reference loader; only the import is tdstream's.

torchrun --nproc_per_node=2 reference_demo.py CORPUS NUM_WORKERS SKIP
"""

from __future__ import annotations

import math
import sys

import torch.distributed as dist
from torch.utils.data import DataLoader
from tqdm.auto import tqdm

from tdstream import DistributedDataset

SEQ_LEN, BATCH_SIZE, EPOCHS = 4, 4, 3


def batches_of_rank(dataset, rank, ranks, workers):
    """Return the samples that are left for a rank, and how many batches its workers make of them."""
    left = dataset.total_samples - dataset.global_skip_batches
    streams = range(rank * workers, (rank + 1) * workers)
    samples = [max(-(-(left - stream) // (ranks * workers)), 0) for stream in streams]
    return sum(samples), sum(math.ceil(count / BATCH_SIZE) for count in samples)


def main():
    """Run three epochs, of which only the first skips samples; print what came."""
    corpus, workers, skip = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    dataset = DistributedDataset(
        data_dir=corpus, seq_len=SEQ_LEN, shuffle=True, seed=123, global_skip_batches=skip,
        dp_rank=rank, dp_world_size=ranks,
    )  # fmt: skip
    loader = DataLoader(
        dataset, batch_size=BATCH_SIZE, shuffle=False, num_workers=workers, persistent_workers=workers > 0
    )
    for epoch in range(EPOCHS):
        loader.dataset.set_epoch(epoch)
        samples, batches = batches_of_rank(dataset, rank, ranks, max(workers, 1))
        seen = []
        for batch in tqdm(loader, total=batches, desc=f"Epoch {epoch}", disable=rank != 0):
            seen.append(batch["input_ids"][:, 0].tolist())
        assert (sum(map(len, seen)), len(seen)) == (samples, batches)
        sys.stdout.write(f"{rank} {epoch} {sorted(first for rows in seen for first in rows)}\n")
        dataset.global_skip_batches = 0
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
