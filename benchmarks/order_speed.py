"""Speed of the shuffled order: "feistel" and "block" against a permutation in memory.

    python benchmarks/order_speed.py [--quick]

Nanoseconds of CPU time per index, in alternating runs: consecutive positions, 4,096 at a time (as the
splitter asks for them), and one at a time through the loader, B=1, T=16, where the order is computed ahead.

numpy           default_rng(...).permutation(N) divided over its N indices, and the look-up; N <= 10^7
loader          a whole batch of one sample, shuffled; "in order" is the same without shuffling

Target: at most 1,000 ns per index, at N up to 10^7.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from measuring import alternate, corpus, endless, options, rate, table

import tdstream
from tdstream.schedule.order import make_order

AT_ONCE = 4096


def nanoseconds(name: str, num_samples: int, pieces: int) -> float:
    """Return the time per index, over some pieces of an epoch."""
    order = make_order(name, num_samples=num_samples, seed=1, epoch=0)
    starts = np.random.default_rng(0).integers(0, num_samples - AT_ONCE, pieces).tolist()
    begin = time.process_time()
    for start in starts:
        order(np.arange(start, start + AT_ONCE))
    return (time.process_time() - begin) * 1e9 / (pieces * AT_ONCE)


def built(num_samples: int, pieces: int) -> float:
    """Return the time per index of a permutation, including its share of building it."""
    begin = time.process_time()
    make_order("numpy", num_samples=num_samples, seed=1, epoch=0)
    return (time.process_time() - begin) * 1e9 / num_samples + nanoseconds("numpy", num_samples, pieces)


def through_the_loader(settings: dict[str, object], open_: Callable[..., tdstream.Loader]) -> float:
    """Return the time per batch of one sample."""
    return 1e9 / rate(endless(partial(open_, **settings)), seconds=0.2, clock=time.process_time)


def main() -> None:
    """Measure and print."""
    flags = options(__doc__)
    rounds, pieces = (5, 20) if flags.quick else (9, 60)
    for num_samples, title in ((10**6, "10^6"), (10**7, "10^7"), (2**40, "2^40")):
        runs = {name: partial(nanoseconds, name, num_samples, pieces) for name in ("feistel", "block")}
        bases = []
        if num_samples <= 10**7:
            runs["numpy"] = partial(built, num_samples, pieces)
            bases = ["numpy"]
        table(f"N={title}", alternate(runs, rounds), "ns/index", bases)
    with corpus(17_000_000, place=flags.dir) as directory:
        open_ = partial(tdstream.loader, directory, seq_len=16, batch_size=1)
        orders = {
            "feistel": {"shuffle": True},
            "block": {"shuffle": "block"},
            "numpy": {"shuffle": True, "order": "numpy"},
            "in order": {"shuffle": False},
        }
        runs = {name: partial(through_the_loader, options_, open_) for name, options_ in orders.items()}
        table("loader, B=1, T=16, N=10^6", alternate(runs, rounds), "ns/batch", ["numpy", "in order"])


if __name__ == "__main__":
    main()
