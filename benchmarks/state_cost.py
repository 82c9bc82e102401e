"""The cost of loader.state_dict() at every step.

    python benchmarks/state_cost.py [--quick]

Median of 7 alternating pairs of runs, B=8, T=2048, without workers (CPU time) and with 2 (elapsed time): with
a step of about 5 ms of matrix products after each batch, as short as a training step can be, and with no step
at all, where the loop only reads.

Target: every step / never at least 0.99.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
from measuring import Clock, alternate, corpus, options, table

import tdstream


def batches_per_s(
    loader: tdstream.Loader, *, batches: int, step: Callable[[], object], save: bool, clock: Clock
) -> float:
    """Return the speed of a loop over some batches."""
    iterator = iter(loader)
    for _ in range(5):
        next(iterator)
    begin = clock()
    for _ in range(batches):
        next(iterator)
        step()
        if save:
            loader.state_dict()
    return batches / (clock() - begin)


def small_step() -> Callable[[], object]:
    """Return a step of about 5 ms on this machine."""
    matrix = torch.full((512, 512), 0.5)
    begin, products = time.process_time(), 0
    while time.process_time() - begin < 0.1:
        torch.mm(matrix, matrix)
        products += 1
    number = max(products // 20, 1)
    return lambda: [torch.mm(matrix, matrix) for _ in range(number)]


def main() -> None:
    """Measure and print."""
    flags = options(__doc__)
    steps = {"a step of 5 ms": (small_step(), 100), "no step": (lambda: None, 2000)}
    with corpus(64_000_000, shards=16, place=flags.dir) as directory:
        for workers, clock in ((0, time.process_time), (2, time.perf_counter)):
            for name, (step, batches) in steps.items():
                loader = tdstream.loader(
                    directory, seq_len=2048, batch_size=8, shuffle=True, num_workers=workers
                )
                run = partial(
                    batches_per_s,
                    loader,
                    batches=batches // (4 if flags.quick else 1),
                    step=step,
                    clock=clock,
                )
                runs = {"every step": partial(run, save=True), "never": partial(run, save=False)}
                table(f"W={workers}, {name}", alternate(runs, 7), "batches/s", ["never"])
    state = loader.state_dict
    begin = time.process_time()
    for _ in range(2000):
        state()
    print(f"\none state_dict(): {(time.process_time() - begin) / 2000 * 1e6:.1f} us")


if __name__ == "__main__":
    main()
