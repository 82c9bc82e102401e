"""Mixtures compared with one source, and a mixture of a thousand sources.

    python benchmarks/mixture.py [--quick]

Shuffled, one process, from the page cache. The corpora of a mixture hold as many tokens as the one source.

batches/s       of CPU time, of mixtures of two and of four sources, each in 1 shard or in 4, against one
                source in 1 shard and in 16; target: 0.80
first batch     of 1,000 sources, from the construction to the first batch; target: at most 1 s
MB              peak memory of the process above that of one source; target: at most 50 MB
state           bytes per source as JSON; target: at most 100
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from measuring import alternate, corpus, endless, options, rate, table

import tdstream

SHARES = {"0.7 0.3": [0.7, 0.3], "4 even": [0.25] * 4, "4 odd": [0.4127, 0.2911, 0.2, 0.0962]}
TOKENS = 64_000_000
SOURCES = 1000


def memory() -> float:
    """Return the peak memory of this process in MB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def throughput(*, place: Path | None, quick: bool) -> None:
    """Measure batches per second of CPU time, in turns."""
    with contextlib.ExitStack() as stack:

        def made(tokens: int, shards: int) -> Path:
            return stack.enter_context(corpus(tokens, shards=shards, place=place))

        sources: dict[str, Any] = {f"1 source, {shards} sh.": made(TOKENS, shards) for shards in (1, 16)}
        bases = list(sources)
        for shards in (1, 4):
            parts = [made(TOKENS // 4, shards) for _ in range(4)]
            for name, shares in SHARES.items():
                mixed = {str(n): (parts[n], share) for n, share in enumerate(shares)}
                sources[f"{name}, {shards} sh."] = mixed
        for batch_size, seq_len in ((8, 2048), (64, 1024)):
            variants = {}
            for name, source in sources.items():
                loader = tdstream.loader(source, seq_len=seq_len, batch_size=batch_size, shuffle=True)
                items = endless(lambda loader=loader: loader)
                seconds = 0.2 if quick else 0.5
                variants[name] = lambda items=items, s=seconds: rate(
                    items, seconds=s, clock=time.process_time
                )
            title = f"batches/s of CPU time, B={batch_size}, T={seq_len}"
            table(title, alternate(variants, 5 if quick else 15), "batches/s", bases)


def opened(directory: str, count: str, stop: str) -> dict[str, float]:
    """Return the cost of opening a mixture; called in a process that has done nothing but imports."""
    places = sorted(Path(directory).iterdir())[: int(count)]
    weights = {place.name: 1 + number % 7 for number, place in enumerate(places)}
    mixture = tdstream.Mixture({place.name: place for place in places}, weights=weights, stop=stop)
    begin, cpu = time.perf_counter(), time.process_time()
    loader = tdstream.loader(mixture, seq_len=128, batch_size=8, shuffle=True)
    next(iter(loader))
    seconds = time.perf_counter() - begin
    state = len(json.dumps(loader.state_dict()))
    return {"seconds": seconds, "cpu": time.process_time() - cpu, "MB": memory(), "state": state}


def thousand(*, place: Path | None, quick: bool) -> None:
    """Measure a mixture of many sources against one of a single source."""
    with corpus(SOURCES * 2000, shards=SOURCES, place=place) as directory:
        spread(directory)
        for stop in ("first", "drop"):
            runs = {
                count: [alone(str(directory), str(count), stop) for _ in range(3 if quick else 5)]
                for count in (1, SOURCES)
            }
            one, many = (
                {name: statistics.median(run[name] for run in found) for name in found[0]}
                for found in runs.values()
            )
            print(
                f'\n{SOURCES:,} sources, stop="{stop}": first batch {many["seconds"]:.2f} s '
                f"({many['cpu']:.2f} s of CPU time), {many['MB'] - one['MB']:.1f} MB above one source, "
                f"{many['state'] / SOURCES:.0f} bytes of state per source",
                flush=True,
            )


def spread(directory: Path) -> None:
    """Turn each shard into a corpus of its own."""
    chunks = json.loads((directory / "meta.json").read_text())["chunks"]
    (directory / "meta.json").unlink()
    for number, chunk in enumerate(chunks):
        home = directory / f"source-{number:04d}"
        home.mkdir()
        (directory / chunk["file"]).rename(home / "chunk_000000.bin")
        alone_in_it = [{"file": "chunk_000000.bin", "tokens": chunk["tokens"]}]
        content = {"dtype": "uint16", "chunks": alone_in_it, "total_tokens": chunk["tokens"]}
        (home / "meta.json").write_text(json.dumps(content))


def alone(*arguments: str) -> Any:
    """Return what this script measures in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--alone", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Measure and print."""
    flags = options(__doc__)
    thousand(place=flags.dir, quick=flags.quick)
    throughput(place=flags.dir, quick=flags.quick)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        print(json.dumps(opened(*sys.argv[2:])))
    else:
        main()
