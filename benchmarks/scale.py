"""Corpora of up to 10^13 tokens in 10^5 shards: only the list of shards grows.

    python benchmarks/scale.py [--quick]

The files are sparse: their sizes are real, but 10^13 tokens take no space. B=8, T=2048, shuffled, one rank,
without workers and with 4; each opening in a process of its own.

first batch     from the construction to the first batch; target: at most 1 s
MB              peak memory of the process above that after the imports, and private memory of the largest
                worker; target: at most 100 MB
resume          construction, load, and first batch, at 99 % of the epoch against 1 %; target: +-20 % or
                +-50 ms
shards          used by the first four batches, and files mapped by then; target: equal
memory, long    of one process after 10 % of many batches of one sample, and after all; target: +-1 %
"""

from __future__ import annotations

import gc
import itertools
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from measuring import corpus, options

import tdstream

CORPORA = ((10**10, 100), (10**12, 10_000), (10**13, 100_000))
LONG_TOKENS, LONG_SEQ_LEN = 10**8, 63


def memory(process: int | str = "self") -> dict[str, float]:
    """Return the memory of a process in MB: present, peak, anonymous, and private."""
    lines = Path(f"/proc/{process}/status").read_text() + Path(f"/proc/{process}/smaps_rollup").read_text()
    fields = dict(line.split(":", 1) for line in lines.splitlines() if line.endswith("kB"))
    names = {"now": "VmRSS", "peak": "VmHWM", "anonymous": "RssAnon", "own": "Private_Dirty"}
    return {name: int(fields[field].split()[0]) / 1024 for name, field in names.items()}


def open_(directory: Path, workers: int = 0) -> tdstream.Loader:
    """Return the loader under test."""
    return tdstream.loader(directory, seq_len=2048, batch_size=8, shuffle=True, num_workers=workers)


def first_batch(directory: Path, workers: int) -> dict[str, Any]:
    """Return the cost of opening a corpus; called in a process that has done nothing but imports."""
    before, begin, cpu = memory()["now"], time.perf_counter(), time.process_time()
    loader = open_(directory, workers)
    iterator = iter(loader)
    next(iterator)
    seconds = time.perf_counter() - begin
    for _ in range(3):
        next(iterator)
    cpu = time.process_time() - cpu
    result: dict[str, Any] = {"seconds": seconds, "cpu seconds": cpu, "MB": memory()["peak"] - before}
    if workers:
        children = Path(f"/proc/self/task/{Path('/proc/self').resolve().name}/children").read_text().split()
        result["MB of a worker"] = max(memory(child)["own"] for child in children)
    else:
        maps = Path("/proc/self/maps").read_text().splitlines()
        result["mapped"] = len({line.split()[-1] for line in maps if line.endswith(".bin")})
        samples = itertools.chain.from_iterable(loader.locate(step).samples for step in range(4))
        result["touched"] = len({piece.shard for sample in samples for piece in sample.pieces})
    return result


def resume(directory: Path) -> tuple[float, float]:
    """Return the median times of a resume at 1 % and at 99 % of the epoch, in alternating runs."""
    loader = open_(directory)
    states = []
    for percent in (1, 98):
        loader.skip(len(loader) * percent // 100)
        states.append(loader.state_dict())
    times: list[list[float]] = [[], []]
    for number in range(14):
        begin = time.perf_counter()
        fresh = open_(directory)
        fresh.load_state_dict(states[number % 2])
        next(iter(fresh))
        times[number % 2].append(time.perf_counter() - begin)
    return statistics.median(times[0]), statistics.median(times[1])


def long_run(directory: Path, batches: int) -> tuple[float, float]:
    """Return the memory after 10 % of many batches, and after all."""
    loader = tdstream.loader(directory, seq_len=LONG_SEQ_LEN, batch_size=1, shuffle=True)
    figures = []
    for number, _ in enumerate(loader, start=1):
        if number in (batches // 10, batches):
            gc.collect()
            figures.append(memory()["anonymous"])
        if number == batches:
            break
    return figures[0], figures[1]


def alone(*arguments: str) -> Any:
    """Return what this script measures in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--alone", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Measure and print."""
    flags = options(__doc__)
    for tokens, shards in CORPORA[:2] if flags.quick else CORPORA:
        with corpus(tokens, shards=shards, sparse=True, place=flags.dir) as directory:
            print(f"\n{tokens:.0e} tokens, {shards:,} shards")
            for workers in (0, 4):
                runs = [alone("first_batch", str(directory), str(workers)) for _ in range(5)]
                figures = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
                print(f"  {workers} workers:", {name: round(figure, 3) for name, figure in figures.items()})
            early, late = resume(directory)
            print(f"  resume at 1 %: {early * 1000:.0f} ms, at 99 %: {late * 1000:.0f} ms", flush=True)
    batches = 100_000 if flags.quick else 1_000_000
    with corpus(LONG_TOKENS, sparse=True, place=flags.dir) as directory:
        early, late = alone("long_run", str(directory), str(batches))
        change = f"{late / early - 1:+.2%}"
        print(f"\n{batches:,} batches: {early:.2f} MB after 10 %, {late:.2f} MB at the end ({change})")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        measure = {"first_batch": first_batch, "long_run": long_run}[sys.argv[2]]
        print(json.dumps(measure(Path(sys.argv[3]), int(sys.argv[4]))))
    else:
        main()
